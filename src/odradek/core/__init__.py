"""The vocabulary every other package shares: error codes and ids. Imports nothing of ours."""
