"""A member of a classic group, between its requests. Pure.

::

    UNJOINED  not a member, or not known to be one: joins when the application polls
    JOINING   JoinGroup and SyncGroup are under way
    STABLE    has an assignment, heartbeats

A member joins again when the coordinator says that the group rebalances, when what it wants has
changed, or, being the leader, when partitions of the group's topics have come or gone. Between two
generations it keeps its id. If the coordinator does not know it (any more) everything it had is
lost.

With assignors that are all cooperative it keeps its partitions while it joins, and gives up only
what the assignment has not; then it joins once more, for others to get that (KIP-429).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.consumer.assignors import (
    NO_RACKS,
    Assignor,
    Members,
    MemberSubscription,
    Racks,
)
from odradek.client.consumer.errors import FencedError, RebalanceInProgressError
from odradek.client.consumer.membership.standing import Standing, not_a_member
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.generated.consumer_protocol import TopicPartition as TopicNumbers
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
from odradek.protocol.versioned import decode_versioned, encode_versioned

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
_SUBSCRIPTION_VERSION: Final = 3
_ASSIGNMENT_VERSION: Final = 3
_REASON_CHARACTERS_MAX: Final = 255


class State(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"


class MemberOptions(NamedTuple):
    group_id: str
    instance_id: str | None
    rack_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    assignors: tuple[Assignor, ...]


class Revocation(NamedTuple):
    """What a member gives up before it joins; ``is_lost`` if others may have it already."""

    partitions: frozenset[TopicPartition]
    is_lost: bool


class ClassicMember:
    def __init__(self, options: MemberOptions) -> None:
        self.options = options
        self.state = State.UNJOINED
        self.member_id = ""
        self.generation_id = NO_GENERATION
        self.assignor: Assignor | None = None
        self.rejoin_reason: str | None = "the consumer begins"
        self.is_lost = False
        self.lost_reason = ""
        self.losses = 0
        self._metadata = ConsumerGroupMetadata(
            options.group_id, NO_GENERATION, "", options.instance_id
        )
        self._last_assignment: tuple[TopicPartition, ...] | None = None
        self._last_generation_id = NO_GENERATION
        self._heartbeat_at_ms = 0.0
        self._heard_at_ms = 0.0
        self._polled_at_ms = 0.0

    @property
    def is_cooperative(self) -> bool:
        return all(each.is_cooperative for each in self.options.assignors)

    @property
    def needs_join(self) -> bool:
        return self.state is not State.JOINING and self.rejoin_reason is not None

    def standing(self) -> Standing:
        return Standing(self._metadata, self.losses, self._commit_problem())

    def _commit_problem(self) -> KafkaError | None:
        if self.generation_id > NO_GENERATION:
            return None
        group_id = self.options.group_id
        if self.is_lost:
            return not_a_member(group_id, self.lost_reason)
        if self.state is State.JOINING:
            return RebalanceInProgressError(f"commit of {group_id}: poll, then commit again")
        return not_a_member(group_id, "it has not joined its group")

    def require_rejoin(self, reason: str) -> None:
        if self.rejoin_reason is None:
            self.rejoin_reason = reason

    # Joining.

    def plan_revocation(
        self, owned: frozenset[TopicPartition], topics: Collection[str]
    ) -> Revocation:
        """Return what has to be given up before joining."""
        if self.is_lost:
            return Revocation(owned, is_lost=True)
        if not self.is_cooperative:
            return Revocation(owned, is_lost=False)
        return Revocation(frozenset(p for p in owned if p.topic not in topics), is_lost=False)

    def begin_join(self) -> str:
        """Begin, and return the reason."""
        assert self.rejoin_reason is not None
        reason, self.rejoin_reason = self.rejoin_reason, None
        self.state = State.JOINING
        self.is_lost = False
        return reason[:_REASON_CHARACTERS_MAX]

    def join_request(
        self,
        topics: Iterable[str],
        owned: Iterable[TopicPartition],
        reason: str,
        version: int,
    ) -> JoinGroupRequest:
        options = self.options
        wanted, kept = sorted(topics), sorted(owned)
        protocols = [
            JoinGroupRequestProtocol(
                name=each.name, metadata=self._subscription(each, wanted, kept)
            )
            for each in options.assignors
        ]
        request = JoinGroupRequest(
            group_id=options.group_id,
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason,
        )
        if version >= 5:
            request.group_instance_id = options.instance_id
        return request

    def _subscription(
        self, assignor: Assignor, topics: list[str], owned: Sequence[TopicPartition]
    ) -> bytes:
        subscription = ConsumerProtocolSubscription(
            topics=topics,
            user_data=assignor.user_data(self._last_assignment, self._last_generation_id),
            owned_partitions=_by_topic(owned),
            generation_id=self._last_generation_id,
            rack_id=self.options.rack_id,
        )
        return encode_versioned(subscription, _SUBSCRIPTION_VERSION)

    def on_join(self, response: JoinGroupResponse) -> None:
        """Take in the answer to JoinGroup.

        Raises:
            KafkaError: It is a refusal; a retriable one may be tried again, as a member or anew.
        """
        code = response.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            raise TryAgainError("the coordinator has given an id to join with")
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise self._lost(code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise TryLaterError("the coordinator is not ready for members")
        self._check(code)
        self.member_id = response.member_id
        self.generation_id = response.generation_id
        self._metadata = self._metadata._replace(
            generation_id=self.generation_id, member_id=self.member_id
        )
        self.assignor = self._find_assignor(response.protocol_name or "")

    def _find_assignor(self, name: str) -> Assignor:
        for each in self.options.assignors:
            if each.name == name:
                return each
        raise KafkaError(f"the coordinator chose assignor {name!r}, which was not offered")

    def assign(
        self, response: JoinGroupResponse, topics: Mapping[str, int], racks: Racks = NO_RACKS
    ) -> list[SyncGroupRequestAssignment]:
        """Return what every member gets; for the leader."""
        assert self.assignor is not None
        shares = self.assignor.assign(topics, members_of(response), racks)
        return [
            SyncGroupRequestAssignment(
                member_id=member_id,
                assignment=encode_versioned(
                    ConsumerProtocolAssignment(assigned_partitions=_by_topic(share)),
                    _ASSIGNMENT_VERSION,
                ),
            )
            for member_id, share in shares.items()
        ]

    def sync_request(
        self, assignments: list[SyncGroupRequestAssignment], version: int
    ) -> SyncGroupRequest:
        assert self.assignor is not None
        request = SyncGroupRequest(
            group_id=self.options.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.assignor.name,
            assignments=assignments,
        )
        if version >= 3:
            request.group_instance_id = self.options.instance_id
        return request

    def on_sync(self, response: SyncGroupResponse, now_ms: float) -> tuple[TopicPartition, ...]:
        """Take in the answer to SyncGroup; return what this member has now.

        Raises:
            KafkaError: As with ``on_join``.
        """
        code = response.error_code
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            raise self._lost(code)
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise TryAgainError("the group rebalances again")
        self._check(code)
        assigned = _decode_assignment(response.assignment)
        self.state = State.STABLE
        self._last_assignment = assigned
        self._last_generation_id = self.generation_id
        self._heard_at_ms = now_ms
        self._heartbeat_at_ms = now_ms + self.options.heartbeat_interval_ms
        return assigned

    def on_join_failed(self, reason: str) -> None:
        """Give up this attempt; the next poll begins another."""
        self.state = State.UNJOINED
        self.require_rejoin(reason)

    # Staying.

    def on_poll(self, now_ms: float) -> None:
        self._polled_at_ms = now_ms

    def check_soon(self, now_ms: float) -> None:
        self._heartbeat_at_ms = now_ms

    def is_heartbeat_due(self, now_ms: float) -> bool:
        return self.state is State.STABLE and now_ms >= self._heartbeat_at_ms

    def is_poll_overdue(self, now_ms: float) -> bool:
        """Whether the application has not polled for so long that it counts as dead."""
        is_late = now_ms > self._polled_at_ms + self.options.max_poll_interval_ms
        return self.state is State.STABLE and is_late

    def is_session_over(self, now_ms: float) -> bool:
        """Whether the coordinator has not been heard of for so long that it may be elsewhere."""
        is_late = now_ms > self._heard_at_ms + self.options.session_timeout_ms
        return self.state is State.STABLE and is_late

    def next_deadline_ms(self, now_ms: float) -> float:
        """Return when to look again."""
        if self.state is not State.STABLE:
            return now_ms + self.options.heartbeat_interval_ms
        overdue_ms = self._polled_at_ms + self.options.max_poll_interval_ms
        return max(now_ms + 1, min(self._heartbeat_at_ms, overdue_ms))

    def on_heartbeat_sent(self, now_ms: float) -> None:
        self._heartbeat_at_ms = now_ms + self.options.heartbeat_interval_ms

    def on_heartbeat(self, error_code: int, now_ms: float) -> None:
        """Take in the answer to Heartbeat.

        Raises:
            KafkaError: Not one of those that a member deals with by joining again.
        """
        if error_code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heard_at_ms = now_ms
        if error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.require_rejoin("the group rebalances")
        elif error_code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self._lost(error_code)
        else:
            self._check(error_code)

    def on_lost(self, reason: str) -> None:
        """The group goes on without this member."""
        self.state = State.UNJOINED
        self.is_lost = True
        self.lost_reason = reason
        self.losses += 1
        self.generation_id = NO_GENERATION
        # What was had in a generation that is over for us must not be claimed for it (KIP-792).
        self._last_generation_id = NO_GENERATION
        self.require_rejoin(reason)

    def _lost(self, code: int) -> "LostError":
        reason = f"the coordinator says {ErrorCode(code).name}"
        self.on_lost(reason)
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        return LostError(reason)

    def on_left(self, reason: str) -> None:
        self.on_lost(reason)
        self.member_id = ""

    def _check(self, code: int) -> None:
        if code == ErrorCode.FENCED_INSTANCE_ID:
            instance_id = self.options.instance_id
            raise FencedError(f"another consumer is {instance_id!r} now: give each its own id")
        if code:
            raise BrokerError(code, about=f"group {self.options.group_id}")

    def check_invariants(self) -> None:
        assert self.state is not State.STABLE or self.generation_id > NO_GENERATION
        assert self.state is State.UNJOINED or self.member_id or self.state is State.JOINING
        assert not self.is_lost or self.rejoin_reason is not None
        assert not self.is_lost or self.standing().problem is not None


class TryAgainError(KafkaError):
    """Join again, at once."""

    retriable = True


class TryLaterError(KafkaError):
    """Join again, after a while."""

    retriable = True


class LostError(KafkaError):
    """The group has gone on without this member: what it had is to be let go before it joins."""


def members_of(response: JoinGroupResponse) -> Members:
    """Return who wants what, as members told the coordinator."""
    return {
        each.member_id: _member(each.metadata, each.group_instance_id) for each in response.members
    }


def _member(metadata: bytes, instance_id: str | None) -> MemberSubscription:
    said = decode_versioned(ConsumerProtocolSubscription, metadata, newest_if_newer=True)
    owned = tuple(
        TopicPartition(each.topic, number)
        for each in said.owned_partitions
        for number in each.partitions
    )
    return MemberSubscription(
        tuple(said.topics), owned, said.generation_id, said.user_data, instance_id, said.rack_id
    )


def _decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    if not data:
        return ()
    try:
        said = decode_versioned(ConsumerProtocolAssignment, data, newest_if_newer=True)
    except CorruptionError as error:
        raise KafkaError(f"the group's leader sent a senseless assignment: {error}") from error
    return tuple(
        TopicPartition(each.topic, number)
        for each in said.assigned_partitions
        for number in each.partitions
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> list[TopicNumbers]:
    topics: dict[str, TopicNumbers] = {}
    for topic, number in partitions:
        topics.setdefault(topic, TopicNumbers(topic=topic)).partitions.append(number)
    return list(topics.values())
