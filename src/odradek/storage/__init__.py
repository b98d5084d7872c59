"""Kafka's log on disk, byte for byte: segments, indexes, producer state, checkpoints, recovery."""
