"""Metrics of clients (KIP-714), as far as GetTelemetrySubscriptions and PushTelemetry share it.

Nothing is subscribed to, so all clients have one and the same subscription and none of them is
remembered: which subscription a client means is known from the number alone.
"""

from typing import Final

from odradek.records import CompressionType

SUBSCRIPTION_ID: Final = 1
PUSH_INTERVAL_MS: Final = 300_000
"""Kafka's default, ``interval.ms``: how long a client waits before it asks again."""

ACCEPTED_COMPRESSION_TYPES: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
"""The best first; none at all is accepted too, and goes without saying."""
