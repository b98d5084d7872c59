"""A node: the composition root, its request handlers and what they share."""
