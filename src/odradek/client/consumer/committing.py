"""Commits of one consumer, in their order: on request, soon, and automatic ones.

Those that shall happen soon go out one at a time; what comes meanwhile is joined into the next, the
newest offset of each partition counts. What was to be committed before the consumer was expelled
from its group is not committed after it has joined again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.errors import CommitFailedError, FencedError
from odradek.client.consumer.extensions import ConsumerInterceptors
from odradek.client.consumer.group_offsets import GroupOffsets
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.offsets import within
from odradek.client.consumer.records import OffsetAndMetadata, Offsets
from odradek.client.consumer.subscription import Subscription
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

CommitCallback = Callable[[Offsets, KafkaError | None], None]
"""Told which offsets were committed, or why they were not."""

_log: Final = logging.getLogger("odradek.client")


@dataclass(slots=True)
class _Pending:
    """What shall be committed soon, of one life of the member."""

    standing: Standing
    offsets: dict[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)
    callbacks: list[CommitCallback] = field(default_factory=list)

    def may_grow(self, standing: Standing) -> bool:
        are_good = self.standing.problem is None and standing.problem is None
        return are_good and self.standing.life == standing.life


class Committer:
    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        group_offsets: GroupOffsets,
        on_left_behind: Callable[[], None],
        interceptors: ConsumerInterceptors | None = None,
    ) -> None:
        """``on_left_behind`` is called when a commit shows that the group has moved on."""
        self._interceptors = interceptors
        self._cluster = cluster
        self._subscription = subscription
        self._group_offsets = group_offsets
        self._on_left_behind = on_left_behind
        self._timeout_ms = cluster.settings.integer("default.api.timeout.ms")
        self._pending: deque[_Pending] = deque()
        self._worker: asyncio.Task[None] | None = None
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return how far the application is, in all partitions where that is known."""
        return {
            partition: OffsetAndMetadata(position.offset, leader_epoch=position.epoch)
            for partition, position in self._subscription.positions().items()
        }

    def unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what this has not committed yet of that."""
        consumed = self.consumed()
        self._committed = {p: each for p, each in self._committed.items() if p in consumed}
        return {p: each for p, each in consumed.items() if self._committed.get(p) != each}

    async def commit(self, offsets: Offsets, timeout_ms: float | None = None) -> None:
        """Commit after all that shall be committed soon; tried until it works or time is up.

        Raises:
            CommitFailedError: The group has moved on.
            KafkaTimeoutError: The time is up.
        """
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        standing = self._group_offsets.standing()
        await within(self._commit_in_order(offsets, standing, timeout_ms), timeout_ms)

    async def _commit_in_order(
        self, offsets: Offsets, standing: Standing, timeout_ms: float
    ) -> None:
        await self.finish()
        await self._commit(offsets, standing, timeout_ms)

    async def _commit(self, offsets: Offsets, standing: Standing, timeout_ms: float) -> None:
        try:
            await self._cluster.retry(
                lambda: self._group_offsets.commit(offsets, standing), timeout_ms, about="commit"
            )
        except (CommitFailedError, FencedError):
            self._on_left_behind()
            raise
        self._committed.update(offsets)
        if self._interceptors is not None:
            self._interceptors.on_commit(offsets)

    async def finish(self) -> None:
        """Wait for what shall be committed soon."""
        if self._worker is not None:
            await asyncio.shield(self._worker)

    def commit_soon(self, offsets: Offsets, callback: CommitCallback | None = None) -> None:
        standing = self._group_offsets.standing()
        if not self._pending or not self._pending[-1].may_grow(standing):
            self._pending.append(_Pending(standing))
        self._pending[-1].offsets.update(offsets)
        if callback is not None:
            self._pending[-1].callbacks.append(callback)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())

    def commit_automatically(self) -> None:
        offsets = self.unsaved()
        if offsets and self._worker is None:
            self.commit_soon(offsets, log_failure)

    async def _work(self) -> None:
        try:
            while self._pending:
                now = self._pending.popleft()
                failure = None
                try:
                    await self._commit(now.offsets, now.standing, self._timeout_ms)
                except KafkaError as error:
                    failure = error
                for callback in now.callbacks:
                    callback(now.offsets, failure)
        finally:
            self._worker = None

    async def close(self) -> None:
        if self._worker is not None:
            worker = self._worker
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


def log_failure(offsets: Offsets, failure: KafkaError | None) -> None:
    """Tell of an automatic commit that failed: no call of the application's does."""
    if failure is not None:
        _log.warning("automatic commit of %d partitions failed: %s", len(offsets), failure)
