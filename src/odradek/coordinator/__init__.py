"""Group and transaction state, decided without I/O: requests in, records and replies out."""
