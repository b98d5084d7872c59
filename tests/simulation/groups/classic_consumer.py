"""A small model of a consumer of the classic protocol: what it sends, and how it takes answers.

It is eager: it gives up all partitions before it joins again. It may be paused, in which case it
neither sends nor hears until it goes on, with all it believed before; or busy, in which case it
heartbeats but does not join again.
"""

from collections.abc import Callable
from typing import Final, Protocol

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_versioned

PARTITIONS: Final = 6
HEARTBEAT_MS: Final = 1_000
BACKOFF_MS: Final = 100
SYNC_TIMEOUT_MS: Final = 8_000

_FATAL: Final = {
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}


class Network(Protocol):
    """Where the consumer lives: it can send, wait, and say what it was given."""

    def send(
        self, consumer: "Consumer", request: Message, version: int, then: Callable[[Message], None]
    ) -> None: ...

    def later(self, consumer: "Consumer", by_ms: int, then: Callable[[], None]) -> None: ...

    def on_assigned(self, consumer: "Consumer") -> None: ...

    def commit(self, consumer: "Consumer") -> None: ...


class Consumer:
    def __init__(
        self,
        network: Network,
        name: str,
        *,
        instance_id: str | None,
        join_version: int,
        session_timeout_ms: int,
        rebalance_timeout_ms: int,
    ) -> None:
        self.name = name
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = -1
        self.phase = "idle"
        self.owned: tuple[int, ...] = ()
        self.topics = ["t"]
        self.paused_until_ms = 0
        self.is_busy = False
        self._network = network
        self._join_version = join_version
        self._session_timeout_ms = session_timeout_ms
        self._rebalance_timeout_ms = rebalance_timeout_ms
        self._attempt = 0
        self._protocol_name: str | None = None

    @property
    def is_alive(self) -> bool:
        return self.phase != "dead"

    def start(self) -> None:
        self._beat()
        self.join()

    def die(self) -> None:
        self.phase, self.owned = "dead", ()

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id="g",
            members=[MemberIdentity(member_id=self.member_id, group_instance_id=self.instance_id)],
        )
        self._network.send(self, request, 5, lambda _: None)
        self.die()

    def subscribe(self, topics: list[str]) -> None:
        self.topics = topics
        self.join()

    # JoinGroup.

    def join(self) -> None:
        self.phase, self.owned = "joining", ()
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=self.topics), 1)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=self._session_timeout_ms,
            rebalance_timeout_ms=self._rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        # An id is asked for and answered at once; a generation takes as long as others need.
        timeout_ms = self._rebalance_timeout_ms + 5_000
        self._ask(request, self._join_version, timeout_ms, self._on_joined)

    def _on_joined(self, response: Message) -> None:
        assert isinstance(response, JoinGroupResponse)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif code is ErrorCode.NONE:
            self.member_id = response.member_id
            self.generation_id = response.generation_id
            self._protocol_name = response.protocol_name
            self._sync(response)
        else:
            self._on_refused(code)

    # SyncGroup.

    def _sync(self, joined: JoinGroupResponse) -> None:
        self.phase = "syncing"
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=self._protocol_name,
        )
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = [member.member_id for member in joined.members]
            assert self.member_id in ids, "a leader is told of all members, itself too"
            request.assignments = [
                SyncGroupRequestAssignment(
                    member_id=member_id, assignment=bytes(range(place, PARTITIONS, len(ids)))
                )
                for place, member_id in enumerate(ids)
            ]
        self._ask(request, 5, SYNC_TIMEOUT_MS, self._on_synced)

    def _on_synced(self, response: Message) -> None:
        assert isinstance(response, SyncGroupResponse)
        code = ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.phase, self.owned = "stable", tuple(response.assignment)
            self._network.on_assigned(self)
        else:
            self._on_refused(code)

    # Heartbeat, for as long as it lives.

    def _beat(self) -> None:
        if self.phase in ("syncing", "stable"):
            request = HeartbeatRequest(
                group_id="g",
                generation_id=self.generation_id,
                member_id=self.member_id,
                group_instance_id=self.instance_id,
            )
            attempt = self._attempt
            self._network.send(self, request, 4, lambda reply: self._on_beat(attempt, reply))
            if self.phase == "stable":
                self._network.commit(self)
        self._network.later(self, HEARTBEAT_MS, self._beat)

    def _on_beat(self, attempt: int, response: Message) -> None:
        assert isinstance(response, HeartbeatResponse)
        code = ErrorCode(response.error_code)
        if self.is_busy and code is ErrorCode.REBALANCE_IN_PROGRESS:
            return
        # While it syncs, the answer to that will tell; an answer to an older self is no news.
        if attempt == self._attempt and self.phase == "stable" and code is not ErrorCode.NONE:
            self._on_refused(code)

    def _on_refused(self, code: ErrorCode) -> None:
        self.owned = ()
        if code in _FATAL:
            self.die()
            return
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.phase = "idle"
        self._attempt += 1
        attempt = self._attempt
        self._network.later(
            self, BACKOFF_MS, lambda: self.join() if attempt == self._attempt else None
        )

    def _ask(
        self, request: Message, version: int, timeout_ms: int, then: Callable[[Message], None]
    ) -> None:
        """Send what must be answered; without an answer, connect anew and join."""
        self._attempt += 1
        attempt = self._attempt

        def is_current() -> bool:
            return attempt == self._attempt

        self._network.send(
            self, request, version, lambda reply: then(reply) if is_current() else None
        )

        def give_up() -> None:
            if is_current() and self.phase in ("joining", "syncing"):
                self.join()

        self._network.later(self, timeout_ms, give_up)
