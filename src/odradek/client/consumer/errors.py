"""What only a consumer can be told."""

from collections.abc import Mapping

from odradek.client.consumer.records import ConsumerRecord
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition


class CommitFailedError(KafkaError):
    """The group has moved on without this member: others may read its partitions by now."""


class RebalanceInProgressError(KafkaError):
    """The group is dividing its partitions anew: poll, then commit again."""


class NoOffsetError(KafkaError):
    """There is nowhere to begin, and ``auto.offset.reset`` is ``none``."""

    def __init__(self, partitions: Mapping[TopicPartition, str]) -> None:
        self.partitions = frozenset(partitions)
        named = ", ".join(f"{each}: {why}" for each, why in sorted(partitions.items()))
        super().__init__(f"{named} (seek, commit an offset, or set auto.offset.reset)")


class LogTruncationError(KafkaError):
    """The log was cut below the position: records that were read are there no more (KIP-320)."""

    def __init__(self, diverging: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """``diverging`` has the position and the end of what both have, by partition."""
        self.partitions = dict(diverging)
        named = ", ".join(
            f"{each} at {position}, the log diverges at {end}"
            for each, (position, end) in sorted(diverging.items())
        )
        super().__init__(f"{named} (seek to go on)")


class FencedError(KafkaError):
    """Another consumer has taken this one's ``group.instance.id``; it cannot go on."""


class CorruptRecordError(KafkaError):
    """A batch is not what its producer sent. Seek past it to go on."""

    def __init__(self, partition: TopicPartition, offset: int, problem: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(f"{partition} at {offset}: {problem} (seek past it to go on)")


class RecordDeserializationError(KafkaError):
    """A deserializer failed; ``record`` has the bytes. Seek past it to go on."""

    def __init__(self, record: ConsumerRecord, part: str, error: Exception) -> None:
        """``part`` is ``key`` or ``value``."""
        self.record = record
        self.partition = record.topic_partition
        self.offset = record.offset
        self.part = part
        where = f"{self.partition} at {self.offset}"
        super().__init__(f"{where}: its {part} cannot be read: {error!r} (seek past it to go on)")


def is_of_position(error: KafkaError, partition: TopicPartition) -> bool:
    """Tell whether a seek in a partition is all that an error asks for."""
    match error:
        case NoOffsetError() | LogTruncationError():
            return set(error.partitions) == {partition}
        case CorruptRecordError():
            return error.partition == partition
        case _:
            return False
