"""A member of a group of the consumer protocol (KIP-848), between its heartbeats. Pure.

::

    UNJOINED     not a member; joins when the application polls
    JOINING      the first heartbeat is under way, with epoch 0
    STABLE       has what the coordinator last said
    RECONCILING  the coordinator said something else: the application has to give up and take
    FAILED       the coordinator refuses for good

Only what has changed is in a heartbeat, and everything after a failure: what the coordinator got of
the last one is unknown then. A member that is fenced, or unknown, has lost what it had and begins
again under its own id.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

from odradek.client.consumer.errors import FencedError, RebalanceInProgressError
from odradek.client.consumer.membership.standing import Standing, not_a_member
from odradek.client.consumer.records import NO_GENERATION, ConsumerGroupMetadata
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

IdPartition = tuple[Uuid, int]


class State(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    STABLE = "stable"
    RECONCILING = "reconciling"
    FAILED = "failed"


class ProtocolOptions(NamedTuple):
    group_id: str
    instance_id: str | None
    rack_id: str | None
    max_poll_interval_ms: int
    server_assignor: str | None


class Interest(NamedTuple):
    """What a member wants to read: names, or a pattern that the coordinator looks after."""

    topics: frozenset[str] = frozenset()
    regex: str | None = None


_NO_INTEREST: Final = Interest()
_MEMBER_STATES: Final = (State.JOINING, State.STABLE, State.RECONCILING)


class ConsumerMember:
    def __init__(self, options: ProtocolOptions, member_id: str) -> None:
        self.options = options
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.state = State.UNJOINED
        self.interest = _NO_INTEREST
        self.owned: frozenset[IdPartition] = frozenset()
        """What the application reads: what it has acknowledged, or is about to."""
        self.target: frozenset[IdPartition] = frozenset()
        self.is_lost = False
        self.lost_reason = ""
        self.losses = 0
        self._metadata = ConsumerGroupMetadata(
            options.group_id, NO_GENERATION, "", options.instance_id
        )
        self._sent_interest: Interest | None = None
        self._sent_owned: frozenset[IdPartition] | None = None
        self._is_in_flight = False
        self._interval_ms = 0
        self._heartbeat_at_ms = 0.0
        self._polled_at_ms = 0.0

    def standing(self) -> Standing:
        return Standing(self._metadata, self.losses, self._commit_problem())

    def _commit_problem(self) -> KafkaError | None:
        group_id = self.options.group_id
        if self.is_lost:
            return not_a_member(group_id, self.lost_reason)
        if self.epoch > JOIN_EPOCH:
            return None
        if self.state is State.JOINING:
            return RebalanceInProgressError(f"commit of {group_id}: poll, then commit again")
        return not_a_member(group_id, "it has not joined its group")

    # From the application.

    def on_poll(self, now_ms: float) -> None:
        self._polled_at_ms = now_ms

    def set_interest(self, interest: Interest, now_ms: float) -> None:
        if interest != self.interest:
            self.interest = interest
            self._heartbeat_at_ms = now_ms

    def begin(self, now_ms: float) -> None:
        """Join, after what was lost has been let go."""
        assert self.state is State.UNJOINED
        self.state = State.JOINING
        self.is_lost = False
        self.owned = self.target = frozenset()
        self._begin_anew(now_ms)

    def on_reconciled(self, owned: Iterable[IdPartition], now_ms: float) -> None:
        """The application has given up and taken; the coordinator shall hear of it at once.

        ``owned`` may lack what the application cannot read yet, because metadata does not have it.
        """
        if self.state is not State.RECONCILING:
            return  # lost meanwhile
        self.owned = frozenset(owned)
        self._heartbeat_at_ms = now_ms
        if self.owned == self.target:
            self.state = State.STABLE

    # Heartbeats.

    def is_heartbeat_due(self, now_ms: float) -> bool:
        is_member = self.state in _MEMBER_STATES
        return is_member and not self._is_in_flight and now_ms >= self._heartbeat_at_ms

    def is_poll_overdue(self, now_ms: float) -> bool:
        is_late = now_ms > self._polled_at_ms + self.options.max_poll_interval_ms
        return self.state in _MEMBER_STATES and is_late

    def next_deadline_ms(self) -> float | None:
        """Return when to look again; None if nothing happens by itself."""
        if self.state not in _MEMBER_STATES:
            return None
        overdue_ms = self._polled_at_ms + self.options.max_poll_interval_ms + 1
        return overdue_ms if self._is_in_flight else min(self._heartbeat_at_ms, overdue_ms)

    def heartbeat(self, version: int) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat, and take it for sent."""
        options = self.options
        request = ConsumerGroupHeartbeatRequest(
            group_id=options.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=options.instance_id,
        )
        if self._sent_interest is None:
            request.rack_id = options.rack_id
            request.rebalance_timeout_ms = options.max_poll_interval_ms
            request.server_assignor = options.server_assignor
        if self._sent_interest != self.interest:
            request.subscribed_topic_names = sorted(self.interest.topics)
            if self.interest.regex is not None:
                request.subscribed_topic_regex = self.interest.regex
            elif version >= 1 and self._sent_interest and self._sent_interest.regex:
                request.subscribed_topic_regex = ""
        if self._sent_owned != self.owned:
            request.topic_partitions = _by_topic(self.owned)
        self._sent_interest, self._sent_owned = self.interest, self.owned
        self._is_in_flight = True
        return request

    def leave_request(self) -> ConsumerGroupHeartbeatRequest:
        is_static = self.options.instance_id is not None
        return ConsumerGroupHeartbeatRequest(
            group_id=self.options.group_id,
            member_id=self.member_id,
            member_epoch=STATIC_LEAVE_EPOCH if is_static else LEAVE_EPOCH,
            instance_id=self.options.instance_id,
        )

    def on_response(self, response: ConsumerGroupHeartbeatResponse, now_ms: float) -> None:
        """Take in an answer.

        Raises:
            KafkaError: A refusal that joining again does not mend; retriable or for good.
        """
        self._is_in_flight = False
        if self.state not in _MEMBER_STATES:
            return  # left meanwhile
        if response.error_code:
            self._on_refusal(response, now_ms)
            return
        self.epoch = response.member_epoch
        self._metadata = self._metadata._replace(generation_id=self.epoch, member_id=self.member_id)
        self._interval_ms = response.heartbeat_interval_ms
        self._heartbeat_at_ms = now_ms + self._interval_ms
        if self.state is State.JOINING:
            self.state = State.STABLE
        if response.assignment is not None:
            self.target = frozenset(
                (topic.topic_id, number)
                for topic in response.assignment.topic_partitions
                for number in topic.partitions
            )
            # Also where nothing changes: the coordinator waits to hear that it was understood.
            self.state = State.RECONCILING
            self._sent_owned = None
        if self._sent_interest != self.interest:
            self._heartbeat_at_ms = now_ms

    def _on_refusal(self, response: ConsumerGroupHeartbeatResponse, now_ms: float) -> None:
        code = response.error_code
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self.on_lost(f"the coordinator says {ErrorCode(code).name}")
            return
        self.on_failure(now_ms)
        about = f"group {self.options.group_id}"
        if code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            instance_id = self.options.instance_id
            reason = f"another consumer is {instance_id!r}: give each its own id"
            self.on_fatal(reason)
            raise FencedError(f"{about}: {reason}")
        error = BrokerError(code, response.error_message, about=about)
        if not error.retriable:
            self.on_fatal(str(error))
        raise error

    def on_failure(self, now_ms: float) -> None:
        """Nothing is known of the last heartbeat: say everything again, when told to."""
        self._is_in_flight = False
        self._begin_anew(now_ms + self._interval_ms)

    def retry_at(self, at_ms: float) -> None:
        self._heartbeat_at_ms = at_ms

    def check_soon(self, now_ms: float) -> None:
        self._heartbeat_at_ms = min(self._heartbeat_at_ms, now_ms)

    def on_lost(self, reason: str) -> None:
        """The group goes on without this member."""
        self.state = State.UNJOINED
        self.epoch = JOIN_EPOCH
        self._lose(reason)

    def on_fatal(self, reason: str) -> None:
        self.state = State.FAILED
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        self.is_lost = True
        self.lost_reason = reason
        self.losses += 1

    def _begin_anew(self, heartbeat_at_ms: float) -> None:
        self._sent_interest = self._sent_owned = None
        self._heartbeat_at_ms = heartbeat_at_ms

    def check_invariants(self) -> None:
        assert self.state is not State.STABLE or self.owned == self.target
        assert (
            self.state in _MEMBER_STATES or self.epoch == JOIN_EPOCH or self.state is State.FAILED
        )


def _by_topic(partitions: Iterable[IdPartition]) -> list[TopicPartitions]:
    topics: dict[Uuid, TopicPartitions] = {}
    for topic_id, number in sorted(partitions):
        topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(number)
    return list(topics.values())
