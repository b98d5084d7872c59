"""The small files that say whose a log directory is and how it was left.

::

    meta.properties         per log directory   cluster.id, node.id, directory.id; Java properties
    .kafka_cleanshutdown    per log directory   there only after a clean stop; JSON, broker epoch
    partition.metadata      per partition       "version: 0", "topic_id: <22 characters>"

All are Kafka's: a Kafka node can take over our directory, and the other way round. A missing file
reads as None. Bad content is a CorruptionError that names the file.
"""

import json
import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.core.java_properties import format_properties, parse_properties
from odradek.storage.checkpoints import INT32_MAX, INT64_MAX, parse_number
from odradek.storage.disk import Disk, write_atomically

META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
PARTITION_METADATA: Final = "partition.metadata"

_RESERVED_IDS: Final = 100
_PARTITION_METADATA: Final = re.compile(rb"version:\s+([0-9]+)\s+topic_id:\s+(\S+)\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """Version 1 always has a cluster and a node id. Version 0 is what ZooKeeper brokers left."""

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1


class CleanShutdown(NamedTuple):
    """A clean stop. KIP-966 wants the broker epoch at the next registration; old files lack it."""

    broker_epoch: int | None = None


def read_meta_properties(disk: Disk, folder: PurePath) -> MetaProperties | None:
    path = folder / META_PROPERTIES
    if not disk.exists(path):
        return None
    try:
        return _meta_properties(parse_properties(disk.read(path)))
    except (ValueError, CorruptionError) as error:
        raise CorruptionError(f"{path}: {error}") from error


def _meta_properties(properties: dict[str, str]) -> MetaProperties:
    version = parse_number(properties.get("version", "0").strip(), 1)
    node_id = properties.get("node.id" if version else "broker.id")
    directory_id = properties.get("directory.id")
    found = MetaProperties(
        version=version,
        cluster_id=properties.get("cluster.id"),
        node_id=None if node_id is None else parse_number(node_id, INT32_MAX),
        directory_id=None if directory_id is None else Uuid.from_text(directory_id),
    )
    if version and (found.cluster_id is None or found.node_id is None):
        raise ValueError("cluster.id or node.id is missing")
    # Kafka keeps the first hundred ids for directories that are lost, unassigned or migrating.
    if found.directory_id and int.from_bytes(found.directory_id, "big") < _RESERVED_IDS:
        raise ValueError(f"directory.id {found.directory_id} is reserved")
    return found


def write_meta_properties(disk: Disk, folder: PurePath, meta: MetaProperties) -> None:
    assert not meta.version or (meta.cluster_id is not None and meta.node_id is not None)
    fields = {
        "version": meta.version,
        "cluster.id": meta.cluster_id,
        "node.id" if meta.version else "broker.id": meta.node_id,
        "directory.id": meta.directory_id,
    }
    properties = {key: str(value) for key, value in fields.items() if value is not None}
    write_atomically(disk, folder / META_PROPERTIES, format_properties(properties))


def read_clean_shutdown(disk: Disk, folder: PurePath) -> CleanShutdown | None:
    """Return how the broker that used the directory last said goodbye; None if it did not.

    An empty file is what Kafka wrote before it knew broker epochs.
    """
    path = folder / CLEAN_SHUTDOWN
    if not disk.exists(path):
        return None
    content = disk.read(path)
    if not content:
        return CleanShutdown()
    try:
        broker_epoch = json.loads(content).get("brokerEpoch")
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptionError(f"{path}: no JSON object: {content[:80]!r}") from error
    if broker_epoch is None or (type(broker_epoch) is int and -1 <= broker_epoch <= INT64_MAX):
        return CleanShutdown(broker_epoch)
    raise CorruptionError(f"{path}: no broker epoch: {content[:80]!r}")


def write_clean_shutdown(disk: Disk, folder: PurePath, broker_epoch: int) -> None:
    """Say that everything in the directory is on stable storage."""
    content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomically(disk, folder / CLEAN_SHUTDOWN, content.encode())


def remove_clean_shutdown(disk: Disk, folder: PurePath) -> None:
    """Take it back, before anything in the directory is changed.

    Synced, because a file that came back after a crash would make us skip recovery.
    """
    disk.remove(folder / CLEAN_SHUTDOWN)
    disk.sync_folder(folder)


def read_partition_metadata(disk: Disk, folder: PurePath) -> Uuid | None:
    """Return the id of the topic that the partition belongs to."""
    path = folder / PARTITION_METADATA
    if not disk.exists(path):
        return None
    content = disk.read(path)
    match = _PARTITION_METADATA.fullmatch(content)
    if match is None:
        raise CorruptionError(f"{path}: {content[:80]!r}")
    try:
        topic_id = Uuid.from_text(match[2].decode())
    except (ValueError, CorruptionError) as error:
        raise CorruptionError(f"{path}: {error}") from error
    if topic_id == ZERO_UUID:
        raise CorruptionError(f"{path}: the topic id is zero")
    return topic_id


def write_partition_metadata(disk: Disk, folder: PurePath, topic_id: Uuid) -> None:
    write_atomically(disk, folder / PARTITION_METADATA, _partition_metadata(topic_id))


def draft_partition_metadata(disk: Disk, folder: PurePath, topic_id: Uuid) -> PurePath:
    """Write it under another name and do not wait for the disk; return that name.

    Once the draft is synced, ``publish_partition_metadata`` gives it its own.
    """
    draft = folder / f"{PARTITION_METADATA}.tmp"
    disk.remove(draft)
    file = disk.open(draft, create=True)
    try:
        file.write(0, [_partition_metadata(topic_id)])
    finally:
        file.close()
    return draft


def publish_partition_metadata(disk: Disk, draft: PurePath) -> None:
    """Give a draft its name; durable when the folder is synced."""
    disk.rename(draft, draft.with_name(PARTITION_METADATA))


def _partition_metadata(topic_id: Uuid) -> bytes:
    assert topic_id != ZERO_UUID
    return f"version: 0\ntopic_id: {topic_id}".encode()
