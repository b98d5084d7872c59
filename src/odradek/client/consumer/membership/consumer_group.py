"""The shell around ``ConsumerMember``: heartbeats, and the application's part of reconciling."""

import asyncio
import math
from typing import Final

from odradek.client.cluster import GROUP_LANE, Cluster
from odradek.client.consumer.group_offsets import MOVED
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.membership.consumer_protocol import (
    ConsumerMember,
    IdPartition,
    Interest,
    ProtocolOptions,
    State,
)
from odradek.client.consumer.membership.rebalance import Rebalance
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.subscription import Subscription
from odradek.client.errors import (
    BrokerError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
)
from odradek.client.settings import Settings
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_TOO_OLD: Final = "the broker does not know this protocol: use group.protocol=classic"
_LEAVE_MS_MAX: Final = 5_000


def protocol_options(settings: Settings) -> ProtocolOptions:
    return ProtocolOptions(
        settings.text("group.id"),
        settings.text("group.instance.id") or None,
        settings.text("client.rack") or None,
        settings.integer("max.poll.interval.ms"),
        settings.text("group.remote.assignor") or None,
    )


class ConsumerGroup:
    def __init__(
        self, cluster: Cluster, subscription: Subscription, rebalance: Rebalance, hooks: Hooks
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._rebalance = rebalance
        self._hooks = hooks
        self._options = protocol_options(cluster.settings)
        self._member = self._new_member()
        self._heartbeats: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._backoff = cluster.backoff()
        self.regex: str | None = None
        self.needs_attention = True

    def _new_member(self) -> ConsumerMember:
        return ConsumerMember(self._options, str(Uuid.random(self._cluster.random)))

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
        self._member.set_interest(Interest(self._subscription.topics, self.regex), self._now_ms())
        self._call()

    def on_metadata(self) -> None:
        if self._member.state is State.RECONCILING:
            self._call()

    def check_soon(self) -> None:
        self._member.check_soon(self._now_ms())
        self._wake.set()

    def _call(self) -> None:
        self.needs_attention = True
        self._wake.set()
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
        member = self._member
        if member.is_lost:
            await self._rebalance.lose(self._rebalance.owned)
        if member.state is State.UNJOINED and (self._subscription.topics or self.regex):
            member.begin(self._now_ms())
            self._wake.set()
        if member.state is State.RECONCILING:
            await self._reconcile()
        if self._heartbeats is None:
            self._heartbeats = asyncio.create_task(self._beat())

    async def _reconcile(self) -> None:
        """Give up what the target has not, take what it has, and say so."""
        member = self._member
        target = member.target
        named = self._resolve(target)
        if len(named) < len(target):
            self._hooks.want_metadata()
        wanted = frozenset(named.values())
        await self._rebalance.revoke(self._rebalance.owned - wanted)
        if member.state is State.RECONCILING and member.target == target:
            if wanted != self._rebalance.owned:
                await self._rebalance.assign(wanted)
            member.on_reconciled(named, self._now_ms())
        else:
            self.needs_attention = True  # it has changed while the listener was at work
        self._wake.set()

    def _resolve(self, partitions: frozenset[IdPartition]) -> dict[IdPartition, TopicPartition]:
        """Return those whose topics are known by name."""
        metadata = self._cluster.metadata
        names = {topic_id: metadata.topic_name(topic_id) for topic_id, _ in partitions}
        if self.regex is not None and any(name is None for name in names.values()):
            self._cluster.want_all()
        return {
            (topic_id, number): TopicPartition(name, number)
            for topic_id, number in partitions
            if (name := names[topic_id]) is not None
        }

    # Heartbeats.

    async def _beat(self) -> None:
        while True:
            member, now_ms = self._member, self._now_ms()
            if member.is_poll_overdue(now_ms):
                await self._leave_late()
            elif member.is_heartbeat_due(now_ms):
                await self._heartbeat()
            self._wake.clear()
            deadline_ms = self._member.next_deadline_ms()
            now_ms = self._now_ms()
            if deadline_ms is not None and deadline_ms <= now_ms:
                continue
            wait = None if deadline_ms is None else (deadline_ms - now_ms) / 1000
            try:
                async with asyncio.timeout(wait):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _leave_late(self) -> None:
        limit = self._options.max_poll_interval_ms
        reason = f"the application did not poll for {limit} ms (max.poll.interval.ms)"
        await self._send(self._member.leave_request())
        self._member.on_lost(reason)
        self._rebalance.tell_of_loss(reason)
        self._call()

    async def _heartbeat(self) -> None:
        member = self._member
        needed = 1 if self.regex is not None else 0
        try:
            node_id = await self._cluster.coordinator(self._options.group_id)
            connection = await self._cluster.connection(node_id, GROUP_LANE)
            if not connection.versions.knows(ConsumerGroupHeartbeatRequest.ID, needed):
                raise UnsupportedError(_TOO_OLD)
            answer = await connection.ask(
                member.heartbeat,
                ConsumerGroupHeartbeatResponse,
                timeout_ms=self._cluster.settings.integer("request.timeout.ms"),
            )
            member.on_response(answer, self._now_ms())
            self._backoff.reset()
        except KafkaError as error:
            self._on_trouble(error)
        if member.is_lost and member.standing().metadata.member_id:
            self._rebalance.tell_of_loss(member.lost_reason)
        if member.is_lost or member.state is State.RECONCILING:
            self._call()

    def _on_trouble(self, error: KafkaError) -> None:
        member, now_ms = self._member, self._now_ms()
        code = error.code if isinstance(error, BrokerError) else None
        if code in MOVED or isinstance(error, ConnectionLostError | KafkaTimeoutError):
            self._cluster.forget_coordinator(self._options.group_id)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            error = UnsupportedError(_TOO_OLD)
        if error.retriable:
            member.on_failure(now_ms)
            member.retry_at(now_ms + self._backoff.next_ms())
        else:
            member.on_fatal(str(error))
        self._hooks.on_failure(error)

    # Leaving.

    async def leave(self) -> None:
        await self.stop()
        member, self._member = self._member, self._new_member()
        self._member.losses = member.losses + 1
        self.needs_attention = True
        if member.epoch > 0:
            await self._send(member.leave_request())

    async def stop(self) -> None:
        """End all tasks, without a word."""
        task, self._heartbeats = self._heartbeats, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _send(self, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            node_id = await self._cluster.coordinator(self._options.group_id)
            await self._cluster.ask(
                node_id, request, ConsumerGroupHeartbeatResponse, timeout_ms=_LEAVE_MS_MAX
            )
        except KafkaError:
            pass  # its session will end by itself

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
