"""Keeps metadata fresh: by age, and soon after somebody has found it stale."""

import asyncio

from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError


class MetadataUpkeep:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._age_ms_max = cluster.settings.integer("metadata.max.age.ms")
        self._wanted = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._loop = asyncio.create_task(self._run())

    def want(self) -> None:
        """Ask soon: not more often than the back-off allows."""
        self._wanted.set()

    async def close(self) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)

    async def _run(self) -> None:
        backoff = self._cluster.backoff()
        while True:
            try:
                async with asyncio.timeout(self._age_ms_max / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            self._wanted.clear()
            try:
                await self._cluster.refresh()
                backoff.reset()
            except KafkaError:
                self._wanted.set()
            await asyncio.sleep(backoff.next_ms() / 1000)
