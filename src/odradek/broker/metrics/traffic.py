"""Records in and out, by topic. Hot path.

Topics have a series while they exist; what a deleted one has counted stays in the totals, which
therefore never fall. Names that no topic has are not counted: clients could make up any number.
"""

from collections.abc import Callable
from typing import Any, Final

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid

TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
EXPECTED: Final = TOO_LARGE | {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Refusals that are no failures of the broker: Kafka leaves them out of its counts of those."""


class TopicTraffic:
    """What was counted for one topic, or for some together."""

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "bytes_rejected",
        "failed_fetch_requests",
        "failed_produce_requests",
        "messages_in",
        "total_fetch_requests",
        "total_produce_requests",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.bytes_rejected = 0
        self.failed_fetch_requests = 0
        self.failed_produce_requests = 0
        self.messages_in = 0
        self.total_fetch_requests = 0
        self.total_produce_requests = 0

    def on_append_refused(self, code: ErrorCode, size: int) -> None:
        if code in TOO_LARGE:
            self.bytes_rejected += size
        elif code not in EXPECTED:
            self.failed_produce_requests += 1

    def on_read_failed(self, error: Exception) -> None:
        if not (isinstance(error, ApiError) and error.code in EXPECTED):
            self.failed_fetch_requests += 1

    def add(self, other: "TopicTraffic") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self._deleted = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """Return the counts of a topic that exists; from zero if it is new."""
        found = self.topics.get(topic)
        if found is None:
            found = self.topics[topic] = TopicTraffic()
        return found

    def remove(self, topic: str) -> None:
        gone = self.topics.pop(topic, None)
        if gone is not None:
            self._deleted.add(gone)

    def total(self) -> TopicTraffic:
        """Return the counts of all topics there are and were."""
        total = TopicTraffic()
        for each in (self._deleted, *self.topics.values()):
            total.add(each)
        return total

    def on_fetched(self, response: Any, name_of: Callable[[Uuid], str | None]) -> None:
        """Count the bytes of a FetchResponse that is about to leave.

        Not where they are read: a fetch that has to wait reads again when it is answered.
        """
        for topic in response.responses:
            size = 0
            for partition in topic.partitions:
                if partition.records:
                    size += len(partition.records)
            if size:
                counts = self.topics.get(topic.topic or name_of(topic.topic_id) or "")
                if counts is not None:
                    counts.bytes_out += size
