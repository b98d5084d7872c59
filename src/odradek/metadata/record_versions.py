"""A record of the metadata log together with the version in which it is written."""

from typing import NamedTuple

from odradek.metadata.features import (
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    ELR_FROM,
    ZK_MIGRATION_FROM,
)
from odradek.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_metadata


class VersionedRecord(NamedTuple):
    message: Message
    version: int

    def to_bytes(self) -> bytes:
        """Return the value of the log's record."""
        return encode_metadata(self.message, self.version)


def versioned(message: Message, metadata_version: int) -> VersionedRecord:
    """Choose the version in which ``message`` is written at a level of metadata.version."""
    return VersionedRecord(message, _version(message, metadata_version))


def _version(message: Message, level: int) -> int:
    match message:
        case RegisterBrokerRecord():
            if level >= CORDONED_LOG_DIRS_FROM:
                return 4
            if level >= DIRECTORY_ASSIGNMENT_FROM:
                return 3
            return 2 if level >= ZK_MIGRATION_FROM else 1
        case PartitionRecord() | PartitionChangeRecord():
            if level >= ELR_FROM:
                return 2
            return 1 if level >= DIRECTORY_ASSIGNMENT_FROM else 0
        case BrokerRegistrationChangeRecord():
            # The oldest that carries what changed, as Kafka does: the fields tell the level.
            if message.cordoned_log_dirs is not None:
                return 3
            if message.log_dirs:
                return 2
            return 1 if message.in_controlled_shutdown else 0
        case _:
            return 0
