"""Reads the metadata log in a data directory that a real Kafka wrote."""

from pathlib import Path

from odradek.metadata import MetadataProvenance
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata
from odradek.records import iter_headers, read_records


def batches(folder: Path) -> list[tuple[list[Message], MetadataProvenance]]:
    found = []
    for path in sorted((folder / "__cluster_metadata-0").glob("*.log")):
        data = path.read_bytes()
        for header in iter_headers(data, partial_tail=True):
            records = [] if header.is_control else list(read_records(data, header))
            messages = [decode_metadata(record.value or b"") for record in records]
            last = header.base_offset + header.last_offset_delta
            epoch = header.partition_leader_epoch
            found.append((messages, MetadataProvenance(last, epoch, header.max_timestamp)))
    return found
