"""A node: the roles of its ``process.roles``, put together."""
