"""Hostile bytes for every decoder: random valid messages, mutations of them, and the guard."""
