"""The cluster, for code that blocks: Spark's planning methods and tasks.

Connections live on a thread with an event loop, one for all that a process does with one cluster:
Spark's Python workers run task after task, and a connection outlives them. They are kept by the
client's settings, a few at most. In a forked child they are made anew.
"""

import asyncio
import os
import re
import ssl
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from odradek.client.admin.driver import Driver
from odradek.client.admin.group_offsets import GroupOffsetOperations
from odradek.client.blocking.loop_thread import LoopThread
from odradek.client.cluster import FETCH_LANE, Cluster
from odradek.client.consumer.fetch_requests import (
    FetchOptions,
    answers,
    build_request,
    version_max,
)
from odradek.client.consumer.fetch_session import NO_SESSION, SessionRequest, Wanted
from odradek.client.consumer.offsets import FoundOffset, list_offsets, worst
from odradek.client.consumer.pattern import matching
from odradek.client.consumer.settings import (
    DEFINITIONS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    is_read_committed,
)
from odradek.client.errors import BrokerError, ConfigurationError, KafkaError
from odradek.client.metadata import NO_LEADER
from odradek.client.settings import Settings
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.fetch import FetchResponse, PartitionData
from odradek.spark.offsets import Offsets
from odradek.spark.options import Assign, Selection, Subscribe, SubscribePattern

ACCESSES_MAX: Final = 4
FETCH_BYTES: Final = 4 * 1024 * 1024
"""What a task asks for at once unless ``kafka.max.partition.fetch.bytes`` says otherwise."""
_NO_EPOCH: Final = -1
_SOON_SECONDS: Final = 0.1

T = TypeVar("T")


class Fetched(NamedTuple):
    """Batches of one partition, and what the leader said of it."""

    records: memoryview
    aborted: list[tuple[int, int]]
    high_watermark: int
    last_stable_offset: int


class _GroupOffsets(GroupOffsetOperations):
    def __init__(self, cluster: Cluster) -> None:
        self._driver = Driver(cluster)


class ClusterAccess:
    def __init__(self, client: Mapping[str, str]) -> None:
        self.settings = Settings(DEFINITIONS, {"allow.auto.create.topics": False, **client})
        self._cluster = Cluster(self.settings, tls=tls_context(self.settings))
        self._thread = LoopThread("odradek-spark")
        self._watches: dict[int, asyncio.Task[bool]] = {}
        self._is_started = False
        self.fetch_bytes = (
            self.settings.integer("max.partition.fetch.bytes")
            if "max.partition.fetch.bytes" in self.settings.given
            else FETCH_BYTES
        )

    def close(self) -> None:
        self._thread.run(self._cluster.close())
        self._thread.stop()

    def partitions(self, selection: Selection) -> set[TopicPartition]:
        """Return the partitions that a selection means now.

        Raises:
            BrokerError: A topic or partition that is named is not there.
            KafkaError: Nobody answered.
        """
        return self._run(lambda: self._partitions(selection))

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset at or after a time, -1 if there is none; or that of a mark.

        Raises:
            KafkaError: One of the leaders did not answer, or not that.
        """
        return self._run(lambda: self._list_offsets(timestamps))

    def wait_for_records(self, ends: Offsets, timeout_ms: int) -> None:
        """Return when there may be records at or behind one of these offsets, or time is over."""
        self._run(lambda: self._wait_for_records(ends, timeout_ms))

    def fetch(self, partition: TopicPartition, offset: int) -> "Future[Fetched]":
        """Ask the leader for records; it waits ``fetch.max.wait.ms`` where there are none.

        The future may raise KafkaError.
        """
        return self._thread.submit(self._started(lambda: self._fetch(partition, offset)))

    def refresh(self, topic: str) -> None:
        """Learn anew who leads the partitions of a topic.

        Raises:
            KafkaError: Nobody answered.
        """
        self._run(lambda: self._cluster.refresh([topic]))

    def commit(self, group_id: str, offsets: Offsets) -> None:
        """Commit offsets of a group that has no members.

        Raises:
            KafkaError: They were refused.
        """
        groups = _GroupOffsets(self._cluster)
        self._run(lambda: groups.alter_group_offsets(group_id, offsets)).unwrap()

    # On the loop.

    def _run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.run(self._started(work))

    async def _started(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Connect the first time. Made here, ``work`` is never left behind by what is cancelled."""
        if not self._is_started:
            await self._cluster.start()
            self._is_started = True
        return await work()

    async def _partitions(self, selection: Selection) -> set[TopicPartition]:
        cluster = self._cluster
        match selection:
            case SubscribePattern(pattern):
                cluster.want_all()
                await cluster.refresh()
                known = [(each.name, each.is_internal) for each in cluster.metadata.topics.values()]
                exclude = self.settings.flag("exclude.internal.topics")
                return self._all_of(matching(re.compile(pattern), known, exclude_internal=exclude))
            case Subscribe(topics):
                await cluster.refresh(topics)
                self._check_there(topics)
                return self._all_of(topics)
            case Assign(partitions):
                topics = tuple({each.topic for each in partitions})
                await cluster.refresh(topics)
                self._check_there(topics)
                missing = partitions - self._all_of(topics)
                if missing:
                    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    raise BrokerError(code, about=", ".join(map(str, sorted(missing))))
                return set(partitions)

    def _all_of(self, topics: Collection[str]) -> set[TopicPartition]:
        known = self._cluster.metadata.topics
        return {
            TopicPartition(name, number) for name in topics for number in known[name].partitions
        }

    def _check_there(self, topics: Collection[str]) -> None:
        metadata = self._cluster.metadata
        for name in topics:
            if name not in metadata.topics:
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise BrokerError(metadata.topic_errors.get(name, unknown), about=f"topic {name}")

    async def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        found = await list_offsets(self._cluster, timestamps)
        failures = [each for each in found.values() if isinstance(each, KafkaError)]
        if failures:
            await self._cluster.refresh({each.topic for each in timestamps})
            raise worst(failures)
        return {p: each.offset for p, each in found.items() if isinstance(each, FoundOffset)}

    async def _fetch(self, partition: TopicPartition, offset: int) -> Fetched:
        known = await self._cluster.leader(partition)
        wanted = self._wanted({partition: offset}, self.fetch_bytes)
        wait_ms = self.settings.integer("fetch.max.wait.ms")
        response = await self._ask(known.leader, wanted, self.fetch_bytes, wait_ms)
        for each, data in answers(response, self._cluster.metadata):
            if each == partition:
                return self._fetched(partition, data)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about=str(partition))

    def _fetched(self, partition: TopicPartition, data: PartitionData) -> Fetched:
        if data.error_code:
            raise BrokerError(data.error_code, about=str(partition))
        aborted = data.aborted_transactions or ()
        return Fetched(
            memoryview(data.records or b""),
            [(each.producer_id, each.first_offset) for each in aborted],
            data.high_watermark,
            data.last_stable_offset,
        )

    def _wanted(self, offsets: Offsets, bytes_max: int) -> dict[TopicPartition, Wanted]:
        metadata = self._cluster.metadata
        wanted = {}
        for partition, offset in offsets.items():
            known = metadata.find(partition)
            epoch = _NO_EPOCH if known is None else known.leader_epoch
            topic_id = metadata.topic_id(partition.topic)
            wanted[partition] = Wanted(topic_id, offset, epoch, bytes_max)
        return wanted

    async def _ask(
        self, node_id: int, wanted: dict[TopicPartition, Wanted], bytes_max: int, wait_ms: int
    ) -> FetchResponse:
        isolation = READ_COMMITTED if is_read_committed(self.settings) else READ_UNCOMMITTED
        options = FetchOptions(1, bytes_max, isolation, self.settings.text("client.rack"))
        # Without a session: the broker would keep one for every task that ever ran.
        request = SessionRequest(NO_SESSION, _NO_EPOCH, wanted, {})
        response = await self._cluster.ask(
            node_id,
            build_request(request, options, wait_ms),
            FetchResponse,
            timeout_ms=self.settings.integer("request.timeout.ms") + wait_ms,
            version_max=version_max(wanted),
            lane=FETCH_LANE,
        )
        if response.error_code:
            raise BrokerError(response.error_code, about=f"Fetch from broker {node_id}")
        return response

    # Waiting for records.

    async def _wait_for_records(self, ends: Offsets, timeout_ms: int) -> None:
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, end in ends.items():
            known = self._cluster.metadata.find(partition)
            if known is not None and known.leader != NO_LEADER:
                by_leader.setdefault(known.leader, {})[partition] = end
        if not by_leader:
            await asyncio.sleep(timeout_ms / 1000)
            return
        for node_id, part in by_leader.items():
            # One that still waits since an earlier call waits for the same or for less.
            if node_id not in self._watches:
                watch = asyncio.create_task(self._watch(node_id, part, timeout_ms))
                self._watches[node_id] = watch
        watches = list(self._watches.items())
        await asyncio.wait(
            [watch for _, watch in watches],
            timeout=timeout_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )
        finished = [(node_id, watch) for node_id, watch in watches if watch.done()]
        for node_id, _ in finished:
            del self._watches[node_id]
        if not all(watch.result() for _, watch in finished):
            await asyncio.sleep(min(_SOON_SECONDS, timeout_ms / 1000))

    async def _watch(self, node_id: int, ends: Offsets, timeout_ms: int) -> bool:
        """Return once the broker has something to say; False if that was a refusal.

        A broker answers with one whole batch even where one byte is asked for: that is what it
        costs to hear of records at once.
        """
        try:
            response = await self._ask(node_id, self._wanted(ends, 1), 1, timeout_ms)
        except KafkaError:
            return False
        return all(not part.error_code for _, part in answers(response, self._cluster.metadata))


_accesses: OrderedDict[tuple[int, frozenset[tuple[str, str]]], ClusterAccess] = OrderedDict()


def access_to(client: Mapping[str, str]) -> ClusterAccess:
    """Return this process's access to the cluster that the settings of a client name."""
    key = (os.getpid(), frozenset(client.items()))
    access = _accesses.get(key)
    if access is None:
        access = _accesses[key] = ClusterAccess(client)
    _accesses.move_to_end(key)
    while len(_accesses) > ACCESSES_MAX:
        (process_id, _), oldest = _accesses.popitem(last=False)
        if process_id == os.getpid():
            oldest.close()
    return access


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return what ``ssl.*`` asks for; None without TLS. Keys and certificates are PEM.

    Raises:
        ConfigurationError: A file is missing, or is no certificate or key.
    """
    if settings.text("security.protocol") != "SSL":
        return None
    try:
        context = ssl.create_default_context(
            cafile=settings.text("ssl.truststore.location") or None,
            cadata=settings.text("ssl.truststore.certificates") or None,
        )
        password = settings.text("ssl.key.password") or None
        with _key_file(settings) as key_file:
            if key_file is not None:
                context.load_cert_chain(key_file, password=password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ssl.*: {error}; keys and certificates are PEM") from error
    context.check_hostname = settings.text("ssl.endpoint.identification.algorithm") == "https"
    return context


@contextmanager
def _key_file(settings: Settings) -> Iterator[Path | None]:
    location = settings.text("ssl.keystore.location")
    key = settings.text("ssl.keystore.key")
    if location or not key:
        yield Path(location) if location else None
        return
    # OpenSSL takes keys from files only.
    with tempfile.TemporaryDirectory(prefix="odradek-tls-") as folder:
        path = Path(folder) / "key.pem"
        path.touch(mode=0o600)
        path.write_text(f"{key}\n{settings.text('ssl.keystore.certificate.chain')}\n")
        yield path
