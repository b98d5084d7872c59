"""A classic group on a clock that the test turns, and short words for its requests."""

from collections.abc import Hashable, Sequence
from random import Random

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.config import GroupConfig
from odradek.coordinator.result import Caller, Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    MemberIdentity,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.versioned import encode_versioned

WALL_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    return encode_versioned(ConsumerProtocolSubscription(topics=list(topics)), 1)


TOPIC = subscription("t")
RANGE = (("range", TOPIC),)
Offered = Sequence[tuple[str, bytes]]


class Story:
    def __init__(self, config: GroupConfig | None = None) -> None:
        self.config = config or GroupConfig(group_initial_rebalance_delay_ms=DELAY_MS)
        self.now = Instant(WALL_MS, 1_000)
        self.random = Random(7)
        self.group = ClassicGroup("g", self.config, self.random, self.now)

    def done(self, result: Result) -> Result:
        self.group.check_invariants()
        return result

    def caller(self, waiter: Hashable, version: int) -> Caller:
        return Caller(waiter, version, "client", "/10.0.0.1")

    def join(
        self,
        waiter: Hashable,
        member_id: str = "",
        *,
        version: int = 9,
        instance_id: str | None = None,
        protocols: Offered = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
    ) -> Result:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        return self.done(self.group.join(request, self.caller(waiter, version), self.now))

    def sync(
        self,
        waiter: Hashable,
        member_id: str,
        generation_id: int,
        assignments: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = "consumer",
        protocol_name: str | None = "range",
    ) -> Result:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignments or {}).items()
            ],
        )
        return self.done(self.group.sync(request, self.caller(waiter, 5), self.now))

    def heartbeat(
        self, member_id: str, generation_id: int, instance_id: str | None = None
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        result = self.done(self.group.heartbeat(request, self.caller("heartbeat", 4), self.now))
        ((waiter, message),) = result.replies
        assert waiter == "heartbeat"
        assert isinstance(message, HeartbeatResponse)
        return ErrorCode(message.error_code)

    def leave(self, waiter: Hashable, *members: tuple[str, str | None]) -> Result:
        request = LeaveGroupRequest(
            group_id="g",
            members=[MemberIdentity(member_id=m, group_instance_id=i) for m, i in members],
        )
        return self.done(self.group.leave(request, self.caller(waiter, 5), self.now))

    def leave_v2(self, waiter: Hashable, member_id: str) -> Result:
        request = LeaveGroupRequest(group_id="g", member_id=member_id)
        return self.done(self.group.leave(request, self.caller(waiter, 2), self.now))

    def pass_time(self, by_ms: int) -> Result:
        """Let time pass, with a tick at each deadline on the way and none else."""
        end_ms = self.now.monotonic_ms + by_ms
        total = Result()
        while (due_ms := self.group.next_deadline_ms()) is not None and due_ms <= end_ms:
            self._turn(due_ms)
            result = self.done(self.group.tick(self.now))
            total = Result(total.records + result.records, total.replies + result.replies)
        self._turn(end_ms)
        return total

    def _turn(self, monotonic_ms: int) -> None:
        by_ms = monotonic_ms - self.now.monotonic_ms
        self.now = Instant(self.now.wall_ms + by_ms, monotonic_ms)

    # Short cuts.

    def new_id(self) -> str:
        """Go through the first round of a dynamic member."""
        (reply,) = self.join("id").replies
        assert isinstance(reply.message, JoinGroupResponse)
        assert reply.message.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return reply.message.member_id

    def gathering(self, size: int, protocols: Offered = RANGE) -> list[str]:
        """Have new members wait for the first generation; the first will lead."""
        ids = [self.new_id() for _ in range(size)]
        for member_id in ids:
            self.join(member_id, member_id, protocols=protocols)
        return ids

    def joined(self, size: int) -> list[str]:
        """Have a first generation wait for its leader's assignment."""
        ids = self.gathering(size)
        self.pass_time(DELAY_MS * (2 if size > 1 else 1))
        assert self.group.state.value == "CompletingRebalance"
        return ids

    def stable(self, size: int) -> list[str]:
        """Have a stable first generation in which member i is assigned ``a<i>``."""
        ids = self.joined(size)
        for member_id in ids[1:]:
            self.sync(member_id, member_id, 1)
        self.sync(ids[0], ids[0], 1, {m: b"a%d" % i for i, m in enumerate(ids)})
        assert self.group.state.value == "Stable"
        return ids

    def static_stable(self, *names: str) -> list[str]:
        """Have a stable first generation of static members; member i is assigned ``a<i>``."""
        for name in names:
            self.join(name, instance_id=name)
        self.pass_time(DELAY_MS * (2 if len(names) > 1 else 1))
        ids = [self.group.static_member_ids[name] for name in names]
        for name, member_id in zip(names, ids, strict=True):
            self.sync(name, member_id, 1, {m: b"a%d" % i for i, m in enumerate(ids)})
        assert self.group.state.value == "Stable"
        return ids

    def keep_alive(self, by_ms: int, *members: str) -> Result:
        """Let time pass while these members heartbeat every second."""
        total = Result()
        for _ in range(by_ms // 1_000):
            result = self.pass_time(1_000)
            total = Result(total.records + result.records, total.replies + result.replies)
            for member_id in members:
                self.heartbeat(member_id, self.group.generation_id)
        return total


def refused(
    waiter: Hashable, code: ErrorCode, member_id: str = "", protocol_name: str | None = ""
) -> Reply:
    response = JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=protocol_name)
    return Reply(waiter, response)


def told(
    waiter: Hashable,
    member_id: str,
    generation_id: int,
    leader: str,
    members: Sequence[JoinGroupResponseMember] = (),
    *,
    protocol_name: str = "range",
    skip_assignment: bool = False,
) -> Reply:
    response = JoinGroupResponse(
        generation_id=generation_id,
        protocol_type="consumer",
        protocol_name=protocol_name,
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=list(members),
    )
    return Reply(waiter, response)


def seen(
    member_id: str, metadata: bytes = TOPIC, instance_id: str | None = None
) -> JoinGroupResponseMember:
    return JoinGroupResponseMember(
        member_id=member_id, group_instance_id=instance_id, metadata=metadata
    )


def assigned(waiter: Hashable, assignment: bytes) -> Reply:
    response = SyncGroupResponse(
        protocol_type="consumer", protocol_name="range", assignment=assignment
    )
    return Reply(waiter, response)


def unsynced(waiter: Hashable, code: ErrorCode) -> Reply:
    return Reply(waiter, SyncGroupResponse(error_code=code))
