"""What is special about a blocking consumer: its listeners may call it, and children may not.

An asyncio listener runs on the loop, inside ``poll``. One that blocks would stop the loop it waits
for, as soon as it commits. So listeners get a thread, while ``poll`` waits for them as it should.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Generic

from odradek.client.blocking.twin import Twin
from odradek.client.consumer import Consumer, RebalanceListener
from odradek.client.consumer.records import K, V
from odradek.core.ids import TopicPartition

Told = Callable[[Collection[TopicPartition]], Awaitable[None] | None]


class _Outside(RebalanceListener):
    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        await _tell(self._listener.on_assigned, partitions)

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await _tell(self._listener.on_revoked, partitions)

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        await _tell(self._listener.on_lost, partitions)


async def _tell(told: Told, partitions: Collection[TopicPartition]) -> None:
    awaited = await asyncio.to_thread(told, partitions)
    if awaited is not None:
        await awaited


def outside(listener: RebalanceListener | None) -> RebalanceListener | None:
    """Return a listener whose methods run on a thread that may block."""
    return None if listener is None else _Outside(listener)


class Polling(Twin[Consumer[K, V]], Generic[K, V]):
    """The part of a blocking consumer that is not generated."""

    def _survives_fork(self) -> bool:
        return False
