"""The same change of protocol, there and back, of our group and of Kafka's."""

from random import Random

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.broker_connection import BrokerConnection
from tests.property.coordinator.group_match import PROTOCOL, KnownTopics, shown
from tests.unit.coordinator.consumer.group_driver import (
    GroupDriver,
    Owned,
    assignment,
    read_assignment,
    subscription,
)


class Conversion:
    """One classic member, and a consumer that comes and goes."""

    def __init__(self, kafka: BrokerConnection, ids: dict[str, Uuid]) -> None:
        self.kafka = kafka
        self.group_id = "conversion"
        self.config = ConsumerGroupConfig(assignment_interval_ms=0, assignors=("range",))
        self.ours = GroupDriver(KnownTopics(ids), self.config)
        self.classic = ClassicGroup(self.group_id, self.config.classic, Random(1), self.ours.now)
        self.is_classic = True
        self.member_ids = ("", "")

    def join(self, owned: Owned) -> tuple[object, ...]:
        """Join on both sides, each under the id it gave; return what both answered."""
        answers = []
        for side, member_id in enumerate(self.member_ids):
            request = JoinGroupRequest(
                group_id=self.group_id,
                session_timeout_ms=600_000,
                rebalance_timeout_ms=600_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[
                    JoinGroupRequestProtocol(
                        name=PROTOCOL, metadata=subscription(["orders"], owned)
                    )
                ],
            )
            answers.append(
                self.kafka.ask(request, JoinGroupResponse, 3) if side else self._join(request)
            )
        self.member_ids = (answers[0].member_id, answers[1].member_id)
        mine, theirs = (
            (each.error_code, each.generation_id, each.protocol_name, each.leader == each.member_id)
            for each in answers
        )
        assert mine == theirs
        return mine

    def _join(self, request: JoinGroupRequest) -> JoinGroupResponse:
        driver = self.ours
        caller = driver.caller(3)
        if self.is_classic:
            result = self.classic.join(request, caller, driver.now)
            due = self.classic.next_deadline_ms()
            if not result.replies and due is not None:  # the delay before a first generation
                driver.advance(due - driver.now.monotonic_ms)
                result = self.classic.tick(driver.now)
        else:
            result = driver.group.join_classic(request, caller, driver.now, driver.topics)
            driver.apply(result)
        (reply,) = result.replies
        assert isinstance(reply.message, JoinGroupResponse)
        return reply.message

    def sync(self, generation_id: int, assigned: Owned | None = None) -> Owned | int:
        answers = []
        for side, member_id in enumerate(self.member_ids):
            request = SyncGroupRequest(
                group_id=self.group_id, generation_id=generation_id, member_id=member_id
            )
            if assigned is not None:
                given = SyncGroupRequestAssignment(
                    member_id=member_id, assignment=assignment(assigned)
                )
                request.assignments = [given]
            answers.append(
                self.kafka.ask(request, SyncGroupResponse, 3) if side else self._sync(request)
            )
        mine, theirs = (each.error_code or read_assignment(each.assignment) for each in answers)
        assert mine == theirs
        return mine

    def _sync(self, request: SyncGroupRequest) -> SyncGroupResponse:
        driver, caller = self.ours, self.ours.caller(3)
        if self.is_classic:
            result = self.classic.sync(request, caller, driver.now)
        else:
            result = driver.group.sync_classic(request, caller, driver.now, driver.topics)
        (reply,) = result.replies
        assert isinstance(reply.message, SyncGroupResponse)
        return reply.message

    def beat(self, generation_id: int) -> ErrorCode:
        answers = []
        for side, member_id in enumerate(self.member_ids):
            request = HeartbeatRequest(
                group_id=self.group_id, generation_id=generation_id, member_id=member_id
            )
            answers.append(
                self.kafka.ask(request, HeartbeatResponse).error_code
                if side
                else self._beat(request)
            )
        assert answers[0] == answers[1]
        return ErrorCode(answers[0])

    def _beat(self, request: HeartbeatRequest) -> int:
        driver, caller = self.ours, self.ours.caller(4)
        if self.is_classic:
            result = self.classic.heartbeat(request, caller, driver.now)
        else:
            result = driver.group.heartbeat_classic(request, caller, driver.now, driver.topics)
            driver.apply(result)
        (reply,) = result.replies
        assert isinstance(reply.message, HeartbeatResponse)
        return reply.message.error_code

    def consume(self, **fields: object) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id,
            member_id="zz",
            **fields,  # type: ignore[arg-type]
        )
        theirs = self.kafka.ask(request, ConsumerGroupHeartbeatResponse)
        driver = self.ours
        if self.is_classic:
            driver.group, _ = ConsumerGroup.from_classic(
                self.classic, self.config, Random(2), driver.now, driver.topics
            )
            self.is_classic = False
        driver.apply(driver.group.heartbeat(request, driver.caller(), driver.now, driver.topics))
        if driver.successor is not None:
            self.classic, self.is_classic = driver.successor, True
        mine = driver.last.replies[0].message
        assert isinstance(mine, ConsumerGroupHeartbeatResponse)
        assert shown(mine) == shown(theirs)
        return mine
