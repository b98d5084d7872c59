"""A broker for tests, in this process: ``with Broker() as broker: broker.bootstrap_servers``.

It is the real thing, with Kafka's protocol on a free port of 127.0.0.1 and a log on disk, only
small and in a temporary folder that goes with it. It runs on a thread of its own with an event loop
of its own, so blocking clients and asyncio ones can be used alike; in a program that has a loop
already, ``async with Broker() as broker`` starts it without blocking that loop.
"""

import asyncio
import tempfile
import threading
from collections.abc import Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from odradek.broker.node import Node
from odradek.core.config import (
    STANDALONE,
    load_broker_config,
    parse_overrides,
)
from odradek.net.event_loop import new_event_loop
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

T = TypeVar("T")

HOST: Final = "127.0.0.1"
START_SECONDS_MAX: Final = 30
_TEST_DEFAULTS: Final = {
    # A group of one need not wait for others who might join.
    "group.initial.rebalance.delay.ms": "0",
    "num.recovery.threads.per.data.dir": "1",
    # Compaction runs in a process, and a process would import the user's program anew.
    "log.cleaner.enable": "false",
}


class Broker:
    """A single node.

    ``topics`` are created before it is ready, with one partition each or as many as the mapping
    says. ``config`` is in the names of ``server.properties``. ``data_dir`` keeps the data; without
    it everything is gone afterwards. ``port`` 0 picks a free one.
    """

    def __init__(
        self,
        *,
        topics: Sequence[str] | Mapping[str, int] = (),
        config: Mapping[str, str] | None = None,
        data_dir: str | None = None,
        port: int = 0,
    ) -> None:
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._config = dict(config or {})
        self._data_dir = data_dir
        self._wanted_port = port
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None

    @property
    def node(self) -> Node:
        """The node inside. It belongs to the broker's own thread: read, but do not touch."""
        assert self._node is not None, "not started"
        return self._node

    @property
    def port(self) -> int:
        return self.node.server.endpoints["PLAINTEXT"][1]

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Return when the broker serves requests."""
        assert self._thread is None, "started before"
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="odradek-broker", daemon=True)
        self._thread.start()
        try:
            self._call(self._start_node()).result(START_SECONDS_MAX)
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stop cleanly and remove what was temporary; nothing happens if it is not running."""
        if self._thread is None:
            return
        try:
            self._call(self.node.stop()).result(START_SECONDS_MAX)
        finally:
            self._end_thread()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; config names have underscores for dots (``segment_bytes="1000"``)."""
        self._call(self._create_topic(name, partitions, configs)).result(START_SECONDS_MAX)

    def drop_connections(self) -> None:
        """Cut every connection, as a network that fails does."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.node.server.close_all)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _start_node(self) -> None:
        if self._data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="odradek-")
        folder = self._data_dir or (self._temporary.name if self._temporary else "")
        own = {"listeners": f"PLAINTEXT://{HOST}:{self._wanted_port}", "log.dirs": folder}
        texts = {**_TEST_DEFAULTS, **own, **self._config}
        overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
        loaded = load_broker_config(overrides, base=STANDALONE, small_segments=True)
        self._node = Node(loaded.config)
        await self._node.start()
        for name, partitions in self._topics.items():
            await self._create_topic(name, partitions, {})

    async def _create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for key, value in configs.items():
            config = CreatableTopicConfig(name=key.replace("_", "."), value=value)
            topic.configs.append(config)
        request = CreateTopicsRequest(topics=[topic])
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        node = self.node
        node.change(
            lambda controller: controller.create_topics(request, node.random), answered.set_result
        )
        result = (await answered).topics[0]
        if result.error_code:
            raise ValueError(f"cannot create topic {name}: {result.error_message}")

    def _end_thread(self) -> None:
        assert self._loop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._thread = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
