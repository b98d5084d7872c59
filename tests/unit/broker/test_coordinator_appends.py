"""What coordinators append: batches of a turn, and what a refused append leaves behind.

The partition has three replicas, but only this node's log is real: tests say what others fetched.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.protocol.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse
from odradek.protocol.generated.offset_commit import OffsetCommitResponse
from odradek.protocol.generated.offset_fetch import OffsetFetchResponse
from odradek.protocol.message import Message
from odradek.storage.scan import iter_batches
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.unit.broker.held_commits import (
    GROUP_TOPIC,
    Leadership,
    assert_held,
    partition_of,
    wait_until,
)
from tests.unit.broker.test_held_commits_groups import (
    COMMIT_TIMEOUT_MS,
    COMMIT_VERSION,
    HEARTBEAT,
    JOIN,
    JOIN_VERSION,
    NOT_AVAILABLE,
    WRITES,
    Asked,
    Site,
    commit,
    commit_code,
    fetch_offset,
)

AT = TopicPartition(GROUP_TOPIC, 0)
OTHERS = [2, 3]


class Replicated:
    """The partition of groups with followers that fetch when a test says so."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.leadership = Leadership(broker)
        self.share([1, *OTHERS])

    def share(self, isr: list[int]) -> None:
        self.leadership.share(GROUP_TOPIC, [1, *OTHERS], isr)

    def fetch(self) -> None:
        """Have the followers fetch all that there is: it is committed then."""

        def fetch_all() -> None:
            partition = partition_of(self.broker.node.broker, AT)
            for node_id in OTHERS:
                partition.on_follower_fetch(node_id, partition.log.log_end_offset, 0, -1)

        self.broker._call(fetch_all)

    def batches(self) -> list[int]:
        """Return how many records each batch has."""

        def read() -> list[int]:
            log = partition_of(self.broker.node.broker, AT).log
            return [
                each.records_count for each in iter_batches(log.read(0, bytes_max=1 << 20).records)
            ]

        return self.broker._call(read)

    def in_one_turn(self, sending: Callable[[], None]) -> None:
        """Send from the loop's own thread: all of it comes in at the loop's next turn."""
        self.broker._call(sending)

    def state(self) -> Any:
        """Return what the shard knows, as clients may see it."""

        def look() -> Any:
            (led,) = self.broker.node.broker.groups._led.values()
            led.shard.check_invariants()
            groups = {
                group_id: (repr(group.listed()), [*members_of(group)])
                for group_id, group in led.shard.groups.items()
            }
            return groups, sorted(led.shard.offsets.all())

        return self.broker._call(look)

    def reload(self) -> None:
        self.leadership.take(GROUP_TOPIC)
        self.leadership.give_back(GROUP_TOPIC)

    def check_reloaded(self) -> None:
        """Check that the log makes the same shard; classic groups are ahead of their records."""
        groups, offsets = self.state()
        self.reload()
        reloaded, offsets_again = self.state()
        assert offsets_again == offsets
        del groups["classic"], reloaded["classic"]
        assert reloaded == groups


def members_of(group: Any) -> Iterator[Any]:
    state = getattr(group, "state", None)
    members = getattr(state, "members", None)
    for member_id, member in sorted((members or {}).items()):
        yield member_id, member.member_epoch, sorted(member.assigned.items())


@pytest.fixture
def site() -> Iterator[Site]:
    config = {
        "offsets.commit.timeout.ms": str(COMMIT_TIMEOUT_MS),
        "group.initial.rebalance.delay.ms": "0",
        "min.insync.replicas": "2",
    }
    with (
        Broker(topics=["t"], memory=True, config=config) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        yield Site(broker, connection)


@pytest.fixture
def replicated(site: Site) -> Replicated:
    return Replicated(site.broker)


@pytest.fixture
def connections(site: Site) -> Iterator[list[BrokerConnection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(BrokerConnection(site.broker.port)) for _ in range(4)]


def receive_commits(connections: list[BrokerConnection]) -> list[int]:
    answers = [each.receive(OffsetCommitResponse, COMMIT_VERSION) for each in connections]
    return [commit_code(each) for each in answers]


# One append for all of a turn.


@pytest.mark.parametrize("groups", [["a", "b", "c", "d"], ["simple"] * 4])
def test_commits_of_one_turn_are_one_batch(
    site: Site, replicated: Replicated, connections: list[BrokerConnection], groups: list[str]
) -> None:
    before = replicated.batches()

    def send() -> None:
        for number, (connection, group) in enumerate(zip(connections, groups, strict=True)):
            connection.send(commit(10 + number, group), COMMIT_VERSION)

    replicated.in_one_turn(send)
    assert_held(site.broker, *connections, count=4)
    assert replicated.batches() == [*before, 4]
    replicated.fetch()
    assert receive_commits(connections) == [ErrorCode.NONE] * 4
    replicated.check_reloaded()


def test_a_plan_of_the_same_turn_knows_what_it_rests_on(
    site: Site, replicated: Replicated, connections: list[BrokerConnection]
) -> None:
    """Two members join a group at once: the second is planned after the first is replayed."""

    def send() -> None:
        for number, connection in enumerate(connections[:2]):
            connection.send(join_of(f"member-{number}"), 1)
        connections[2].send(commit(7), COMMIT_VERSION)  # of another group

    replicated.in_one_turn(send)
    assert_held(site.broker, *connections[:3], count=3)
    replicated.fetch()
    answers = [each.receive(ConsumerGroupHeartbeatResponse, 1) for each in connections[:2]]
    assert [each.error_code for each in answers] == [ErrorCode.NONE] * 2
    members = replicated.state()[0]["new"][1]
    assert [member_id for member_id, *_ in members] == ["member-0", "member-1"]
    replicated.check_reloaded()


def join_of(member_id: str) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        group_id="new",
        member_id=member_id,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def test_a_read_in_the_turn_of_a_write_shows_it_when_it_is_committed(
    site: Site, replicated: Replicated, connections: list[BrokerConnection]
) -> None:
    def send() -> None:
        connections[0].send(commit(99), COMMIT_VERSION)
        connections[1].send(fetch_offset(), 9)

    replicated.in_one_turn(send)
    assert_held(site.broker, *connections[:2], count=2)
    replicated.fetch()
    (group,) = connections[1].receive(OffsetFetchResponse, 9).groups
    assert group.topics[0].partitions[0].committed_offset == 99


def test_a_batch_that_is_refused_is_refused_for_each_result(
    site: Site, replicated: Replicated, connections: list[BrokerConnection]
) -> None:
    replicated.share([1])  # fewer than min.insync.replicas
    before, state = replicated.batches(), replicated.state()

    def send() -> None:
        for number, connection in enumerate(connections):
            connection.send(commit(20 + number, f"group-{number}"), COMMIT_VERSION)

    replicated.in_one_turn(send)
    assert receive_commits(connections) == [NOT_AVAILABLE] * 4
    assert replicated.batches() == before
    assert replicated.state()[1] == state[1]


def test_a_result_that_is_too_large_does_not_take_others_with_it(
    site: Site, replicated: Replicated, connections: list[BrokerConnection]
) -> None:
    site.broker._call(lambda: shrink_batches(site.broker, 2_000))

    def send() -> None:
        for number, connection in enumerate(connections):
            large = "x" * 1_500 if number == 1 else ""
            request = commit(30 + number, f"group-{number}")
            request.topics[0].partitions[0].committed_metadata = large
            if number == 1:
                request.topics[0].partitions *= 2
            connection.send(request, COMMIT_VERSION)

    replicated.in_one_turn(send)
    assert_held(site.broker, count=3)
    replicated.fetch()
    codes = receive_commits(connections)
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR, *[ErrorCode.NONE] * 2]


def shrink_batches(broker: Broker, bytes_max: int) -> None:
    from dataclasses import replace

    log = partition_of(broker.node.broker, AT).log
    log.config = replace(log.config, max_message_bytes=bytes_max)


def test_what_a_turn_planned_is_refused_when_leadership_is_lost_in_it(
    site: Site, replicated: Replicated
) -> None:
    """It is neither in the log nor in a shard, and its client hears of that."""
    groups, told = site.broker.node.broker.groups, []

    def lose() -> None:
        partition = partition_of(site.broker.node.broker, AT)
        end_offset = partition.log.log_end_offset
        groups.ask(
            "simple",
            lambda shard, now: (shard.commit(commit(5), caller(), now).records, None),
            lambda _: told.append(ErrorCode.NONE),
            told.append,
        )
        groups.on_resigned(0)
        assert told == [ErrorCode.NOT_COORDINATOR]
        assert partition.log.log_end_offset == end_offset

    site.broker._call(lose)
    assert told == [ErrorCode.NOT_COORDINATOR]


def caller() -> Any:
    from odradek.coordinator.result import Caller

    return Caller("waiter", COMMIT_VERSION, "", "/127.0.0.1")


# An append that is refused.


@pytest.mark.parametrize("name", WRITES)
def test_a_write_that_too_few_replicas_can_take_changes_nothing(
    site: Site, replicated: Replicated, name: str
) -> None:
    asked, connection = WRITES[name], site.connection
    replicated.share([1])
    state = replicated.state()
    before = replicated.batches()
    for _ in range(2):
        answer = connection.ask(asked.request(site), asked.response, asked.version)
        assert asked.code_of(answer) == NOT_AVAILABLE
        assert replicated.batches() == before
        assert replicated.state()[1] == state[1]
        if name == "SyncGroup":
            return  # whose members are to join again, see below
        assert replicated.state() == state
    replicated.share([1, *OTHERS])
    succeed(site, replicated, asked)
    replicated.check_reloaded()


def succeed(site: Site, replicated: Replicated, asked: Asked) -> None:
    site.connection.send(asked.request(site), asked.version)
    assert_held(site.broker, site.connection, count=1)
    replicated.fetch()
    answer = site.connection.receive(asked.response, asked.version)
    assert asked.code_of(answer) == ErrorCode.NONE


def test_members_whose_generation_cannot_be_written_come_again(
    site: Site, replicated: Replicated
) -> None:
    asked, connection = WRITES["SyncGroup"], site.connection
    replicated.share([1])
    answer = connection.ask(asked.request(site), asked.response, asked.version)
    assert asked.code_of(answer) == NOT_AVAILABLE
    beat = HeartbeatRequest(
        group_id="classic", generation_id=site.generation, member_id=site.member_id
    )
    answer = connection.ask(beat, HeartbeatResponse, 4)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    replicated.share([1, *OTHERS])
    again = JoinGroupRequest(
        group_id="classic",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=JOIN.protocols,
        member_id=site.member_id,
    )
    joined = connection.ask(again, JoinGroupResponse, JOIN_VERSION)
    assert joined.error_code == ErrorCode.NONE
    site.generation = joined.generation_id
    succeed(site, replicated, asked)


def first_join() -> Message:
    return JoinGroupRequest(
        group_id="never",
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=JOIN.protocols,
    )


def test_a_group_that_cannot_be_written_is_written_by_the_next_who_joins(
    site: Site, replicated: Replicated
) -> None:
    connection = site.connection
    replicated.share([1])
    answer = connection.ask(first_join(), JoinGroupResponse, 9)
    assert answer.error_code == NOT_AVAILABLE
    replicated.share([1, *OTHERS])
    connection.send(first_join(), 9)
    assert_held(site.broker, connection, count=1)
    replicated.fetch()
    answer = connection.receive(JoinGroupResponse, 9)
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED


def test_a_member_that_cannot_be_removed_is_removed_later(
    site: Site, replicated: Replicated
) -> None:
    """The last one of a group that leaves while too few replicas are in sync."""
    asked, connection = WRITES["SyncGroup"], site.connection
    succeed(site, replicated, asked)
    replicated.share([1])
    leave = LeaveGroupRequest(group_id="classic", member_id=site.member_id)
    assert connection.ask(leave, LeaveGroupResponse, 2).error_code == NOT_AVAILABLE
    replicated.share([1, *OTHERS])
    connection.send(leave, 2)
    # Soft state is ahead of the log: the member is gone, and is gone from the log with the next
    # generation. A coordinator that loads the old record ends its session.
    assert connection.receive(LeaveGroupResponse, 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    replicated.reload()
    assert "Stable" in replicated.state()[0]["classic"][0]
    site.broker.clock.advance(61)
    replicated.fetch()
    wait_until(
        lambda: "Empty" in replicated.state()[0]["classic"][0], "the member's session should end"
    )


# What an append commits itself.


def test_nothing_is_answered_between_an_append_and_its_replay(
    site: Site, replicated: Replicated
) -> None:
    """An append may commit what was held before it; the answer may bring the next request."""
    server = site.broker.node.broker
    shown: list[Any] = []

    def write() -> None:
        partition = partition_of(server, AT)
        shard = server.groups.shard_for("simple")
        partition.are_commits_held = True
        ask(5, lambda _: shown.append(shard.offsets.find("simple", "t", 0)))
        server.groups._flush(server.groups._led[0])
        replicated_now(partition)
        partition.are_commits_held = False
        ask(6, lambda _: None)
        server.groups._flush(server.groups._led[0])

    def ask(offset: int, then: Callable[[None], None]) -> None:
        server.groups.ask(
            "simple",
            lambda shard, now: (shard.commit(commit(offset), caller(), now).records, None),
            then,
            shown.append,
        )

    def replicated_now(partition: Any) -> None:
        for node_id in OTHERS:
            end_offset = partition.log.log_end_offset
            partition.on_follower_fetch(node_id, end_offset, 0, -1)

    site.broker._call(write)
    assert [each.offset for each in shown] == [6]


def test_a_beat_that_changes_nothing_needs_no_replicas(site: Site, replicated: Replicated) -> None:
    replicated.share([1])
    answer = site.connection.ask(HEARTBEAT, ConsumerGroupHeartbeatResponse, 0)
    assert answer.error_code == NOT_AVAILABLE  # it would join as another member
    (member,) = replicated.state()[0]["consumer"][1]
    beat = ConsumerGroupHeartbeatRequest(
        group_id="consumer", member_id=member[0], member_epoch=member[1]
    )
    answer = site.connection.ask(beat, ConsumerGroupHeartbeatResponse, 0)
    assert answer.error_code == ErrorCode.NONE
