"""The same requests to our consumer group and to Kafka's, which must answer the same."""

from dataclasses import dataclass, field
from random import Random

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.group.topic_view import Topic
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupResponse,
)
from tests.broker_connection import BrokerConnection
from tests.unit.coordinator.consumer.group_driver import (
    FakeTopics,
    GroupDriver,
    Owned,
    read_assignment,
    subscription,
)

TOPICS = {"orders": 5, "payments": 5, "returns": 2}
STEPS = 200
PROTOCOL = "cooperative-sticky"


@dataclass
class Player:
    """What a client remembers."""

    member_id: str
    instance_id: str | None = None
    is_classic: bool = False
    epoch: int = 0
    topics: list[str] = field(default_factory=list)
    told: Owned = field(default_factory=dict)


class KnownTopics(FakeTopics):
    def __init__(self, ids: dict[str, Uuid]) -> None:
        super().__init__()
        self.version = 1
        self._topics = {
            name: Topic.of(topic_id, name, TOPICS[name]) for name, topic_id in ids.items()
        }


class Match:
    def __init__(self, seed: int, kafka: BrokerConnection, ids: dict[str, Uuid]) -> None:
        self.random = Random(seed)
        self.kafka = kafka
        self.group_id = f"group-{seed}"
        config = ConsumerGroupConfig(
            assignment_interval_ms=0,
            assignors=("range", "uniform"),
        )
        self.ours = GroupDriver(KnownTopics(ids), config)
        self.ours.group = ConsumerGroup(self.group_id, config, Random(1))
        self.players: list[Player] = []
        self.made = 0
        self.codes: set[ErrorCode] = set()

    def play(self) -> None:
        for _ in range(STEPS):
            self.random.choice(
                [self._join, self._heartbeat, self._heartbeat, self._heartbeat]
                + [self._acknowledge] * 4
                + [self._wrong_epoch, self._leave, self._subscribe, self._strange]
                + [self._classic] * 4
            )()
            self._compare_groups()

    # Both sides.

    def beat(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        request.group_id = self.group_id
        theirs = self.kafka.ask(request, ConsumerGroupHeartbeatResponse)
        self.ours.apply(
            self.ours.group.heartbeat(request, self.ours.caller(), self.ours.now, self.ours.topics)
        )
        mine = self.ours.only_reply()
        assert isinstance(mine, ConsumerGroupHeartbeatResponse)
        self.codes.add(ErrorCode(mine.error_code))
        assert shown(mine) == shown(theirs), request
        return mine

    def _compare_groups(self) -> None:
        request = ConsumerGroupDescribeRequest(group_ids=[self.group_id])
        theirs = self.kafka.ask(request, ConsumerGroupDescribeResponse).groups[0]
        if theirs.error_code:  # before the first join
            assert not self.players
            return
        mine = self.ours.group.describe(self.ours.topics)
        assert (mine.group_state, mine.group_epoch, mine.assignment_epoch) == (
            theirs.group_state,
            theirs.group_epoch,
            theirs.assignment_epoch,
        )
        for side in (mine, theirs):
            side.members.sort(key=lambda member: member.member_id)
            for member in side.members:
                member.subscribed_topic_names.sort()
                member.client_id = member.client_host = ""
                for part in (member.assignment, member.target_assignment):
                    part.topic_partitions.sort(key=lambda each: each.topic_name)
                    for each in part.topic_partitions:
                        each.partitions.sort()
        assert mine.members == theirs.members

    # What players do.

    def _pick(self, *, classic: bool = False) -> Player | None:
        fitting = [each for each in self.players if each.is_classic is classic]
        return self.random.choice(fitting) if fitting else None

    def _some_topics(self) -> list[str]:
        return sorted(self.random.sample(sorted(TOPICS), self.random.randrange(1, 4)))

    def _join(self) -> None:
        consumers = [each for each in self.players if not each.is_classic]
        if len(consumers) >= 4:
            return
        self.made += 1
        # Ids that sort differently from the order of joining.
        member_id = f"{self.random.randrange(100):02}-member-{self.made}"
        instance_id = f"i{self.random.randrange(3)}" if self.random.random() < 0.4 else None
        player = Player(member_id, instance_id, topics=self._some_topics())
        response = self.beat(_join_request(player))
        if response.error_code == 0:
            self.players = [
                each
                for each in self.players
                if instance_id is None or each.instance_id != instance_id
            ]
            self.players.append(player)
            self._on_told(player, response)

    def _on_told(self, player: Player, response: ConsumerGroupHeartbeatResponse) -> None:
        if response.error_code:
            return
        player.epoch = response.member_epoch
        told = self.ours.told(response)
        if told is not None:
            player.told = told

    def _heartbeat(self) -> None:
        if player := self._pick():
            request = ConsumerGroupHeartbeatRequest(
                member_id=player.member_id,
                member_epoch=player.epoch,
                instance_id=player.instance_id,
            )
            self._on_told(player, self.beat(request))

    def _acknowledge(self) -> None:
        if player := self._pick():
            request = ConsumerGroupHeartbeatRequest(
                member_id=player.member_id,
                member_epoch=player.epoch,
                instance_id=player.instance_id,
                topic_partitions=self.ours.topic_partitions(player.told),
            )
            self._on_told(player, self.beat(request))

    def _wrong_epoch(self) -> None:
        if player := self._pick():
            request = ConsumerGroupHeartbeatRequest(
                member_id=player.member_id,
                member_epoch=max(player.epoch + self.random.choice([-2, -1, 1]), 1),
                instance_id=player.instance_id,
                topic_partitions=self.random.choice(
                    [None, [], self.ours.topic_partitions(player.told)]
                ),
            )
            response = self.beat(request)
            self._on_told(player, response)

    def _leave(self) -> None:
        kinds = [each.is_classic for each in self.players]
        if kinds.count(False) == 1 and True in kinds:
            return  # the group would change its protocol
        if player := self._pick():
            epoch = -1 if player.instance_id is None else self.random.choice([-1, -2])
            request = ConsumerGroupHeartbeatRequest(
                member_id=player.member_id, member_epoch=epoch, instance_id=player.instance_id
            )
            response = self.beat(request)
            if response.error_code == 0:
                self.players.remove(player)

    def _subscribe(self) -> None:
        if player := self._pick():
            player.topics = self._some_topics()
            request = ConsumerGroupHeartbeatRequest(
                member_id=player.member_id,
                member_epoch=player.epoch,
                instance_id=player.instance_id,
                rebalance_timeout_ms=600_000,
                subscribed_topic_names=player.topics,
                topic_partitions=self.ours.topic_partitions(player.told),
            )
            self._on_told(player, self.beat(request))

    def _strange(self) -> None:
        if not self.players:
            return
        join = _join_request(Player("stranger", topics=["orders"]))
        request = self.random.choice(
            [
                ConsumerGroupHeartbeatRequest(member_id="", member_epoch=0),
                ConsumerGroupHeartbeatRequest(member_id="stranger", member_epoch=4),
                ConsumerGroupHeartbeatRequest(member_id="stranger", member_epoch=-1),
                ConsumerGroupHeartbeatRequest(member_id="stranger", member_epoch=-2),
                ConsumerGroupHeartbeatRequest(member_id="stranger", member_epoch=-3),
                ConsumerGroupHeartbeatRequest(member_id="x", member_epoch=-2, instance_id="i0"),
                ConsumerGroupHeartbeatRequest(member_id="x", member_epoch=3, instance_id="i9"),
                ConsumerGroupHeartbeatRequest(member_id="x", member_epoch=0),
                _with(join, server_assignor="sticky"),
                _with(join, rack_id=""),
                _with(join, instance_id=""),
                _with(join, topic_partitions=[TopicPartitions()]),
                _with(join, subscribed_topic_regex="(", subscribed_topic_names=None),
            ]
        )
        assert self.beat(request).error_code

    # Classic players.

    def _classic(self) -> None:
        if self.ours.group.is_empty or self.ours.group.state_name == "Assigning":
            return
        player = self._pick(classic=True)
        if player is None or self.random.random() < 0.1:
            self._join_classic(None)
            return
        self.random.choice(
            [self._join_classic, self._sync_classic, self._beat_classic, self._leave_classic]
        )(player)

    def _join_classic(self, player: Player | None) -> None:
        if player is None:
            if len([each for each in self.players if each.is_classic]) >= 3:
                return
            self.made += 1
            member_id = f"{self.random.randrange(100):02}-classic-{self.made}"
            player = Player(member_id, is_classic=True, topics=self._some_topics())
            self.players.append(player)
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=600_000,
            rebalance_timeout_ms=600_000,
            member_id=player.member_id,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(
                    name=PROTOCOL, metadata=subscription(player.topics, player.told)
                )
            ],
        )
        theirs = self.kafka.ask(request, JoinGroupResponse)
        driver = self.ours
        driver.apply(
            driver.group.join_classic(request, driver.caller(9), driver.now, driver.topics)
        )
        assert driver.only_reply() == theirs
        player.epoch = theirs.generation_id

    def _sync_classic(self, player: Player) -> None:
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=player.epoch + (self.random.random() < 0.1),
            member_id=player.member_id,
            protocol_type="consumer",
            protocol_name=PROTOCOL,
        )
        theirs = self.kafka.ask(request, SyncGroupResponse)
        driver = self.ours
        driver.apply(
            driver.group.sync_classic(request, driver.caller(5), driver.now, driver.topics)
        )
        mine = driver.only_reply()
        assert isinstance(mine, SyncGroupResponse)
        assert mine.error_code == theirs.error_code
        self.codes.add(ErrorCode(mine.error_code))
        if not mine.error_code:
            assert (mine.protocol_type, mine.protocol_name) == (
                theirs.protocol_type,
                theirs.protocol_name,
            )
            told = read_assignment(mine.assignment)
            assert told == read_assignment(theirs.assignment)
            player.told = told

    def _beat_classic(self, player: Player) -> None:
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=player.epoch - (self.random.random() < 0.1),
            member_id=player.member_id,
        )
        theirs = self.kafka.ask(request, HeartbeatResponse)
        driver = self.ours
        driver.apply(
            driver.group.heartbeat_classic(request, driver.caller(4), driver.now, driver.topics)
        )
        assert driver.only_reply() == theirs
        self.codes.add(ErrorCode(theirs.error_code))

    def _leave_classic(self, player: Player) -> None:
        if self.random.random() < 0.6:
            return
        request = LeaveGroupRequest(
            group_id=self.group_id,
            members=[
                MemberIdentity(member_id=player.member_id),
                MemberIdentity(member_id="stranger"),
            ],
        )
        theirs = self.kafka.ask(request, LeaveGroupResponse)
        driver = self.ours
        driver.apply(
            driver.group.leave_classic(request, driver.caller(5), driver.now, driver.topics)
        )
        assert driver.only_reply() == theirs
        self.players.remove(player)


def _join_request(player: Player) -> ConsumerGroupHeartbeatRequest:
    return ConsumerGroupHeartbeatRequest(
        member_id=player.member_id,
        instance_id=player.instance_id,
        rebalance_timeout_ms=600_000,
        subscribed_topic_names=player.topics,
        topic_partitions=[],
    )


def _with(
    request: ConsumerGroupHeartbeatRequest, **fields: object
) -> ConsumerGroupHeartbeatRequest:
    for name, value in fields.items():
        setattr(request, name, value)
    return request


def shown(response: ConsumerGroupHeartbeatResponse) -> tuple[object, ...]:
    assignment = response.assignment
    return (
        ErrorCode(response.error_code).name,
        response.member_id,
        response.member_epoch,
        response.heartbeat_interval_ms,
        None
        if assignment is None
        else {each.topic_id: set(each.partitions) for each in assignment.topic_partitions},
    )
