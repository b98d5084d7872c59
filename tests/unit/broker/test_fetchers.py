"""What a follower asks of a leader that does everything a leader may, and what comes of it."""

import errno

import pytest

from odradek.broker import fetcher
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.replication.leadership import Registration
from odradek.storage.config import LogConfig
from tests.unit.broker.scripted_leader import (
    BROKER_EPOCH,
    FOLLOWER,
    LEADER,
    SESSION,
    TOPIC_ID,
    FollowingBroker,
    asked,
    data,
    ends,
    forgotten,
    offsets,
    records,
)

OTHER_ID = Uuid(b"another-topic-16")
BACKOFF = 1.0


# Sessions.


def test_a_first_request_names_everything_and_later_ones_what_has_changed() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(0, 1, 2, epoch=3)
        first = broker.fetch()
        assert offsets(first) == {0: 0, 1: 0, 2: 0}
        assert {each.current_leader_epoch for each in asked(first).values()} == {3}
        assert first.replica_state is not None
        assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (
            FOLLOWER,
            BROKER_EPOCH,
        )
        assert (first.session_id, first.session_epoch) == (0, 0)
        broker.answer(data(0, records(b"a", b"b", at=0, epoch=3)), data(1), data(2))
        second = broker.fetch()
        assert offsets(second) == {0: 2}
        assert asked(second)[0].last_fetched_epoch == 3
        assert (second.session_id, second.session_epoch) == (SESSION, 1)
        broker.answer()
        third = broker.fetch()
        assert (offsets(third), third.session_epoch) == ({}, 2)
        assert ends(partitions) == [2, 0, 0]


def test_news_without_records_are_no_reason_to_ask_otherwise() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        broker.answer(data(0, records(b"a", b"b", at=0), high_watermark=1))
        assert partition.log.high_watermark == 1
        broker.answer(data(0, high_watermark=2, log_start=1))
        assert (partition.log.high_watermark, partition.log.log_start_offset) == (2, 1)
        named = asked(broker.fetch())[0]
        assert (named.fetch_offset, named.log_start_offset) == (2, 1), "the leader must hear of it"
        broker.answer(data(0, high_watermark=2, log_start=1))
        assert offsets(broker.fetch()) == {}


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, SESSION),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, SESSION),
    ],
)
def test_a_session_that_is_lost_is_begun_again_at_once(code: ErrorCode, session_id: int) -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer(data(0, records(b"a", at=0)))
        broker.answer(session_id=0, error=code)
        again = broker.fetch()
        assert offsets(again) == {0: 1, 1: 0}
        assert (again.session_id, again.session_epoch) == (session_id, 0), "closes what is left"


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.UNKNOWN_SERVER_ERROR, 9999]
)
def test_a_leader_that_refuses_a_full_request_is_not_asked_again_at_once(code: int) -> None:
    with FollowingBroker() as broker:
        broker.follow(0)
        broker.answer(error=code)
        broker.world.run_for(BACKOFF - 0.01)
        assert broker.sent == []
        broker.world.run_for(0.02)
        assert offsets(broker.fetch()) == {0: 0}


def test_without_room_for_a_session_every_request_names_everything() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer(data(0, records(b"a", at=0)), data(1), session_id=0)
        again = broker.fetch()
        assert (offsets(again), again.session_epoch) == ({0: 1, 1: 0}, 0)
        broker.answer(data(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), session_id=0)
        assert offsets(broker.fetch()) == {0: 1}, "one that waits is not asked"


def test_a_leader_may_close_a_session_with_an_answer() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer()
        broker.answer(data(0, records(b"a", at=0)), session_id=0)
        again = broker.fetch()
        assert (offsets(again), again.session_id, again.session_epoch) == ({0: 1, 1: 0}, 0, 0)


def test_the_epoch_of_a_session_goes_round() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        broker.answer()
        session = broker.fetchers._where[partition.key].session
        session.epoch = 2**31 - 1
        broker.answer()
        assert broker.fetch().session_epoch == 1
        session.check_invariants()


# The lane.


def test_a_leader_that_cannot_be_reached_is_asked_again_after_the_back_off() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer(data(0, records(b"a", at=0)))
        broker.lose()
        broker.world.run_for(BACKOFF - 0.01)
        assert broker.sent == []
        broker.world.run_for(0.02)
        again = broker.fetch()
        assert (offsets(again), again.session_id, again.session_epoch) == ({0: 1, 1: 0}, SESSION, 0)


def test_new_metadata_cuts_a_back_off_short() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.lose()
        broker.follow(1, epoch=1)
        assert offsets(broker.fetch()) == {1: 0}
        broker.answer()
        broker.world.run_for(BACKOFF)
        broker.answer()
        assert offsets(broker.fetch()) == {0: 0}


def test_metadata_that_says_nothing_new_leaves_a_back_off_as_it_is() -> None:
    with FollowingBroker() as broker:
        broker.follow(0)
        broker.lose()
        broker.follow(0)
        assert broker.sent == []
        broker.world.run_for(BACKOFF)
        assert offsets(broker.fetch()) == {0: 0}


def test_a_leader_that_is_back_is_asked_at_once() -> None:
    with FollowingBroker() as broker:
        broker.follow(0)
        broker.lose()
        broker.do(lambda: broker.fetchers.on_brokers_changed(frozenset({LEADER + 1})))
        changes = [lane.address_changes for lane in broker.lanes]
        broker.do(lambda: broker.fetchers.on_brokers_changed(frozenset({LEADER})))
        changes += [lane.address_changes for lane in broker.lanes]
        assert changes == [0, 1]
        assert offsets(broker.fetch()) == {0: 0}


def test_what_is_lost_because_the_address_changed_is_asked_again_at_once() -> None:
    with FollowingBroker() as broker:
        broker.follow(0)
        broker.do(lambda: broker.fetchers.on_brokers_changed(frozenset({LEADER})))
        broker.lose()
        assert offsets(broker.fetch()) == {0: 0}
        broker.lose()
        assert broker.sent == [], "only once"


def test_a_partition_that_was_refused_waits_although_its_leader_changed_its_address() -> None:
    with FollowingBroker() as broker:
        broker.follow(0)
        broker.answer(data(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER))
        broker.do(lambda: broker.fetchers.on_brokers_changed(frozenset({LEADER})))
        assert broker.sent == []


def test_the_lane_of_a_fetcher_without_partitions_is_closed() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.remove(0)
        closed = [lane.is_closed for lane in broker.lanes]
        broker.follow(1, leader=-1, epoch=1)
        closed += [lane.is_closed for lane in broker.lanes]
        assert closed == [False, True]
        broker.answer(data(0, records(b"a", at=0)))
        assert broker.sent == []
        broker.follow(0, epoch=1)
        assert len(broker.lanes) == 2


def test_partitions_are_spread_over_the_fetchers_of_a_leader() -> None:
    with FollowingBroker(num_replica_fetchers=2) as broker:
        broker.follow(*range(8))
        assert len(broker.lanes) == 2
        named = [set(offsets(lane.sent[0].request)) for lane in broker.lanes]  # type: ignore[arg-type]
        assert sorted(map(len, named)) == [4, 4]
        assert named[0] | named[1] == set(range(8))


# Answers that come too late.


def test_an_answer_from_before_a_partition_went_and_came_back_is_void() -> None:
    with FollowingBroker() as broker:
        (partition, _) = broker.follow(0, 1)
        broker.remove(0)
        broker.follow(0)
        broker.answer(data(0, records(b"a", at=0)))
        assert ends([partition]) == [0]
        again = broker.fetch()
        assert (offsets(again), forgotten(again)) == ({0: 0}, [])


def test_what_is_followed_no_more_is_taken_back() -> None:
    with FollowingBroker() as broker:
        (partition, _) = broker.follow(0, 1)
        broker.answer()
        broker.remove(0)
        broker.answer(data(0, records(b"a", at=0)))
        assert ends([partition]) == [0]
        assert (forgotten(broker.fetch()), offsets(broker.fetch())) == ([0], {})


def test_a_replica_that_leads_by_now_takes_nothing() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        replicas = (FOLLOWER, LEADER)
        registration = Registration(1, partition_epoch=1, replicas=replicas, isr=replicas)
        broker.do(lambda: partition.lead(registration))
        broker.answer(data(0, records(b"a", at=0)))
        assert (ends([partition]), broker.errors) == ([0], [])


def test_an_answer_for_an_earlier_leader_epoch_is_void() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0, epoch=1)
        broker.follow(0, epoch=2)
        broker.answer(data(0, records(b"a", at=0, epoch=1)))
        assert ends([partition]) == [0]
        assert asked(broker.fetch())[0].current_leader_epoch == 2


@pytest.mark.parametrize("is_removed_before", [True, False])
def test_a_topic_that_is_made_again_under_its_name_is_another(*, is_removed_before: bool) -> None:
    with FollowingBroker() as broker:
        (old, _) = broker.follow(0, 1)
        broker.answer()
        if is_removed_before:
            broker.remove(0)
        broker.do(lambda: broker.replicas.remove(TopicPartition("t", 0)))
        (new,) = broker.follow(0, topic_id=OTHER_ID)
        broker.answer(data(0, records(b"a", at=0)))
        assert ends([old, new]) == [0, 0]
        again = broker.fetch()
        assert [topic.topic_id for topic in again.topics] == [OTHER_ID]
        assert [topic.topic_id for topic in again.forgotten_topics_data] == [TOPIC_ID]


def test_metadata_may_come_between_two_slices_of_one_answer() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(*range(4))
        broker.node.clock.step_us = 6_000  # one partition in each slice
        turn = iter(range(100))

        def between() -> None:
            match next(turn):
                case 0:
                    broker.fetchers.remove(TopicPartition("t", 1))
                case 1:
                    partitions[2].follow(LEADER, 9)
                    broker.fetchers.follow(partitions[2])
                case 4:
                    return
            broker.node.loop.call_soon(between)

        broker.node.loop.call_soon(between)
        broker.answer(*(data(number, records(b"a", at=0)) for number in range(4)))
        assert ends(partitions) == [1, 0, 0, 1]
        assert offsets(broker.fetch()) == {0: 1, 2: 0, 3: 1}


def test_a_broker_that_stops_takes_nothing_more_of_an_answer() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(*range(4))
        broker.node.clock.step_us = 6_000
        loop = broker.node.loop
        loop.call_soon(lambda: loop.call_soon(broker.fetchers.close))  # after the first slice
        broker.answer(*(data(number, records(b"a", at=0)) for number in range(4)))
        assert ends(partitions) == [1, 0, 0, 0]
        assert broker.sent == []


# Errors of partitions.


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CORRUPT_MESSAGE,
        9999,
    ],
)
def test_a_partition_that_is_refused_waits_and_the_others_go_on(code: int) -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(0, 1)
        broker.answer(data(0, error=code), data(1, records(b"a", at=0)))
        second = broker.fetch()
        assert (offsets(second), forgotten(second)) == ({1: 1}, [0])
        broker.world.run_for(BACKOFF)
        broker.answer()
        assert offsets(broker.fetch()) == {0: 0}
        broker.answer(data(0, records(b"b", at=0)))
        assert ends(partitions) == [1, 1]


def test_a_partition_whose_leader_is_in_a_later_epoch_waits_for_metadata() -> None:
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer(data(0, error=ErrorCode.FENCED_LEADER_EPOCH), data(1, records(b"a", at=0)))
        assert (offsets(second := broker.fetch()), forgotten(second)) == ({1: 1}, [0])
        broker.world.run_for(10 * BACKOFF)
        broker.answer()
        assert offsets(broker.fetch()) == {}


def test_a_partition_that_waits_for_metadata_is_not_looked_at_when_a_back_off_is_over() -> None:
    """Seed 2384 of the storms with data: a fetcher with nothing else to ask took a whole core."""
    with FollowingBroker() as broker:
        broker.follow(0, 1)
        broker.answer(data(0, error=ErrorCode.FENCED_LEADER_EPOCH), data(1, records(b"a", at=0)))
        broker.lose()
        broker.remove(1)
        broker.world.run_for(10 * BACKOFF)
        assert broker.sent == []
        broker.follow(0, epoch=1)
        assert offsets(broker.fetch()) == {0: 0}


def test_damaged_records_are_asked_for_again() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(0, 1)
        damaged = bytearray(records(b"a", at=0))
        damaged[-1] ^= 1
        broker.answer(data(0, bytes(damaged), high_watermark=1), data(1, records(b"a", at=0)))
        assert ends(partitions) == [0, 1]
        broker.world.run_for(BACKOFF)
        broker.answer()
        assert offsets(broker.fetch()) == {0: 0}


def test_records_of_an_epoch_that_is_not_known_yet_are_left_out() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0, epoch=1)
        both = records(b"a", at=0, epoch=1) + records(b"b", at=1, epoch=2)
        broker.answer(data(0, both))
        assert ends([partition]) == [1]
        assert offsets(broker.fetch()) == {0: 1}


def test_a_disk_that_fails_stops_its_partition_only() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(0, 1)
        broker.store.directory_of(partitions[0].key)
        fail_appends(broker, partitions[0].key, errno.EIO)
        broker.answer(data(0, records(b"a", at=0)))
        assert forgotten(broker.fetch()) == [0]
        assert broker.looks_at_directories == 1
        broker.world.run_for(10 * BACKOFF)
        broker.answer()
        assert offsets(broker.fetch()) == {}, "it is asked for no more"


def test_a_full_disk_makes_a_partition_wait() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        restore = fail_appends(broker, partition.key, errno.ENOSPC)
        broker.answer(data(0, records(b"a", at=0)))
        assert broker.sent == []
        restore()
        broker.store.directory_of(partition.key).shortage = None
        broker.world.run_for(BACKOFF)
        broker.answer(data(0, records(b"a", at=0)))
        assert ends([partition]) == [1]


def test_our_own_bug_stops_one_partition_loudly_until_it_gets_another_leader() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(0, 1)
        real = partitions[0].log.append_as_follower

        def fail(*_: object, **__: object) -> None:
            raise AssertionError("planted")

        partitions[0].log.append_as_follower = fail  # type: ignore[method-assign]
        broker.answer(data(0, records(b"a", at=0)), data(1, records(b"a", at=0)))
        assert ends(partitions) == [0, 1]
        assert broker.errors == ["t-0 is not replicated any more, after an error in this broker"]
        assert forgotten(broker.fetch()) == [0]
        partitions[0].log.append_as_follower = real  # type: ignore[method-assign]
        broker.follow(0, epoch=1)
        broker.answer()
        assert offsets(broker.fetch()) == {0: 0}


def fail_appends(broker: FollowingBroker, key: TopicPartition, number: int):  # type: ignore[no-untyped-def]
    """Let the disk refuse what is appended to a log, until what is returned is called."""
    log = broker.store.get(key)
    assert log is not None
    real = log.append_as_follower

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "planted")

    log.append_as_follower = fail  # type: ignore[method-assign]

    def restore() -> None:
        log.append_as_follower = real  # type: ignore[method-assign]

    return restore


# Truncation.


def test_a_log_that_diverges_is_cut_and_nothing_is_appended() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0, epoch=1)
        both = records(b"a", b"b", at=0, epoch=0) + records(b"c", at=2, epoch=1)
        broker.answer(data(0, both, high_watermark=1))
        broker.follow(0, epoch=2)
        broker.answer()
        answer = data(0, records(b"x", at=3, epoch=2), high_watermark=9, diverging=(0, 1))
        broker.answer(answer)
        assert (ends([partition]), partition.log.high_watermark) == ([0], 0), "the batch goes whole"
        assert offsets(broker.fetch()) == {0: 0}


@pytest.mark.parametrize("diverging", [(-1, 5), (0, -1)])
def test_a_leader_without_epochs_has_a_log_cut_at_its_high_watermark(
    diverging: tuple[int, int],
) -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        both = records(b"a", at=0) + records(b"b", at=1)
        broker.answer(data(0, both, high_watermark=1))
        broker.answer(data(0, diverging=diverging))
        assert ends([partition]) == [1]


def with_two_records(broker: FollowingBroker) -> None:
    broker.answer(data(0, records(b"a", at=0) + records(b"b", at=1), high_watermark=2))
    broker.answer(data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))


def test_a_log_beyond_the_leaders_end_is_cut_there() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0, epoch=4)
        with_two_records(broker)
        first, second = broker.offsets_asked()
        named = [each for topic in first.topics for each in topic.partitions]
        assert [(each.partition_index, each.current_leader_epoch) for each in named] == [(0, 4)]
        assert {first.replica_id, second.replica_id} == {FOLLOWER}
        assert len(broker.sent) == 2, "the partition waits for the answers"
        broker.answer_offset(0)
        broker.answer_offset(1)
        assert ends([partition]) == [1]
        assert offsets(broker.fetch()) == {0: 1}


def test_a_log_before_the_leaders_start_begins_again_there() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        with_two_records(broker)
        broker.answer_offset(105)
        broker.answer_offset(200)
        log = partition.log
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (105, 105, 105)
        assert offsets(broker.fetch()) == {0: 105}
        batch = records(*[b"v"] * 10, at=100)
        broker.answer(data(0, batch, high_watermark=110, log_start=105))
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (105, 110, 110)
        assert log.segments[0].base_offset == 100, (
            "the batch that holds the leader's start is whole"
        )
        log.check_invariants()


def test_a_batch_that_begins_too_early_is_damage_in_a_log_with_records() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        broker.answer(data(0, records(b"a", b"b", at=0)))
        broker.answer(data(0, records(b"x", b"y", b"z", at=0)))
        assert (ends([partition]), broker.sent) == ([2], [])


def test_a_log_that_is_in_range_again_keeps_its_back_off() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        with_two_records(broker)
        broker.answer_offset(0)
        broker.answer_offset(7)
        assert (ends([partition]), broker.sent) == ([2], [])
        broker.world.run_for(BACKOFF)
        assert offsets(broker.fetch()) == {0: 2}


def test_offsets_that_the_leader_cannot_tell_are_asked_for_later() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        with_two_records(broker)
        broker.answer_offset(0)
        broker.answer_offset(-1, ErrorCode.FENCED_LEADER_EPOCH)
        assert broker.sent == []
        broker.world.run_for(BACKOFF)
        broker.answer(data(0, error=ErrorCode.OFFSET_OUT_OF_RANGE))
        broker.lose()
        assert broker.sent == []
        broker.world.run_for(BACKOFF)
        assert offsets(broker.fetch()) == {0: 2}
        assert ends([partition]) == [2]


def test_offsets_of_an_earlier_leader_are_void() -> None:
    with FollowingBroker() as broker:
        (partition,) = broker.follow(0)
        with_two_records(broker)
        broker.follow(0, epoch=1)
        broker.answer_offset(50)
        broker.answer_offset(60)
        assert ends([partition]) == [2]
        assert asked(broker.fetch())[0].current_leader_epoch == 1


def test_many_partitions_out_of_range_take_two_questions() -> None:
    with FollowingBroker() as broker:
        partitions = broker.follow(*range(5))
        error = ErrorCode.OFFSET_OUT_OF_RANGE
        broker.answer(*(data(number, error=error) for number in range(5)))
        assert len(broker.sent) == 2
        broker.answer_offset(5)
        broker.answer_offset(9)
        assert ends(partitions) == [5] * 5
        assert offsets(broker.fetch()) == dict.fromkeys(range(5), 5)


# Syncs.

SYNCED = LogConfig(segment_bytes=1 << 20, segment_index_bytes=4096, flush_messages=1)


def test_what_must_be_synced_is_synced_before_it_is_acknowledged() -> None:
    with FollowingBroker(SYNCED) as broker:
        partitions = broker.follow(0, 1)
        broker.answer(data(0, records(b"a", at=0)))
        assert broker.sent == [], "the offset of a fetch is an acknowledgement"
        broker.world.run_for(5)
        assert broker.sent == []
        assert broker.finish_flush() == [partitions[0].key]
        assert offsets(broker.fetch()) == {0: 1}
        broker.answer(data(0, high_watermark=1))
        assert broker.flushes == []


def test_what_must_be_synced_is_so_also_if_the_leader_changed_meanwhile() -> None:
    with FollowingBroker(SYNCED) as broker:
        broker.follow(0)
        broker.answer(data(0, records(b"a", at=0)))
        broker.follow(0, leader=LEADER + 1, epoch=1)
        assert broker.sent == []
        assert len(broker.flushes) == 2
        broker.finish_flush()
        broker.finish_flush()
        assert offsets(broker.fetch()) == {0: 1}


def test_a_sync_that_fails_stops_its_partition_only() -> None:
    with FollowingBroker(SYNCED) as broker:
        partitions = broker.follow(0, 1)
        broker.answer(data(0, records(b"a", at=0)), data(1, records(b"a", at=0)))
        broker.finish_flush(partitions[0].key)
        assert broker.finish_flush() == [partitions[0].key], "still due, but"
        second = broker.fetch()
        assert (offsets(second), forgotten(second)) == ({1: 1}, [0])


def test_many_partitions_are_asked_for_some_at_a_time_and_no_request_waits_before_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "CHANGES_PER_REQUEST_MAX", 2)
    with FollowingBroker() as broker:
        broker.follow(0, 1, 2, 3, 4)
        named, waits = [], []
        for _ in range(3):
            request = broker.fetch()
            named.append(sorted(offsets(request)))
            waits.append(request.max_wait_ms > 0)
            broker.answer()
        assert named == [[0, 1], [2, 3], [4]]
        assert waits == [False, False, True]
        broker.lose()
        broker.world.run_for(BACKOFF + 0.1)
        again = broker.fetch()
        assert (sorted(offsets(again)), again.session_epoch) == ([0, 1], 0)
        broker.answer()
        assert sorted(offsets(broker.fetch())) == [2, 3]


def test_partitions_of_a_session_that_is_lost_are_asked_for_some_at_a_time_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetcher, "CHANGES_PER_REQUEST_MAX", 2)
    with FollowingBroker() as broker:
        broker.follow(0, 1, 2)
        broker.answer()
        broker.answer()
        broker.answer(session_id=0, error=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        again = broker.fetch()
        assert (sorted(offsets(again)), again.session_epoch) == ([0, 1], 0)
        broker.answer()
        assert sorted(offsets(broker.fetch())) == [2]
