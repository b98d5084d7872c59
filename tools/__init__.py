"""Tools for developers of this project; nothing here is installed."""
