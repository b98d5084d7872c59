"""Metrics of clients (KIP-714), as far as GetTelemetrySubscriptions and PushTelemetry share it."""

from typing import Final

from odradek.broker.context import RequestContext
from odradek.core.ids import Uuid
from odradek.records import CompressionType

ACCEPTED_COMPRESSION_TYPES: Final = (
    CompressionType.ZSTD,
    CompressionType.LZ4,
    CompressionType.GZIP,
    CompressionType.SNAPPY,
)
"""The best first; none at all is accepted too, and goes without saying."""


def client_attributes(context: RequestContext, instance_id: Uuid) -> dict[str, str]:
    """Return what is known of a client, by the selectors of ``match``."""
    connection = context.connection
    return {
        "client_instance_id": str(instance_id),
        "client_id": context.client_id or "",
        "client_software_name": connection.client_software_name,
        "client_software_version": connection.client_software_version,
        "client_source_address": connection.peer_host,
        "client_source_port": str(connection.peer_port),
    }
