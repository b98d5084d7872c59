"""The cache of fetch sessions: who gets a slot, who loses one, and which epochs are taken."""

from random import Random

import pytest

from odradek.broker import fetch_sessions
from odradek.broker.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    CachedPartition,
    FetchSessions,
    IncrementalFetch,
    SessionlessFetch,
    next_epoch,
)
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)


class Cache:
    """Sessions by topic name, on a clock that stands still unless it is moved."""

    def __init__(self, slots_max: int = 2) -> None:
        self.now_ms = 0
        self.sessions = FetchSessions(slots_max, lambda: self.now_ms, Random(1))

    def create(self, partitions: int, *, replica_id: int = -1) -> int:
        """Return the id of a new session, 0 if there is no room."""
        request = fetch(0, 0, *range(partitions))
        request.replica_state = ReplicaState(replica_id=replica_id)
        return self.answer(request).session_id

    def answer(self, request: FetchRequest, *, by_id: bool = False) -> FetchResponse:
        scope = self.sessions.open(request, by_id=by_id)
        response = scope.respond([(each, data_of(each)) for each in scope.partitions])
        self.sessions.check_invariants()
        return response

    def has(self, session_id: int) -> bool:
        try:
            self.sessions.open(fetch(session_id, EPOCH_MAX), by_id=False)
        except ApiError as error:
            return error.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        raise AssertionError("no session is that old")


def fetch(
    session_id: int, epoch: int, *partitions: int, forget: tuple[int, ...] = ()
) -> FetchRequest:
    request = FetchRequest(session_id=session_id, session_epoch=epoch)
    if partitions:
        wanted = [FetchPartition(partition=number) for number in partitions]
        request.topics = [FetchTopic(topic="t", partitions=wanted)]
    if forget:
        request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=list(forget))]
    return request


def data_of(cached: CachedPartition, records: bytes = b"") -> PartitionData:
    return PartitionData(
        partition_index=cached.wanted.partition,
        high_watermark=0,
        log_start_offset=0,
        records=records,
    )


def numbers(scope: SessionlessFetch) -> list[int]:
    return [each.wanted.partition for each in scope.partitions]


def refusal(cache: Cache, request: FetchRequest, *, by_id: bool = False) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        cache.sessions.open(request, by_id=by_id)
    return caught.value.code


def test_a_session_remembers_what_was_wanted_and_forgets_what_it_is_told_to() -> None:
    cache = Cache()
    session_id = cache.create(3)
    assert session_id > 0
    assert numbers(cache.sessions.open(fetch(session_id, 1), by_id=False)) == [0, 1, 2]
    changed = cache.sessions.open(fetch(session_id, 2, 5, forget=(1, 9)), by_id=False)
    assert numbers(changed) == [0, 2, 5]
    assert (cache.sessions.sessions, cache.sessions.partitions) == (1, 3)


def test_each_epoch_is_taken_once() -> None:
    cache = Cache()
    session_id = cache.create(1)
    cache.answer(fetch(session_id, 1))
    for wrong in (1, 3, -2):
        assert refusal(cache, fetch(session_id, wrong)) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    cache.answer(fetch(session_id, 2))


def test_epochs_go_on_at_one_after_the_largest() -> None:
    assert next_epoch(0) == 1
    assert next_epoch(EPOCH_MAX - 1) == EPOCH_MAX
    assert next_epoch(EPOCH_MAX) == 1


def test_a_session_that_does_not_exist_is_not_found() -> None:
    cache = Cache()
    for session_id in (7, -7):
        code = refusal(cache, fetch(session_id, 1))
        assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_keeps_to_names_or_to_ids() -> None:
    cache = Cache()
    by_name = cache.create(1)
    code = refusal(cache, fetch(by_name, 1), by_id=True)
    assert code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id = cache.answer(fetch(0, 0, 0), by_id=True).session_id
    code = refusal(cache, fetch(by_id, 1))
    assert code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_with_ids_two_topics_without_a_name_are_two() -> None:
    cache = Cache()
    topics = [
        FetchTopic(topic_id=Uuid(bytes([n]) * 16), partitions=[FetchPartition()]) for n in (1, 2)
    ]
    request = FetchRequest(session_epoch=0, topics=topics)
    response = cache.answer(request, by_id=True)
    assert [topic.topic_id for topic in response.responses] == [t.topic_id for t in topics]
    assert cache.sessions.partitions == 2


def test_a_full_request_replaces_the_session_it_names_and_a_final_one_closes_it() -> None:
    cache = Cache()
    first = cache.create(2)
    second = cache.answer(fetch(first, 0, 0)).session_id
    assert second not in (0, first)
    assert not cache.has(first)
    assert cache.answer(fetch(second, -1, 0)).session_id == 0
    assert cache.sessions.sessions == cache.sessions.partitions == 0


def test_a_session_without_partitions_is_closed() -> None:
    cache = Cache()
    session_id = cache.create(2)
    response = cache.answer(fetch(session_id, 1, forget=(0, 1)))
    assert (response.session_id, response.responses) == (0, [])
    assert not cache.has(session_id)


def test_a_partition_with_records_goes_to_the_back() -> None:
    cache = Cache()
    session_id = cache.create(3)
    scope = cache.sessions.open(fetch(session_id, 1), by_id=False)
    first = scope.partitions[0]
    scope.respond([(first, data_of(first, b"records"))])
    assert numbers(cache.sessions.open(fetch(session_id, 2), by_id=False)) == [1, 2, 0]


def test_a_response_that_was_overtaken_is_an_error_and_changes_nothing() -> None:
    cache = Cache()
    session_id = cache.create(1)
    slow = cache.sessions.open(fetch(session_id, 1), by_id=False)
    cache.answer(fetch(session_id, 2))
    assert isinstance(slow, IncrementalFetch)
    response = slow.respond([(each, data_of(each)) for each in slow.partitions])
    assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert response.session_id == session_id
    assert response.responses == []


def test_what_the_client_was_told_is_no_news_until_it_changes_or_after_an_error() -> None:
    cached = CachedPartition(FetchTopic(), FetchPartition())
    assert cached.is_news(0, 0)
    cached.on_told(PartitionData(high_watermark=5, log_start_offset=1))
    assert not cached.is_news(5, 1)
    assert cached.is_news(6, 1)
    assert cached.is_news(5, 2)
    cached.on_told(PartitionData(error_code=3, high_watermark=5, log_start_offset=1))
    assert cached.is_news(5, 1)


def test_a_follower_that_asks_anew_hears_the_high_watermark_again() -> None:
    cache = Cache()
    session_id = cache.create(2, replica_id=7)
    request = fetch(session_id, 1, 1)
    request.replica_state = ReplicaState(replica_id=7)
    scope = cache.sessions.open(request, by_id=False)
    assert [each.is_news(0, 0) for each in scope.partitions] == [False, True]


def test_a_client_that_was_told_to_cut_its_log_hears_the_high_watermark_again() -> None:
    cache = Cache()
    scope = cache.sessions.open(fetch(cache.create(1), 1), by_id=False)
    (cached,) = scope.partitions
    data = data_of(cached)
    data.diverging_epoch = EpochEndOffset(epoch=1, end_offset=1)
    scope.respond([(cached, data)])
    assert cached.is_news(0, 0)


def test_without_room_there_is_no_session() -> None:
    cache = Cache(slots_max=1)
    first = cache.create(1)
    assert cache.create(5) == 0, "the other one is too young to be driven out"
    assert cache.has(first)
    assert Cache(slots_max=0).create(1) == 0


def test_a_stale_session_makes_room() -> None:
    cache = Cache()
    stale, used = cache.create(5), cache.create(5)
    cache.now_ms = EVICTION_MS
    cache.answer(fetch(used, 1))
    cache.now_ms = EVICTION_MS + 1
    assert cache.create(1) > 0
    assert (cache.has(stale), cache.has(used)) == (False, True)
    assert cache.sessions.evictions == 1


def test_a_larger_session_drives_out_the_smallest_that_is_old() -> None:
    cache = Cache()
    small, large = cache.create(2), cache.create(3)
    cache.now_ms = EVICTION_MS + 1
    cache.answer(fetch(small, 1))
    cache.answer(fetch(large, 1))
    assert cache.create(2) == 0, "as large is not larger"
    assert cache.create(3) > 0
    assert (cache.has(small), cache.has(large)) == (False, True)


def test_a_session_counts_as_large_as_it_has_become() -> None:
    cache = Cache(slots_max=1)
    grown = cache.create(1)
    cache.now_ms = EVICTION_MS + 1
    cache.answer(fetch(grown, 1, *range(10)))
    assert cache.create(5) == 0
    assert cache.create(11) > 0


def test_a_follower_drives_out_a_consumer_and_not_the_other_way_round() -> None:
    cache = Cache(slots_max=1)
    consumer = cache.create(10)
    follower = cache.create(1, replica_id=2)
    assert follower > 0
    assert not cache.has(consumer)
    assert cache.create(1, replica_id=3) == 0, "a follower that is young"
    cache.now_ms = EVICTION_MS + 1
    request = fetch(follower, 1)
    request.replica_state = ReplicaState(replica_id=2)
    cache.answer(request)
    assert cache.create(100) == 0, "a consumer never, not even a larger one"
    assert cache.create(2, replica_id=3) > 0


def test_a_session_is_not_gone_on_with_by_another_kind_of_client() -> None:
    cache = Cache()
    session_id = cache.create(1, replica_id=2)
    code = refusal(cache, fetch(session_id, 1))
    assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_all_sessions_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "PARTITIONS_MAX", 4)
    cache = Cache()
    first = cache.create(3)
    assert cache.create(2) == 0
    code = refusal(cache, fetch(first, 1, *range(5)))
    assert code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.sessions.partitions == 0, "the client starts over"
