"""The offsets that groups have committed: per group, topic and partition, the newest one.

Commits inside a transaction wait in a slot of their own, by producer id, until the transaction's
marker comes: a commit moves them over, an abort drops them. While one waits, its partition is
*unstable* to readers that ask for stable offsets.

Only ``replay_…`` and ``end_transaction`` change anything, live and when a log is loaded alike.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from odradek.core.ids import Uuid
from odradek.protocol.generated.offset_records import OffsetCommitKey, OffsetCommitValue

NO_PRODUCER_ID: Final = -1
NO_EXPIRE_TIMESTAMP: Final = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """Set only by clients of before Kafka 2.1, which chose a retention of their own."""
    topic_id: Uuid
    record_offset: int
    """Where its record lies in the log: of two commits, the later record wins."""


Place = tuple[str, str, int]
"""Group, topic, partition."""

_NOTHING: Final[Mapping[str, dict[int, CommittedOffset]]] = {}


class OffsetStore:
    def __init__(self) -> None:
        self._committed: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._pending: dict[int, dict[Place, CommittedOffset]] = {}
        self._open: dict[str, dict[tuple[str, int], set[int]]] = {}
        self.count = 0

    # Questions.

    def of_group(self, group_id: str) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return what a group has committed, by topic and partition."""
        return self._committed.get(group_id, _NOTHING)

    def all(self) -> Iterator[tuple[Place, int]]:
        """Iterate over every place and the offset that is committed there."""
        for group_id, topics in self._committed.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    yield (group_id, topic, partition), committed.offset

    def find(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        return self.of_group(group_id).get(topic, {}).get(partition)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that is not over yet has committed an offset here."""
        return (topic, partition) in self._open.get(group_id, ())

    def has_pending(self, group_id: str) -> bool:
        return group_id in self._open

    def pending_of(self, group_id: str) -> Iterator[tuple[str, int]]:
        yield from self._open.get(group_id, ())

    def places_in(self, topic: str) -> Iterator[tuple[Place, CommittedOffset]]:
        """Iterate over all that is kept for a topic, pending commits too."""
        for group_id, topics in self._committed.items():
            for partition, committed in topics.get(topic, {}).items():
                yield (group_id, topic, partition), committed
        for places in self._pending.values():
            for place, committed in places.items():
                if place[1] == topic:
                    yield place, committed

    # Changes.

    def replay_commit(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue,
        record_offset: int,
        producer_id: int = NO_PRODUCER_ID,
    ) -> None:
        place = (key.group, key.topic, key.partition)
        committed = CommittedOffset(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        if producer_id == NO_PRODUCER_ID:
            self._put(place, committed)
            return
        self._pending.setdefault(producer_id, {})[place] = committed
        opened = self._open.setdefault(key.group, {})
        opened.setdefault((key.topic, key.partition), set()).add(producer_id)

    def replay_tombstone(self, key: OffsetCommitKey) -> None:
        """Forget an offset, and the commits of open transactions that would bring it back."""
        place = (key.group, key.topic, key.partition)
        self._remove(place)
        for producer_id in self._open.get(key.group, {}).get((key.topic, key.partition), ()):
            self._pending.get(producer_id, {}).pop(place, None)
        self._close(place)

    def end_transaction(self, producer_id: int, *, is_committed: bool) -> None:
        for place, committed in self._pending.pop(producer_id, {}).items():
            self._close(place, producer_id)
            current = self.find(*place)
            if is_committed and (
                current is None or current.record_offset < committed.record_offset
            ):
                self._put(place, committed)

    def _put(self, place: Place, committed: CommittedOffset) -> None:
        group_id, topic, partition = place
        partitions = self._committed.setdefault(group_id, {}).setdefault(topic, {})
        self.count += partition not in partitions
        partitions[partition] = committed

    def _remove(self, place: Place) -> None:
        group_id, topic, partition = place
        topics = self._committed.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[topic]
        if not topics:
            del self._committed[group_id]

    def _close(self, place: Place, producer_id: int | None = None) -> None:
        """Take one producer's claim off a place, or everybody's."""
        group_id, topic, partition = place
        places = self._open.get(group_id)
        if places is None or (topic, partition) not in places:
            return
        producers = places[topic, partition]
        producers.discard(producer_id) if producer_id is not None else producers.clear()
        if not producers:
            del places[topic, partition]
        if not places:
            del self._open[group_id]

    def check_invariants(self) -> None:
        kept = [p for topics in self._committed.values() for p in topics.values()]
        assert all(kept), "an empty topic is kept"
        assert self.count == sum(map(len, kept))
        claims = {
            (group_id, topic, partition, producer_id)
            for group_id, places in self._open.items()
            for (topic, partition), producers in places.items()
            for producer_id in producers
        }
        pending = {
            (*place, producer_id) for producer_id, all_ in self._pending.items() for place in all_
        }
        assert claims == pending
