"""Committed offsets: the newest record wins, transactions wait, tombstones forget."""

from odradek.coordinator.group.offsets import OffsetStore
from odradek.protocol.generated.offset_records import OffsetCommitKey, OffsetCommitValue

PRODUCER, OTHER = 7, 8


def key(partition: int = 0, group: str = "g", topic: str = "t") -> OffsetCommitKey:
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


class Log:
    """A store, and the offsets that its records get."""

    def __init__(self) -> None:
        self.store = OffsetStore()
        self._end = 0

    def commit(self, offset: int, partition: int = 0, producer_id: int = -1) -> None:
        value = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
        self.store.replay_commit(key(partition), value, self._end, producer_id)
        self._end += 1
        self.store.check_invariants()

    def end(self, producer_id: int, *, commit: bool) -> None:
        self.store.end_transaction(producer_id, is_committed=commit)
        self._end += 1
        self.store.check_invariants()

    def offset(self, partition: int = 0) -> int | None:
        found = self.store.find("g", "t", partition)
        return None if found is None else found.offset


def test_the_last_commit_counts() -> None:
    log = Log()
    log.commit(5)
    log.commit(3)
    assert (log.offset(), log.store.count) == (3, 1)


def test_a_commit_in_a_transaction_waits_for_the_marker() -> None:
    log = Log()
    log.commit(5)
    log.commit(9, producer_id=PRODUCER)
    assert log.offset() == 5
    assert log.store.is_pending("g", "t", 0)
    assert list(log.store.pending_of("g")) == [("t", 0)]
    log.end(PRODUCER, commit=True)
    assert log.offset() == 9
    assert not log.store.has_pending("g")


def test_an_abort_leaves_the_offset_as_it_was() -> None:
    log = Log()
    log.commit(9, producer_id=PRODUCER)
    log.end(PRODUCER, commit=False)
    assert log.offset() is None
    assert log.store.count == 0


def test_a_partition_stays_unstable_until_every_transaction_is_over() -> None:
    log = Log()
    log.commit(1, producer_id=PRODUCER)
    log.commit(2, producer_id=OTHER)
    log.end(PRODUCER, commit=True)
    assert log.store.is_pending("g", "t", 0)
    log.end(OTHER, commit=False)
    assert not log.store.is_pending("g", "t", 0)
    assert log.offset() == 1


def test_a_commit_after_the_transactions_own_is_not_overtaken_by_its_marker() -> None:
    log = Log()
    log.commit(4, producer_id=PRODUCER)
    log.commit(6)
    log.end(PRODUCER, commit=True)
    assert log.offset() == 6


def test_a_tombstone_takes_pending_commits_with_it() -> None:
    log = Log()
    log.commit(1)
    log.commit(2, partition=1)
    log.commit(3, producer_id=PRODUCER)
    log.store.replay_tombstone(key())
    log.end(PRODUCER, commit=True)
    assert (log.offset(0), log.offset(1), log.store.count) == (None, 2, 1)


def test_places_of_a_topic_are_found_in_transactions_too() -> None:
    log = Log()
    log.commit(1)
    log.commit(2, partition=1, producer_id=PRODUCER)
    assert [place for place, _ in log.store.places_in("t")] == [("g", "t", 0), ("g", "t", 1)]
    assert list(log.store.places_in("other")) == []
