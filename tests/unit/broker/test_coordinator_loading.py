"""Coordinators and leadership: loaded from the log in short turns, dropped at once."""

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.broker.coordinator_turn import append_records
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.end_txn import EndTxnResponse
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.offset_commit import OffsetCommitResponse
from odradek.protocol.generated.offset_fetch import OffsetFetchResponse
from odradek.protocol.generated.offset_records import OffsetCommitKey, OffsetCommitValue
from odradek.records import BatchBuilder
from odradek.storage.producer_state import AppendOrigin
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import GROUP_KEY, T0, TransactionalProducer, find_coordinator
from tests.unit.broker.held_commits import (
    ELSEWHERE,
    GROUP_TOPIC,
    NO_LEADER,
    TRANSACTION_TOPIC,
    Leadership,
    assert_held,
    partition_of,
    wait_until,
)
from tests.unit.broker.test_held_commits_groups import (
    COMMIT_VERSION,
    NOT_AVAILABLE,
    NOT_COORDINATOR,
    WRITES,
    Site,
    commit,
    commit_code,
    fetch_offset,
)
from tests.unit.broker.test_held_commits_transactions import read_committed
from tests.unit.broker.test_node_turns import Turns, check
from tests.unit.broker.transaction_broker import state_of

AT = TopicPartition(GROUP_TOPIC, 0)
RECORDS = 20_000
BATCH = 1_000
PARTITIONS = 20


@pytest.fixture
def broker() -> Iterator[Broker]:
    config = {"group.initial.rebalance.delay.ms": "0"}
    with Broker(topics={"t": 2}, memory=True, config=config) as started:
        yield started


@pytest.fixture
def connection(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        find_coordinator(opened, "simple", GROUP_KEY)
        yield opened


@pytest.fixture
def other(broker: Broker) -> Iterator[BrokerConnection]:
    with BrokerConnection(broker.port) as opened:
        yield opened


def fill(server: BrokerServer, at: TopicPartition, records: int) -> None:
    """Write commits of many groups into a partition, as an earlier leader would have."""
    partition = partition_of(server, at)
    for start in range(0, records, BATCH):
        builder = BatchBuilder()
        written = [commit_of(number) for number in range(start, start + BATCH)]
        append_records(builder, written, server.clock.now_ms())
        partition.append(builder.build(), server.clock.now_ms(), origin=AppendOrigin.COORDINATOR)


def commit_of(number: int) -> CoordinatorRecord:
    key = OffsetCommitKey(group=f"group-{number % 5_000}", topic="t", partition=0)
    return CoordinatorRecord(key, OffsetCommitValue(offset=number), 3)


def offset_in(response: OffsetFetchResponse) -> int:
    (group,) = response.groups
    assert not group.error_code, ErrorCode(group.error_code)
    return group.topics[0].partitions[0].committed_offset


# Loading.


def test_requests_are_refused_while_a_shard_is_loaded(
    broker: Broker, connection: BrokerConnection
) -> None:
    server, groups = broker.node.broker, broker.node.broker.groups
    codes: list[int] = []

    def reload() -> None:
        fill(server, AT, RECORDS)
        groups.on_resigned(0)
        groups.on_elected(0, partition_of(server, AT).leader_epoch)
        groups.ask("simple", lambda _shard, _now: ((), None), lambda _: None, codes.append)

    broker._call(reload)
    assert codes == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    wait_until(lambda: all(led.is_loaded for led in groups._led.values()), "it should be loaded")
    (shard,) = groups.loaded_shards()
    assert shard.offsets.count == 5_000
    assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))


def test_a_load_ends_when_leadership_is_lost_in_the_middle(
    broker: Broker, connection: BrokerConnection
) -> None:
    server, groups = broker.node.broker, broker.node.broker.groups
    loading: list[Any] = []

    def begin() -> None:
        fill(server, AT, RECORDS)
        groups.on_resigned(0)
        groups.on_elected(0, partition_of(server, AT).leader_epoch)
        loading.extend(groups._led.values())
        groups.on_resigned(0)

    broker._call(begin)
    (led,) = loading
    before = led.loaded_offset
    assert before < partition_of(server, AT).log.log_end_offset
    leadership = Leadership(broker)
    leadership.take(GROUP_TOPIC)
    leadership.give_back(GROUP_TOPIC)
    wait_until(lambda: any(each.is_loaded for each in groups._led.values()), "it should be loaded")
    assert led.loaded_offset == before
    assert not led.is_loaded
    assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))


def test_a_log_that_cannot_be_loaded_does_not_keep_others_from_it(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no coordinator then; a broker that knew half of what it promised would be worse."""
    groups, leadership = broker.node.broker.groups, Leadership(broker)
    assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))

    def fail(_key: bytes, _value: bytes | None) -> None:
        raise ValueError("planted")

    leadership.take(GROUP_TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr(groups._loading, "_decode", fail)
        leadership.give_back(GROUP_TOPIC)
    answer = connection.ask(commit(2), OffsetCommitResponse, COMMIT_VERSION)
    assert commit_code(answer) == NOT_COORDINATOR
    leadership.take(GROUP_TOPIC)
    leadership.give_back(GROUP_TOPIC)
    assert not commit_code(connection.ask(commit(2), OffsetCommitResponse, COMMIT_VERSION))


@pytest.mark.slow
def test_a_broker_takes_over_many_partitions_in_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = Turns()

    async def story() -> None:
        config = {"offsets.topic.num.partitions": str(PARTITIONS)}
        async with Broker(own_thread=False, memory=True, config=config) as broker:
            server = broker.node.broker
            server.internal_topics.ensure(GROUP_TOPIC, lambda _code, _why: None)
            while GROUP_TOPIC not in server.image.topics:
                await asyncio.sleep(0)
            for number in range(PARTITIONS):
                fill(server, TopicPartition(GROUP_TOPIC, number), 4 * BATCH)
                server.groups.on_resigned(number)
            await asyncio.sleep(0)
            turns.reset()
            asyncio.get_running_loop().call_soon(partial(elect_all, server))
            while len(list(server.groups.loaded_shards())) < PARTITIONS:
                await asyncio.sleep(0)
            assert turns.count > PARTITIONS
            check(turns, f"{PARTITIONS} partitions")

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with turns.measured(monkeypatch):
            asyncio.run(story())
    finally:
        if was_enabled:
            gc.enable()


def elect_all(server: BrokerServer) -> None:
    for number in range(PARTITIONS):
        partition = partition_of(server, TopicPartition(GROUP_TOPIC, number))
        server.groups.on_elected(number, partition.leader_epoch)


def test_sessions_begin_again_when_a_shard_is_loaded(
    broker: Broker, connection: BrokerConnection
) -> None:
    """A group was without a coordinator for nearly as long as its sessions: all still belong."""
    site = Site(broker, connection)
    sync = WRITES["SyncGroup"]
    assert not sync.code_of(connection.ask(site.sync(), sync.response, sync.version))
    (led,) = broker.node.broker.groups._led.values()
    group = led.shard.groups["consumer"]
    assert isinstance(group, ConsumerGroup)
    (member,) = broker._call(lambda: list(group.state.members.values()))
    leadership = Leadership(broker)
    broker.clock.advance(40)  # of 45 s, and of 60 s
    leadership.take(GROUP_TOPIC)
    broker.clock.advance(40)
    leadership.give_back(GROUP_TOPIC)
    broker.clock.advance(40)
    beat = HeartbeatRequest(
        group_id="classic", generation_id=site.generation, member_id=site.member_id
    )
    assert connection.ask(beat, HeartbeatResponse, 4).error_code == ErrorCode.NONE
    consumer_beat = ConsumerGroupHeartbeatRequest(
        group_id="consumer", member_id=member.member_id, member_epoch=member.member_epoch
    )
    answer = connection.ask(consumer_beat, ConsumerGroupHeartbeatResponse, 0)
    assert answer.error_code == ErrorCode.NONE
    leadership.take(GROUP_TOPIC)
    leadership.give_back(GROUP_TOPIC)
    broker.clock.advance(61)
    assert connection.ask(beat, HeartbeatResponse, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    answer = connection.ask(consumer_beat, ConsumerGroupHeartbeatResponse, 0)
    assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID


# What is above the high watermark at the election.


def test_a_decision_that_is_committed_after_the_election_has_its_effects(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    """No request wakes the new coordinator: the watermark alone brings the markers."""
    producer = TransactionalProducer(connection).begin()
    assert producer.produce(b"first") is ErrorCode.NONE
    leadership = Leadership(broker)
    with broker.hold_commits(TRANSACTION_TOPIC):
        connection.send(producer.end_request(commit=True), 5)
        assert_held(broker, connection, count=1)
        leadership.take(TRANSACTION_TOPIC)
        assert connection.receive(EndTxnResponse, 5).error_code == NOT_COORDINATOR
        leadership.give_back(TRANSACTION_TOPIC)
        assert read_committed(other) == []
    log = partition_of(broker.node.broker, T0).log
    wait_until(lambda: log.last_stable_offset == 2, "the marker should be written")
    assert read_committed(other) == [b"first"]
    assert state_of(other) == "CompleteCommit"


# Epochs.


def test_a_shard_does_not_outlive_its_epoch(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    """Another leader comes and goes in one update: what waits is refused, and loaded again."""
    leadership, groups = Leadership(broker), broker.node.broker.groups
    assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))
    (before,) = broker._call(lambda: list(groups._led.values()))
    with broker.hold_commits(GROUP_TOPIC):
        connection.send(commit(2), COMMIT_VERSION)
        assert_held(broker, connection, count=1)
        leadership.pass_by(GROUP_TOPIC)
        answer = connection.receive(OffsetCommitResponse, COMMIT_VERSION)
        assert commit_code(answer) == NOT_COORDINATOR
        other.send(fetch_offset(), 9)
        assert_held(broker, other, count=1)
    assert offset_in(other.receive(OffsetFetchResponse, 9)) == 2  # its record stayed in the log
    (after,) = broker._call(lambda: list(groups._led.values()))
    assert after is not before
    assert after.leader_epoch == partition_of(broker.node.broker, AT).leader_epoch
    assert after.leader_epoch > before.leader_epoch


def test_a_new_epoch_commits_nothing_to_the_shard_of_the_old_one(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Leading in a new epoch may move the watermark: the old shard must be gone by then."""
    groups = broker.node.broker.groups
    assert not commit_code(connection.ask(commit(1), OffsetCommitResponse, COMMIT_VERSION))
    partition = partition_of(broker.node.broker, AT)
    watched: list[Any] = []
    lead = type(partition).lead

    def led(self: Any, registration: Any) -> None:
        if self is partition and registration.leader_epoch > partition.leader_epoch:
            watched.append((dict(groups._led), partition.on_advanced))
        lead(self, registration)

    monkeypatch.setattr(type(partition), "lead", led)
    with broker.hold_commits(GROUP_TOPIC):
        connection.send(commit(2), COMMIT_VERSION)
        assert_held(broker, connection, count=1)
        Leadership(broker).pass_by(GROUP_TOPIC)
    assert watched == [({}, None)]


def test_a_change_of_the_isr_keeps_the_shard(broker: Broker, connection: BrokerConnection) -> None:
    groups, leadership = broker.node.broker.groups, Leadership(broker)
    (before,) = broker._call(lambda: list(groups._led.values()))
    leadership.share(GROUP_TOPIC, [1, 2, 3], [1, 2])
    leadership.share(GROUP_TOPIC, [1, 2, 3], [1])
    assert not commit_code(connection.ask(commit(2), OffsetCommitResponse, COMMIT_VERSION))
    assert broker._call(lambda: list(groups._led.values())) == [before]


# Deletion.


def test_a_coordinator_is_gone_with_its_topic(
    broker: Broker, connection: BrokerConnection, other: BrokerConnection
) -> None:
    hold = broker.hold_commits(GROUP_TOPIC)
    connection.send(commit(2), COMMIT_VERSION)
    assert_held(broker, connection, count=1)
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=GROUP_TOPIC)], timeout_ms=60_000)
    (deleted,) = other.ask(request, DeleteTopicsResponse).responses
    assert deleted.error_code == ErrorCode.NONE
    answer = connection.receive(OffsetCommitResponse, COMMIT_VERSION)
    assert commit_code(answer) == NOT_COORDINATOR
    hold.clear()
    answer = connection.ask(commit(2), OffsetCommitResponse, COMMIT_VERSION)
    assert commit_code(answer) == NOT_AVAILABLE
    assert not broker.node.broker.groups._led
    find_coordinator(connection, "simple", GROUP_KEY)  # which makes the topic again, empty
    assert offset_in(connection.ask(fetch_offset(), OffsetFetchResponse, 9)) == -1


# Who it is.


@pytest.mark.parametrize("leader", [NO_LEADER, ELSEWHERE])
def test_a_coordinator_that_nobody_could_reach_is_not_named(
    broker: Broker, connection: BrokerConnection, monkeypatch: pytest.MonkeyPatch, leader: int
) -> None:
    """Its partition has no leader, or one of which this broker does not know where it is."""
    leadership = Leadership(broker)
    leadership.give(GROUP_TOPIC, leader)
    image = leadership.image
    request = FindCoordinatorRequest(coordinator_keys=["simple"])
    with monkeypatch.context() as patch:
        patch.setattr(BrokerServer, "image", property(lambda _: image))
        (found,) = connection.ask(request, FindCoordinatorResponse).coordinators
    assert found.error_code == NOT_AVAILABLE
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    (found,) = connection.ask(request, FindCoordinatorResponse).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.NONE, 1)
