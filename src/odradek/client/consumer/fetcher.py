"""Fetching: one loop per broker serves all partitions that it leads, ahead of the application.

A loop asks for every partition of its broker that wants records and has room for more. It waits
when there is none, and is woken by whatever may change that: records handed over, an assignment, a
seek, news of the cluster. While some partition has no room the broker is not asked to wait long for
the others, so that it is not left out for long once it has.

A partition whose leader has moved, or that fails for another reason, waits for its own time to try
again; the others of its broker do not.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from odradek.client.cluster import FETCH_LANE, Cluster
from odradek.client.consumer.chunk import Chunk
from odradek.client.consumer.errors import CorruptRecordError, NoOffsetError
from odradek.client.consumer.extensions import Deserialize
from odradek.client.consumer.fetch_buffer import FetchBuffer
from odradek.client.consumer.fetch_requests import (
    FetchOptions,
    answers,
    build_request,
    version_max,
)
from odradek.client.consumer.fetch_session import LOST, FetchSession, Wanted
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.metrics import ConsumerMetrics
from odradek.client.consumer.settings import (
    READ_COMMITTED,
    READ_UNCOMMITTED,
    is_read_committed,
    reset_policy,
)
from odradek.client.consumer.subscription import NO_REPLICA, PartitionState, Subscription
from odradek.client.errors import BrokerError, KafkaError
from odradek.client.metadata import NO_LEADER, BrokerAddress
from odradek.core.errors import CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.fetch import FetchResponse, PartitionData
from odradek.wire.backoff import Backoff

_CROWDED_WAIT_MS: Final = 20
_PREFERRED_REPLICA_MS: Final = 300_000
_AHEAD: Final = 2
"""How many fetches of a partition may wait to be handed over."""

_STALE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""The leader is another one, or not ready: metadata is asked for, and then the new one."""

Asked = dict[TopicPartition, tuple[PartitionState, int, int]]
"""States with their version and the offset asked for, of one request."""


class Fetcher:
    def __init__(
        self,
        cluster: Cluster,
        subscription: Subscription,
        hooks: Hooks,
        deserialize: Deserialize | None = None,
        metrics: ConsumerMetrics | None = None,
    ) -> None:
        settings = cluster.settings
        self._metrics = metrics
        self._deserialize = deserialize
        self._cluster = cluster
        self._subscription = subscription
        self._hooks = hooks
        self._partition_bytes = settings.integer("max.partition.fetch.bytes")
        self._max_wait_ms = settings.integer("fetch.max.wait.ms")
        self._request_timeout_ms = settings.integer("request.timeout.ms")
        self._reset = reset_policy(settings)
        self._check_crcs = settings.flag("check.crcs")
        self._is_committed = is_read_committed(settings)
        self._options = FetchOptions(
            settings.integer("fetch.min.bytes"),
            settings.integer("fetch.max.bytes"),
            READ_COMMITTED if self._is_committed else READ_UNCOMMITTED,
            settings.text("client.rack"),
        )
        self.buffer = FetchBuffer(
            subscription,
            bytes_max=settings.integer("queued.max.bytes"),
            partition_bytes_max=(_AHEAD - 1) * self._partition_bytes,
        )
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._last_first: dict[int, int] = {}

    def wake(self) -> None:
        """Look again at what there is to fetch; loops begin for brokers that have none."""
        for node_id in {self._target(each) for each in self._subscription.partitions.values()}:
            if node_id != NO_LEADER and node_id not in self._loops:
                self._wakes[node_id] = asyncio.Event()
                self._loops[node_id] = asyncio.create_task(self._run(node_id))
        for event in self._wakes.values():
            event.set()

    async def close(self) -> None:
        loops = list(self._loops.values())
        self._loops.clear()
        for each in loops:
            each.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    # One broker's loop.

    async def _run(self, node_id: int) -> None:
        session, backoff = FetchSession(), self._cluster.backoff()
        while True:
            wanted, asked, is_crowded = self._plan(node_id)
            if not wanted:
                await self._wait(node_id)
                continue
            try:
                await self._fetch(node_id, session, wanted, asked, is_crowded=is_crowded)
                backoff.reset()
            except KafkaError as error:
                session.reset()
                await self._on_broken(error, asked, backoff)
            except Exception as error:  # a fault of ours must not end in silence
                self._hooks.on_failure(KafkaError(f"fetching from broker {node_id}: {error!r}"))
                raise

    def _plan(self, node_id: int) -> tuple[dict[TopicPartition, Wanted], Asked, bool]:
        """Return what to ask a broker for, and whether some partition has no room."""
        wanted: dict[TopicPartition, Wanted] = {}
        asked: Asked = {}
        now_ms = self._now_ms()
        is_crowded = not self.buffer.has_room()
        if is_crowded:
            return wanted, asked, is_crowded
        metadata = self._cluster.metadata
        for partition, state in self._subscription.partitions.items():
            if not state.is_fetchable or state.retry_at_ms > now_ms:
                continue
            if self._target(state) != node_id or not self._is_valid(state):
                continue
            if self.buffer.is_full(state):
                is_crowded = True
                continue
            known = metadata.find(partition)
            assert known is not None, "it has a target, so it is known"
            offset = self.buffer.end(state).offset
            wanted[partition] = Wanted(
                metadata.topic_id(partition.topic),
                offset,
                known.leader_epoch,
                self._partition_bytes,
            )
            asked[partition] = (state, state.version, offset)
        return self._rotated(node_id, wanted), asked, is_crowded

    def _is_valid(self, state: PartitionState) -> bool:
        known = self._cluster.metadata.find(state.partition)
        assert known is not None, "it has a target, so it is known"
        state.on_leader_epoch(known.leader_epoch)
        if not state.is_fetchable:
            self._hooks.on_moved()
        return state.is_fetchable

    def _rotated(
        self, node_id: int, wanted: dict[TopicPartition, Wanted]
    ) -> dict[TopicPartition, Wanted]:
        """Begin with another partition each time: the first may be all that fits an answer."""
        if len(wanted) < 2:
            return wanted
        first = self._last_first.get(node_id, 0) % len(wanted)
        self._last_first[node_id] = first + 1
        items = list(wanted.items())
        return dict(items[first:] + items[:first])

    def _target(self, state: PartitionState) -> int:
        """Return the broker to fetch from: the leader, or a replica that it named (KIP-392)."""
        known = self._cluster.metadata.find(state.partition)
        if known is None or known.leader == NO_LEADER:
            return NO_LEADER
        preferred = state.preferred_replica
        if preferred == NO_REPLICA:
            return known.leader
        if state.preferred_until_ms <= self._now_ms() or preferred in known.offline_replicas:
            state.preferred_replica = NO_REPLICA
            return known.leader
        return preferred

    async def _wait(self, node_id: int) -> None:
        event = self._wakes[node_id]
        event.clear()
        now_ms = self._now_ms()
        times = [s.retry_at_ms for s in self._subscription.partitions.values() if s.is_fetchable]
        next_ms = min((each for each in times if each > now_ms), default=None)
        try:
            async with asyncio.timeout(None if next_ms is None else (next_ms - now_ms) / 1000):
                await event.wait()
        except TimeoutError:
            pass

    async def _fetch(
        self,
        node_id: int,
        session: FetchSession,
        wanted: dict[TopicPartition, Wanted],
        asked: Asked,
        *,
        is_crowded: bool,
    ) -> None:
        request = session.plan(wanted)
        bytes_max = max(1, min(self._options.max_bytes, self.buffer.bytes_max - self.buffer.bytes))
        wait_ms = min(self._max_wait_ms, _CROWDED_WAIT_MS) if is_crowded else self._max_wait_ms
        response = await self._cluster.ask(
            node_id,
            build_request(request, self._options._replace(max_bytes=bytes_max), wait_ms),
            FetchResponse,
            timeout_ms=self._request_timeout_ms + wait_ms,
            version_max=version_max(wanted),
            lane=FETCH_LANE,
        )
        session.on_answer(response.error_code, response.session_id)
        if response.error_code in LOST:
            return
        if response.error_code:
            raise BrokerError(response.error_code, about=f"Fetch from broker {node_id}")
        self._take_in(response, asked, node_id)

    async def _on_broken(self, error: KafkaError, asked: Asked, backoff: Backoff) -> None:
        for state, _, _ in asked.values():
            state.preferred_replica = NO_REPLICA
        self._hooks.on_failure(error)
        self._hooks.want_metadata()
        await asyncio.sleep(backoff.next_ms() / 1000)

    # Answers.

    def _take_in(self, response: FetchResponse, asked: Asked, node_id: int) -> None:
        metadata = self._cluster.metadata
        for each in response.node_endpoints:
            address = BrokerAddress(each.node_id, each.host, each.port, each.rack)
            metadata.brokers.setdefault(each.node_id, address)
        has_news = False
        size = 0
        for partition, data in answers(response, metadata):
            size += len(data.records or b"")
            if partition not in asked:
                continue
            state, version, offset = asked[partition]
            if self._subscription.find(partition, version) is not state:
                continue  # moved, or gone to somebody else meanwhile
            if data.error_code:
                self._on_error(state, data, offset, node_id)
            else:
                has_news |= self._on_data(state, data, offset)
        if self._metrics is not None:
            self._metrics.on_fetched(size)
        if has_news:
            self._hooks.on_records()

    def _on_data(self, state: PartitionState, data: PartitionData, offset: int) -> bool:
        state.on_success()
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica != NO_REPLICA:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until_ms = self._now_ms() + _PREFERRED_REPLICA_MS
            self.wake()
        if not data.records:
            return False
        start = self.buffer.end(state)
        if start.offset != offset:
            return False  # what was waiting was thrown away meanwhile
        try:
            chunk = Chunk(
                state.partition,
                memoryview(data.records),
                start,
                aborted=self._aborted(data),
                check_crcs=self._check_crcs,
                deserialize=self._deserialize,
            )
        except CorruptionError as error:
            state.on_failure(self._retry_at(state))
            self._hooks.on_failure(CorruptRecordError(state.partition, offset, str(error)))
            return False
        if chunk.is_empty:
            return False
        self.buffer.add(state, chunk)
        return True

    def _aborted(self, data: PartitionData) -> Iterable[tuple[int, int]] | None:
        if not self._is_committed:
            return None
        return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()]

    def _on_error(
        self, state: PartitionState, data: PartitionData, offset: int, node_id: int
    ) -> None:
        partition, code = state.partition, data.error_code
        failure = BrokerError(code, about=str(partition))
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._on_out_of_range(state, offset, node_id)
            return
        state.preferred_replica = NO_REPLICA
        state.on_failure(self._retry_at(state))
        if code in _STALE:
            if data.current_leader is not None and data.current_leader.leader_id != NO_LEADER:
                leader = data.current_leader
                if self._cluster.metadata.on_leader(
                    partition, leader.leader_id, leader.leader_epoch
                ):
                    state.on_success()
                    state.on_leader_epoch(leader.leader_epoch)
                    self._hooks.on_moved()
                    return
            self._hooks.want_metadata()
        self._hooks.on_failure(failure)

    def _on_out_of_range(self, state: PartitionState, offset: int, node_id: int) -> None:
        known = self._cluster.metadata.find(state.partition)
        if known is not None and known.leader != node_id:
            state.preferred_replica = NO_REPLICA  # a follower may lag: the leader decides
            return
        state.on_failure(self._retry_at(state))
        if state.position is None or state.position.offset != offset:
            return  # it was fetched ahead; once everything before it is handed over, we know
        if self._reset.is_none:
            self._hooks.on_failure(
                NoOffsetError({state.partition: f"offset {offset} is out of range"})
            )
            return
        state.reset_to(self._reset)
        self._hooks.on_moved()

    def _retry_at(self, state: PartitionState) -> float:
        backoff = self._cluster.backoff()
        backoff.failures = state.failures
        return self._now_ms() + backoff.next_ms()

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000
