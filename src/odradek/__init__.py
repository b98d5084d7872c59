"""Kafka in Python: a durable, partitioned, replicated log that every Kafka client can talk to."""
