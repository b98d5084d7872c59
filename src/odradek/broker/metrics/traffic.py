"""Records in and out: of clients by topic, of replicas for the whole node. Hot path.

Topics have a series while they exist; what a deleted one has counted stays in the totals, which
therefore never fall. Names that no topic has are not counted: clients could make up any number.
"""

from typing import Final

from odradek.core.errors import ApiError, ErrorCode

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


class ReplicaTraffic:
    """Bytes between replicas. A reassignment's are those for replicas that it adds."""

    __slots__ = (
        "reassignment_bytes_in",
        "reassignment_bytes_out",
        "replication_bytes_in",
        "replication_bytes_out",
    )

    def __init__(self) -> None:
        self.reassignment_bytes_in = 0
        self.reassignment_bytes_out = 0
        self.replication_bytes_in = 0
        self.replication_bytes_out = 0

    def on_fetched(self, size: int, *, is_added: bool) -> None:
        """Count what a leader sent to this node."""
        self.replication_bytes_in += size
        if is_added:
            self.reassignment_bytes_in += size

    def on_sent(self, size: int, *, is_added: bool) -> None:
        """Count what this node sends to a follower."""
        self.replication_bytes_out += size
        if is_added:
            self.reassignment_bytes_out += size


class Traffic:
    def __init__(self) -> None:
        self.topics: dict[str, TopicTraffic] = {}
        self.replicas = ReplicaTraffic()
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

    def on_consumed(self, topic: str, size: int) -> None:
        """Count what a consumer gets of a topic, which may have been deleted meanwhile."""
        counts = self.topics.get(topic)
        if counts is not None:
            counts.bytes_out += size
