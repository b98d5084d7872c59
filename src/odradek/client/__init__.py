"""Clients: producer, consumer and admin, in asyncio, with blocking twins. Any Kafka will do."""
