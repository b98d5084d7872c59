"""A broker for tests, in this process: ``with Broker() as broker: broker.bootstrap_servers``.

It is the real thing, with Kafka's protocol on a free port of 127.0.0.1 and a log on disk, only
small and in a temporary folder that goes with it, or with no files at all (``memory=True``).

It runs on a thread of its own with an event loop of its own, so blocking clients and asyncio ones
can be used alike; in a program that has a loop already, ``async with Broker() as broker`` starts it
without blocking that loop. ``async with Broker(own_thread=False)`` runs it on that very loop: one
thread less, and a debugger stops everything. What blocks has a twin to await, ``…_async``.

Tests can move its time on (``broker.clock.advance``) and have requests fail, wait or be lost
(``fail``, ``delay``, ``drop``, see ``faults``), or what they write stay uncommitted
(``hold_commits``). docs/testing.md has examples.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import PurePosixPath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from odradek.core.config import (
    STANDALONE,
    check_known,
    load_broker_config,
    parse_overrides,
)
from odradek.net.event_loop import new_event_loop
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from odradek.storage.disk import OsDisk
from odradek.testing.clock import TestClock

# Imported where they are first used: a broker has to be there in no time.
if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    from odradek.core.errors import ErrorCode
    from odradek.protocol.message import Message
    from odradek.storage.disk import Disk
    from odradek.testing.commit_hold import CommitHold
    from odradek.testing.faults import Delay, Drop, Failure, Fault, Faults

T = TypeVar("T")

HOST: Final = "127.0.0.1"
START_SECONDS_MAX: Final = 120
MEMORY_BYTES_MAX: Final = 256 * 1024 * 1024
_MEMORY_FOLDER: Final = PurePosixPath("/memory")
_TEST_DEFAULTS: Final = {
    "num.recovery.threads.per.data.dir": "1",
    # A tenth of a second for the first group and for the first transaction otherwise.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # Compaction runs in a process, and a process would import the user's program anew.
    "log.cleaner.enable": "false",
}


class Broker:
    """A single node.

    ``topics`` are created before it is ready, with one partition each or as many as the mapping
    says. ``config`` is in the names of ``server.properties``; one that does not exist is refused.
    ``data_dir`` keeps the data; without it everything is gone afterwards. ``memory`` does without
    files, up to ``memory_bytes_max``; past that partitions answer KAFKA_STORAGE_ERROR. There is no
    compaction in memory. ``port`` 0 picks a free one.
    """

    def __init__(
        self,
        *,
        topics: Sequence[str] | Mapping[str, int] = (),
        config: Mapping[str, str] | None = None,
        data_dir: str | None = None,
        memory: bool = False,
        memory_bytes_max: int = MEMORY_BYTES_MAX,
        port: int = 0,
        own_thread: bool = True,
    ) -> None:
        self._topics = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
        self._config = dict(config or {})
        check_known(self._config)
        if memory and data_dir is not None:
            raise ValueError("memory=True keeps no data: it cannot have a data_dir")
        if memory and self._config.get("log.cleaner.enable", "false") != "false":
            raise ValueError("memory=True has no files for the cleaner's process to work on")
        self._data_dir = data_dir
        self._memory_bytes_max = memory_bytes_max if memory else None
        self._wanted_port = port
        self._own_thread = own_thread
        self._temporary: TemporaryDirectory[str] | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._node: Node | None = None
        self._faults: Faults | None = None
        self._holds: dict[CommitHold, Callable[[], None]] = {}
        self.clock = TestClock(self._catch_up, self._catch_up_async)

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

    # Life.

    def start(self) -> None:
        """Return when the broker serves requests."""
        if not self._own_thread:
            raise RuntimeError("own_thread=False needs an event loop: async with Broker(…)")
        assert self._thread is None, "started before"
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="odradek-broker", daemon=True)
        self._thread.start()
        try:
            self._wait(self._start_node())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stop cleanly and remove what was temporary; nothing happens if it is not running."""
        if self._thread is None:
            return
        try:
            self._wait(self._stop_node())
        finally:
            self._end_thread()

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
        if self._own_thread:
            await asyncio.to_thread(self.start)
            return self
        assert self._loop is None, "started before"
        self._loop = asyncio.get_running_loop()
        try:
            await self._start_node()
        except BaseException:
            self._forget()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._own_thread:
            await asyncio.to_thread(self.stop)
            return
        try:
            await self._stop_node()
        finally:
            self._forget()

    # What tests want of it.

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Create a topic; config names have underscores for dots (``segment_bytes="1000"``)."""
        self._wait(self._create_topic(name, partitions, configs))

    async def create_topic_async(self, name: str, partitions: int = 1, **configs: str) -> None:
        """Do the same as ``create_topic`` without blocking the event loop."""
        await self._await(self._create_topic(name, partitions, configs))

    def drop_connections(self) -> None:
        """Cut every connection, as a network that fails does."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self.node.server.close_all)

    def fail(
        self,
        api: "str | type[Message]",
        error: "ErrorCode | str | int",
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> "Failure":
        """Answer the next requests of an API with an error, where that API has its errors.

        They are not handled. With ``topic`` only that topic's part of a request is refused.
        Requests that have no place for the error (they ask for nothing) are let through.

        >>> with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault: ...
        """
        from odradek.testing.faults import Failure, find_error, make_scope

        scope = make_scope(api, times, topic, client_id)
        fault = Failure(scope, find_error(error))
        self._armed().arm(fault)
        return fault

    def delay(
        self,
        api: "str | type[Message]",
        seconds: float,
        *,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> "Delay":
        """Hold the next requests of an API back, by real seconds, before they are handled.

        What comes behind them on the same connection waits too, as always.
        """
        from odradek.testing.faults import Delay, make_scope

        fault = Delay(make_scope(api, times, topic, client_id), seconds)
        self._armed().arm(fault)
        return fault

    def drop(
        self,
        api: "str | type[Message]",
        *,
        after: bool = False,
        times: int | None = 1,
        topic: str | None = None,
        client_id: str | None = None,
    ) -> "Drop":
        """Close the connection instead of answering the next requests of an API.

        ``after`` handling them: the answer is lost, and a client that tries again does what it
        wanted twice, unless the broker notices.
        """
        from odradek.testing.faults import Drop, make_scope

        fault = Drop(make_scope(api, times, topic, client_id), after=after)
        self._armed().arm(fault)
        return fault

    @property
    def faults(self) -> "tuple[Fault, ...]":
        """All faults that were not cleared; ``fired`` of each says how often it struck."""
        return () if self._faults is None else self._faults.all

    def hold_commits(self, topic: str | None = None, partition: int | None = None) -> "CommitHold":
        """Commit nothing more in a partition, in a topic or in all of them, until it is cleared.

        Internal topics are meant too, and so are topics that do not exist yet. Producers with
        acks=all wait, and nobody sees what they wrote, as when followers lag behind.

        >>> with broker.hold_commits("orders", 0): ...
        """
        from odradek.testing.commit_hold import CommitHold

        if topic is None and partition is not None:
            raise ValueError(f"partition {partition} of which topic?")
        hold = CommitHold(topic, partition)
        hold.bind(self._release)
        replicas = self.node.broker.replicas
        self._holds[hold] = self._call(lambda: replicas.hold_commits(hold.holds))
        return hold

    def _release(self, hold: "CommitHold") -> None:
        release = self._holds.pop(hold, None)
        if release is not None:
            self._call(release)

    def clear_faults(self) -> None:
        for hold in list(self._holds):
            hold.clear()
        if self._faults is not None:
            self._faults.clear()

    def _armed(self) -> "Faults":
        from odradek.testing.faults import Faults

        if self._faults is None:
            assert self._loop is not None, "not started"
            self._faults = Faults(self.node, self._loop)
        return self._faults

    # On its loop.

    def _catch_up(self) -> None:
        if self._node is not None:
            self._wait(self._node.on_clock_advanced())

    async def _catch_up_async(self) -> None:
        if self._node is not None:
            await self._await(self._node.on_clock_advanced())

    def _run(self) -> None:
        assert self._loop is not None
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, function: Callable[[], T]) -> T:
        """Call a function on the broker's loop, and return when it has returned."""
        if asyncio._get_running_loop() is self._loop:
            return function()

        async def call() -> T:
            return function()

        return self._wait(call())

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "not started"
        if asyncio._get_running_loop() is self._loop:
            coroutine.close()
            raise RuntimeError("this would wait for the loop it is called on: await its …_async")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(START_SECONDS_MAX)

    async def _await(self, coroutine: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None, "not started"
        if asyncio.get_running_loop() is self._loop:
            return await coroutine
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, self._loop))

    async def _start_node(self) -> None:
        own = {
            "listeners": f"PLAINTEXT://{HOST}:{self._wanted_port}",
            "log.dirs": self._choose_folder(),
        }
        texts = {**_TEST_DEFAULTS, **own, **self._config}
        overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
        loaded = load_broker_config(overrides, base=STANDALONE, small_segments=True)
        ports = real_ports(disk=self._make_disk(), clock=self.clock)
        node = Node(loaded.config, ports)
        await node.start()
        self._node = node
        try:
            for name, partitions in self._topics.items():
                if name not in node.broker.image.topics:  # as from an earlier start
                    await self._create_topic(name, partitions, {})
        except BaseException:
            await node.stop()
            raise

    def _choose_folder(self) -> str:
        if self._memory_bytes_max is not None:
            return str(_MEMORY_FOLDER)
        if self._data_dir is not None:
            return self._data_dir
        from tempfile import TemporaryDirectory

        self._temporary = TemporaryDirectory(prefix="odradek-")
        return self._temporary.name

    def _make_disk(self) -> "Disk | None":
        if self._memory_bytes_max is None:
            # What goes with the process need not outlive a power loss.
            return None if self._temporary is None else OsDisk(syncs=False)
        from odradek.testing.memory_disk import MemoryDisk

        return MemoryDisk(self.clock, self._memory_bytes_max)

    async def _stop_node(self) -> None:
        self.clear_faults()
        await asyncio.sleep(0)  # what a delay held back goes on now, and is answered
        await self.node.stop()

    async def _create_topic(self, name: str, partitions: int, configs: Mapping[str, str]) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        for key, value in configs.items():
            config = CreatableTopicConfig(name=key.replace("_", "."), value=value)
            topic.configs.append(config)
        request = CreateTopicsRequest(topics=[topic])
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.node.broker.controller.ask(request, answered.set_result, answered.set_exception)
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
        self._forget()

    def _forget(self) -> None:
        self._node = self._faults = self._loop = None
        self._holds.clear()
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None
