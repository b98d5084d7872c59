"""The shell around ``ClassicMember``: requests, timers, and the application's part of a rebalance.

Two tasks of its own: heartbeats, and a join while one is under way. The application's task revokes
before a join and takes the assignment after it.
"""

import asyncio
import logging
import math
from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.cluster import GROUP_LANE, Cluster
from odradek.client.consumer.assignors import NO_RACKS, Racks
from odradek.client.consumer.group_offsets import MOVED
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.membership.classic import (
    ClassicMember,
    LostError,
    MemberOptions,
    State,
    TryAgainError,
    members_of,
)
from odradek.client.consumer.membership.rebalance import Rebalance
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.settings import assignors
from odradek.client.consumer.subscription import Subscription
from odradek.client.errors import (
    BrokerError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
)
from odradek.client.settings import Settings
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import JoinGroupResponse
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.generated.sync_group import SyncGroupRequestAssignment, SyncGroupResponse

_log: Final = logging.getLogger("odradek.client")
_JOIN_MARGIN_MS: Final = 5_000
_LEAVE_BY_MEMBERS: Final = 3


def member_options(settings: Settings) -> MemberOptions:
    return MemberOptions(
        settings.text("group.id"),
        settings.text("group.instance.id") or None,
        settings.text("client.rack") or None,
        settings.integer("session.timeout.ms"),
        settings.integer("heartbeat.interval.ms"),
        settings.integer("max.poll.interval.ms"),
        tuple(assignors(settings)),
    )


class ClassicGroup:
    def __init__(
        self, cluster: Cluster, subscription: Subscription, rebalance: Rebalance, hooks: Hooks
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._rebalance = rebalance
        self._hooks = hooks
        self._options = member_options(cluster.settings)
        self._member = ClassicMember(self._options)
        self._joining: asyncio.Task[None] | None = None
        self._outcome: tuple[TopicPartition, ...] | KafkaError | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._led_topics: Mapping[str, int] | None = None
        self._led_racks = NO_RACKS
        self.needs_attention = True

    @property
    def is_lost(self) -> bool:
        """Whether the group has gone on without this member, which has not let go yet."""
        return self._member.is_lost

    def standing(self) -> Standing:
        return self._member.standing()

    def on_poll(self) -> None:
        self._member.on_poll(self._now_ms())

    def on_wait(self) -> None:
        """The application waits for records: it is not late, however long that takes."""
        self._member.on_poll(math.inf)

    def on_subscription(self) -> None:
        self._member.require_rejoin("the topics of interest have changed")
        self._call()

    def on_metadata(self) -> None:
        """Join again if this leads the group and what it has divided has changed."""
        if self._led_topics is None or self._member.state is not State.STABLE:
            return
        racks = self._find_racks(self._led_topics)
        if self._count_partitions(self._led_topics) != self._led_topics or (
            racks != self._led_racks
        ):
            self._member.require_rejoin("partitions of the group's topics have changed")
            self._call()

    def check_soon(self) -> None:
        self._member.check_soon(self._now_ms())
        self._wake.set()

    def _call(self) -> None:
        self.needs_attention = True
        self._hooks.on_attention()

    # The application's part.

    async def attend(self) -> None:
        self.needs_attention = False
        try:
            await self._attend()
        except BaseException:
            self.needs_attention = True
            raise

    async def _attend(self) -> None:
        if self._outcome is not None:
            await self._adopt(self._outcome)
        if self._joining is not None or not self._member.needs_join:
            return
        if not self._subscription.topics:
            return  # a pattern that matches nothing yet
        revocation = self._member.plan_revocation(self._rebalance.owned, self._subscription.topics)
        if revocation.is_lost:
            await self._rebalance.lose(revocation.partitions)
        else:
            await self._rebalance.revoke(revocation.partitions)
        self._joining = asyncio.create_task(self._join(self._member.begin_join()))
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat())

    async def _adopt(self, outcome: tuple[TopicPartition, ...] | KafkaError) -> None:
        """Take what a join has brought."""
        if isinstance(outcome, KafkaError):
            self._outcome = None
            raise outcome
        assigned = frozenset(outcome)
        revoked = self._rebalance.owned - assigned
        if revoked:
            # What this gives up somebody else may have with the next assignment.
            await self._rebalance.revoke(revoked)
            self._member.require_rejoin("partitions were given up for others")
        await self._rebalance.assign(assigned)
        self._outcome = None

    # Joining.

    async def _join(self, reason: str) -> None:
        backoff = self._cluster.backoff()
        while True:
            try:
                self._outcome = await self._join_once(reason)
                break
            except TryAgainError:
                continue
            except LostError as error:
                self._rebalance.tell_of_loss(str(error))
                break
            except KafkaError as error:
                self._on_trouble(error)
                if error.retriable:
                    self._hooks.on_failure(error)
                else:
                    self._outcome = error
                    self._member.on_join_failed(str(error))
                    break
                await asyncio.sleep(backoff.next_ms() / 1000)
            except CorruptionError as error:
                self._outcome = KafkaError(f"a member of the group sent nonsense: {error}")
                self._member.on_join_failed(str(error))
                break
        self._joining = None
        self._wake.set()
        self._call()

    async def _join_once(self, reason: str) -> tuple[TopicPartition, ...]:
        member, topics = self._member, self._subscription.topics
        node_id = await self._cluster.coordinator(self._options.group_id)
        request_ms = self._cluster.settings.integer("request.timeout.ms")
        owned = self._rebalance.owned
        joined = await self._cluster.ask(
            node_id,
            lambda version: member.join_request(topics, owned, reason, version),
            JoinGroupResponse,
            timeout_ms=max(request_ms, self._options.max_poll_interval_ms + _JOIN_MARGIN_MS),
            lane=GROUP_LANE,
        )
        member.on_join(joined)
        assignments = await self._lead(joined)
        synced = await self._cluster.ask(
            node_id,
            lambda version: member.sync_request(assignments, version),
            SyncGroupResponse,
            timeout_ms=max(request_ms, self._options.max_poll_interval_ms + _JOIN_MARGIN_MS),
            lane=GROUP_LANE,
        )
        return member.on_sync(synced, self._now_ms())

    async def _lead(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        """Assign, if this is the leader."""
        self._led_topics = None
        if joined.leader != joined.member_id:
            return []
        wanted = {topic for each in members_of(joined).values() for topic in each.topics}
        self._cluster.want(wanted)
        if any(topic not in self._cluster.metadata.topics for topic in wanted):
            await self._cluster.refresh(wanted)
        self._led_topics = self._count_partitions(dict.fromkeys(wanted, 0))
        self._led_racks = self._find_racks(wanted)
        if joined.skip_assignment:
            return []
        present = {topic: count for topic, count in self._led_topics.items() if count}
        return self._member.assign(joined, present, self._led_racks)

    def _count_partitions(self, topics: Mapping[str, int]) -> dict[str, int]:
        known = self._cluster.metadata.topics
        return {topic: len(known[topic].partitions) if topic in known else 0 for topic in topics}

    def _find_racks(self, topics: Iterable[str]) -> Racks:
        """Return where the partitions of topics have replicas; nothing where racks have no name."""
        metadata = self._cluster.metadata
        names = {each.node_id: each.rack for each in metadata.brokers.values() if each.rack}
        if not names:
            return NO_RACKS
        return {
            TopicPartition(topic, number): frozenset(
                names[each] for each in partition.replicas if each in names
            )
            for topic in topics
            if topic in metadata.topics
            for number, partition in metadata.topics[topic].partitions.items()
        }

    # Heartbeats.

    async def _beat(self) -> None:
        while True:
            now_ms = self._now_ms()
            if self._member.is_poll_overdue(now_ms):
                await self._leave_late()
            elif self._member.is_heartbeat_due(now_ms):
                await self._heartbeat()
            now_ms = self._now_ms()
            wait = (self._member.next_deadline_ms(now_ms) - now_ms) / 1000
            self._wake.clear()
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _heartbeat(self) -> None:
        member = self._member
        generation_id = member.generation_id

        def request(version: int) -> HeartbeatRequest:
            made = HeartbeatRequest(
                group_id=self._options.group_id,
                generation_id=generation_id,
                member_id=member.member_id,
            )
            if version >= 3:
                made.group_instance_id = self._options.instance_id
            return made

        member.on_heartbeat_sent(self._now_ms())
        try:
            node_id = await self._cluster.coordinator(self._options.group_id)
            answer = await self._cluster.ask(
                node_id,
                request,
                HeartbeatResponse,
                timeout_ms=self._options.session_timeout_ms,
                lane=GROUP_LANE,
            )
            if member.generation_id != generation_id or member.state is not State.STABLE:
                return  # the answer is about a generation that is over
            member.on_heartbeat(answer.error_code, self._now_ms())
            if member.is_lost:
                self._rebalance.tell_of_loss(member.lost_reason)
        except KafkaError as error:
            self._on_trouble(error)
            if not error.retriable:
                member.on_lost(str(error))
                self._hooks.on_failure(error)
                self._rebalance.tell_of_loss(member.lost_reason)
            elif member.is_session_over(self._now_ms()):
                self._cluster.forget_coordinator(self._options.group_id)
        if member.rejoin_reason is not None:
            self._call()

    async def _leave_late(self) -> None:
        limit = self._options.max_poll_interval_ms
        reason = f"the application did not poll for {limit} ms (max.poll.interval.ms)"
        await self._send_leave(reason)
        self._member.on_left(reason)
        self._rebalance.tell_of_loss(reason)
        self._call()

    def _on_trouble(self, error: KafkaError) -> None:
        is_moved = isinstance(error, BrokerError) and error.code in MOVED
        if is_moved or isinstance(error, ConnectionLostError | KafkaTimeoutError):
            self._cluster.forget_coordinator(self._options.group_id)

    # Leaving.

    async def leave(self) -> None:
        await self.stop()
        member, self._member = self._member, ClassicMember(self._options)
        self._member.losses = member.losses + 1
        self._outcome = self._led_topics = None
        self.needs_attention = True
        if member.member_id:
            await self._send_leave("the consumer is being closed", member.member_id)

    async def stop(self) -> None:
        """End all tasks, without a word."""
        tasks = [each for each in (self._joining, self._heartbeats) if each is not None]
        self._joining = self._heartbeats = None
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _send_leave(self, reason: str, member_id: str | None = None) -> None:
        """Say goodbye; a static member does not, for it may come back within its session."""
        if self._options.instance_id is not None:
            return
        left = self._member.member_id if member_id is None else member_id

        def request(version: int) -> LeaveGroupRequest:
            if version < _LEAVE_BY_MEMBERS:
                return LeaveGroupRequest(group_id=self._options.group_id, member_id=left)
            member = MemberIdentity(member_id=left, reason=reason)
            return LeaveGroupRequest(group_id=self._options.group_id, members=[member])

        try:
            node_id = await self._cluster.coordinator(self._options.group_id)
            await self._cluster.ask(node_id, request, LeaveGroupResponse, timeout_ms=5_000)
        except KafkaError:
            pass  # its session will end by itself

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
