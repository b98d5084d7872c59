"""The cluster, for tasks that write: connections on a thread, kept from task to task.

Spark's Python workers run task after task, and connections outlive them. A forked child begins
anew. What of this reads is in ``cluster_access``.
"""

import os
from collections import OrderedDict
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.cluster import Cluster
from odradek.client.settings import Settings
from odradek.spark.cluster_access import tls_context
from odradek.spark.sink_options import SinkOptions

ACCESSES_MAX: Final = 4

T = TypeVar("T")


class SinkAccess:
    def __init__(self, settings: Settings) -> None:
        self.cluster = Cluster(settings, tls=tls_context(settings))
        self._thread = LoopThread("odradek-spark-sink")
        self._is_started = False

    def run(self, work: Coroutine[Any, Any, T], timeout_seconds: float | None = None) -> T:
        """Return what a coroutine returns.

        Raises:
            KafkaError: As it raised it, or the cluster cannot be reached.
            TimeoutError: The time is over.
        """
        return self._thread.run(self._started(work), timeout_seconds)

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return self._thread.submit(self._started(work))

    def close(self) -> None:
        self._thread.run(self.cluster.close())
        self._thread.stop()

    async def _started(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            if not self._is_started:
                await self.cluster.start()
                self._is_started = True
        except BaseException:
            work.close()
            raise
        return await work


_accesses: Final[OrderedDict[tuple[int, frozenset[tuple[str, str]]], SinkAccess]] = OrderedDict()


def sink_access(options: SinkOptions) -> SinkAccess:
    """Return this process's access to the cluster that options name."""
    key = (os.getpid(), frozenset(options.client.items()))
    access = _accesses.get(key)
    if access is None:
        access = _accesses[key] = SinkAccess(options.settings())
    _accesses.move_to_end(key)
    while len(_accesses) > ACCESSES_MAX:
        (process_id, _), oldest = _accesses.popitem(last=False)
        if process_id == os.getpid():
            oldest.close()
    return access
