"""Commits of one consumer, in their order: on request, soon, and automatic ones.

Those that shall happen soon go out one at a time; what comes meanwhile is joined into the next, the
newest offset of each partition counts.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.errors import CommitFailedError, FencedError
from odradek.client.consumer.extensions import ConsumerInterceptors
from odradek.client.consumer.group_offsets import GroupOffsets
from odradek.client.consumer.offsets import within
from odradek.client.consumer.records import OffsetAndMetadata, Offsets
from odradek.client.consumer.subscription import Subscription
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

CommitCallback = Callable[[Offsets, KafkaError | None], None]
"""Told which offsets were committed, or why they were not."""

_log: Final = logging.getLogger("odradek.client")


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
        self._next: dict[TopicPartition, OffsetAndMetadata] = {}
        self._callbacks: list[CommitCallback] = []
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
        await within(self._commit_in_order(offsets, timeout_ms), timeout_ms)

    async def _commit_in_order(self, offsets: Offsets, timeout_ms: float) -> None:
        await self.finish()
        await self._commit(offsets, timeout_ms)

    async def _commit(self, offsets: Offsets, timeout_ms: float) -> None:
        try:
            await self._cluster.retry(
                lambda: self._group_offsets.commit(offsets), timeout_ms, about="commit"
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
        self._next.update(offsets)
        if callback is not None:
            self._callbacks.append(callback)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())

    def commit_automatically(self) -> None:
        offsets = self.unsaved()
        if offsets and self._worker is None:
            self.commit_soon(offsets, _log_failure)

    async def _work(self) -> None:
        try:
            while self._next or self._callbacks:
                offsets, self._next = self._next, {}
                callbacks, self._callbacks = self._callbacks, []
                failure = None
                try:
                    await self._commit(offsets, self._timeout_ms)
                except KafkaError as error:
                    failure = error
                for callback in callbacks:
                    callback(offsets, failure)
        finally:
            self._worker = None

    async def close(self) -> None:
        if self._worker is not None:
            worker = self._worker
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)


def _log_failure(offsets: Offsets, failure: KafkaError | None) -> None:
    if failure is not None:
        _log.warning("automatic commit of %d partitions failed: %s", len(offsets), failure)
