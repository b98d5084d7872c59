"""What runs behind a consumer once it is connected: the parts, put together.

``needs_attention`` is what ``async for`` looks at before each record: whether the application's
task has something to do first.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable
from typing import Final, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.consumer.committing import Committer, log_failure
from odradek.client.consumer.delivery import Delivery
from odradek.client.consumer.extensions import ConsumerInterceptors, Deserialize
from odradek.client.consumer.fetcher import Fetcher
from odradek.client.consumer.group_offsets import GroupOffsets
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.membership.classic_group import ClassicGroup
from odradek.client.consumer.membership.consumer_group import ConsumerGroup
from odradek.client.consumer.membership.no_group import NoGroup
from odradek.client.consumer.membership.rebalance import Rebalance
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.metadata_upkeep import MetadataUpkeep
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.pattern import SubscriptionPattern, matching
from odradek.client.consumer.positions import Positions
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.consumer.settings import is_read_committed
from odradek.client.consumer.subscription import Mode, Subscription
from odradek.client.errors import ClosedError, ConfigurationError, KafkaError
from odradek.core.ids import TopicPartition

_COMMIT_BEFORE_REVOCATION_MS: Final = 10_000
_BUSY_SECONDS_MAX: Final = 0.002

T = TypeVar("T")


class Machinery:
    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        failures: deque[KafkaError],
        wall_ms: Callable[[], int],
        *,
        deserialize: Deserialize | None = None,
        interceptors: ConsumerInterceptors | None = None,
    ) -> None:
        settings = cluster.settings
        self.cluster = cluster
        self.needs_attention = True
        self._subscription = subscription
        self._failures = failures
        self._surfaces_all = settings.flag("surface.retriable.errors")
        self._pattern: re.Pattern[str] | SubscriptionPattern | None = None
        self._news = asyncio.Event()
        self._is_closed = False
        self._group_id = settings.text("group.id")
        hooks = Hooks(
            self._news.set,
            self._on_attention,
            self._on_failure,
            self.on_moved,
            lambda: self._upkeep.want(),
        )
        self.metrics = ConsumerMetrics(
            cluster.network_metrics.clock, subscription, is_committed=is_read_committed(settings)
        )
        self.fetcher = Fetcher(cluster, subscription, hooks, deserialize, self.metrics)
        self.delivery = Delivery(
            self.fetcher.buffer,
            subscription,
            records_max=settings.integer("max.poll.records"),
            check_crcs=settings.flag("check.crcs"),
            interceptors=interceptors,
            metrics=self.metrics,
        )
        offsets = GroupOffsets(cluster, self._group_id, self.standing)
        self._offsets = offsets if self._group_id else None
        self._committer = Committer(
            cluster, subscription, offsets, self._on_left_behind, interceptors
        )
        self._positions = Positions(cluster, subscription, self._offsets, hooks, wall_ms)
        self._upkeep = MetadataUpkeep(cluster)
        self._rebalance = Rebalance(
            self._group_id,
            subscription,
            before_revocation=self._commit_before_revocation,
            on_change=self._on_partitions,
        )
        kind: type[ClassicGroup | ConsumerGroup | NoGroup] = NoGroup
        if self._group_id:
            is_classic = settings.text("group.protocol") == "classic"
            kind = ClassicGroup if is_classic else ConsumerGroup
        self._membership = kind(cluster, subscription, self._rebalance, hooks)
        self._commits_automatically = bool(self._group_id) and settings.flag("enable.auto.commit")
        self._commit_interval = settings.integer("auto.commit.interval.ms") / 1000
        self._yield_at = 0.0
        self._commit_at = 0.0
        self._commit_timer: asyncio.TimerHandle | None = None
        cluster.on_metadata = self._on_metadata
        self._upkeep.start()

    @property
    def group_offsets(self) -> GroupOffsets:
        if self._offsets is None:
            raise ConfigurationError("committed offsets need a group.id")
        return self._offsets

    @property
    def committer(self) -> Committer:
        if self._offsets is None:
            raise ConfigurationError("commits need a group.id")
        return self._committer

    def standing(self) -> Standing:
        if not self._subscription.is_by_group:
            return Standing(ConsumerGroupMetadata(self._group_id))
        return self._membership.standing()

    # Events.

    def on_subscription(self, pattern: re.Pattern[str] | SubscriptionPattern | None) -> None:
        """Take in that the application wants other topics, or partitions of its own choice."""
        self._pattern = pattern
        if self._subscription.mode is Mode.ASSIGNED:
            self.on_assigned()
            return
        membership = self._membership
        if self._subscription.mode is Mode.NONE:
            return
        if isinstance(membership, ConsumerGroup):
            is_remote = isinstance(pattern, SubscriptionPattern)
            membership.regex = pattern.pattern if is_remote and pattern is not None else None
        if isinstance(pattern, re.Pattern):
            self.cluster.want_all()
            self._upkeep.want()
        else:
            self.cluster.want(self._subscription.topics)
            if any(each not in self.cluster.metadata.topics for each in self._subscription.topics):
                self._upkeep.want()
            membership.on_subscription()

    def on_assigned(self) -> None:
        """Take in that the application has chosen partitions."""
        topics = {each.topic for each in self._subscription.partitions}
        self.cluster.want(topics)
        if any(each not in self.cluster.metadata.topics for each in topics):
            self._upkeep.want()
        self._on_partitions()

    def on_moved(self) -> None:
        """Take in that some position is another one, or is wanted."""
        self._positions.wake()
        self.fetcher.buffer.discard_stale()
        self.fetcher.wake()
        self._news.set()

    def _on_partitions(self) -> None:
        self.delivery.drop_stale()
        self.on_moved()

    def _on_metadata(self) -> None:
        pattern = self._pattern
        membership = self._membership
        if self._subscription.is_by_group:
            if isinstance(pattern, re.Pattern) and self._match(pattern):
                membership.on_subscription()
            membership.on_metadata()
        self.on_moved()

    def _match(self, pattern: re.Pattern[str]) -> bool:
        topics = self.cluster.metadata.topics.values()
        exclude = self.cluster.settings.flag("exclude.internal.topics")
        named = [(each.name, each.is_internal) for each in topics]
        return self._subscription.match(matching(pattern, named, exclude_internal=exclude))

    def _on_attention(self) -> None:
        self.needs_attention = True
        self._news.set()

    def _on_failure(self, error: KafkaError) -> None:
        if error.retriable and not self._surfaces_all:
            return
        if all(str(error) != str(known) for known in self._failures):
            self._failures.append(error)
        self._on_attention()

    def _on_left_behind(self) -> None:
        self._membership.check_soon()

    # The application's task.

    async def poll(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        """Take what there is, as soon as there is something; None when the time is up."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        deadline = None if timeout is None else now + timeout
        self.metrics.on_poll()
        if now >= self._yield_at:
            # Whoever polls without ever waiting must not keep heartbeats and fetches waiting.
            await asyncio.sleep(0)
            self._yield_at = loop.time() + _BUSY_SECONDS_MAX
        while True:
            self._news.clear()
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            await self._attend()
            taken = take()
            if self.delivery.has_made_room:
                self.delivery.has_made_room = False
                self.fetcher.wake()
            if taken is not None:
                return taken
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return None
            if not self._news.is_set():
                await self._wait(left)

    async def _wait(self, seconds: float | None) -> None:
        self._membership.on_wait()
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        finally:
            self._membership.on_poll()

    async def _attend(self) -> None:
        """Do what must be done in the application's task."""
        membership = self._membership
        is_member = self._subscription.is_by_group
        if is_member:
            membership.on_poll()
        if not self.needs_attention:
            return
        if self._failures:
            raise self._failures.popleft()
        self.needs_attention = False
        try:
            self._commit_automatically()
            if is_member and membership.needs_attention:
                self.delivery.settle()
                await membership.attend()
                self.needs_attention = self.needs_attention or membership.needs_attention
        except BaseException:
            self.needs_attention = True
            raise

    async def position(self, partition: TopicPartition) -> int:
        """Wait until the position is known."""
        while True:
            self._news.clear()
            state = self._subscription.state(partition)
            if state.position is not None:
                return state.position.offset
            if self._failures:
                raise self._failures.popleft()
            self._positions.wake()
            await self._news.wait()

    # Automatic commits.

    def _commit_automatically(self) -> None:
        if not self._commits_automatically:
            return
        loop = asyncio.get_running_loop()
        if self._commit_timer is None:
            self._commit_timer = loop.call_later(self._commit_interval, self._on_commit_timer)
        if self._commit_at and loop.time() >= self._commit_at:
            self._commit_at = 0.0
            self.delivery.settle()
            self._committer.commit_automatically()

    def _on_commit_timer(self) -> None:
        # Not now: what the application is busy with is not done yet. When it comes for more.
        self._commit_timer = None
        self._commit_at = asyncio.get_running_loop().time()
        self._on_attention()

    async def _commit_before_revocation(self) -> None:
        if not self._commits_automatically:
            return
        self.delivery.settle()
        offsets = self._committer.unsaved()
        try:
            await self._committer.commit(offsets, _COMMIT_BEFORE_REVOCATION_MS)
        except KafkaError as error:
            log_failure(offsets, error)
            self._on_failure(error)

    # The end.

    async def leave(self) -> None:
        """Give everything up and leave the group."""
        if self._subscription.is_by_group:
            if self._membership.is_lost:
                await self._rebalance.lose(self._rebalance.owned)
            else:
                await self._rebalance.revoke(self._rebalance.owned)
            await self._committer.finish()
            await self._membership.leave()
        elif self._offsets is not None:
            await self._commit_before_revocation()
            await self._committer.finish()

    async def close(self, seconds: float) -> None:
        self._is_closed = True
        self._news.set()
        if self._commit_timer is not None:
            self._commit_timer.cancel()
        try:
            async with asyncio.timeout(seconds):
                await self.leave()
        except (TimeoutError, KafkaError):
            pass
        finally:
            await self._end()

    async def _end(self) -> None:
        await self._upkeep.close()
        await self._positions.close()
        await self.fetcher.close()
        await self._committer.close()
        await self._membership.stop()
        await self.cluster.close()
