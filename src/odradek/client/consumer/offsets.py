"""Questions to leaders about offsets: by timestamp, by mark, by leader epoch.

Each takes partitions of any number of leaders and gives what they said, partition by partition; an
error of one is that one's own.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from odradek.client.cluster import Cluster
from odradek.client.consumer.settings import READ_COMMITTED, READ_UNCOMMITTED, is_read_committed
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.client.metadata import NO_LEADER
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1

A = TypeVar("A")
V = TypeVar("V")


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


class EpochEnd(NamedTuple):
    """The newest epoch not after the one asked for, and where it ends in the leader's log."""

    leader_epoch: int
    end_offset: int


async def list_offsets(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """Ask each leader, once, for the first offset at or after a timestamp, or for a mark."""
    isolation = READ_COMMITTED if is_read_committed(cluster.settings) else READ_UNCOMMITTED

    async def ask(
        node_id: int, part: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        response = await cluster.ask(
            node_id, _list_request(cluster, part, isolation), ListOffsetsResponse
        )
        found: dict[TopicPartition, FoundOffset | KafkaError] = {}
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    found[partition] = BrokerError(each.error_code, about=str(partition))
                else:
                    found[partition] = FoundOffset(each.offset, each.timestamp, each.leader_epoch)
        return found

    return await _by_leader(cluster, timestamps, ask)


def _list_request(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], isolation: int
) -> Callable[[int], ListOffsetsRequest]:
    def build(version: int) -> ListOffsetsRequest:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition, timestamp in timestamps.items():
            topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=_leader_epoch(cluster, partition),
                    timestamp=timestamp,
                )
            )
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            topics=list(topics.values()),
            timeout_ms=cluster.settings.integer("request.timeout.ms"),
        )
        if version >= 2:
            request.isolation_level = isolation
        return request

    return build


async def epoch_ends(
    cluster: Cluster, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, EpochEnd | KafkaError]:
    """Ask each leader, once, where leader epochs end in its log."""

    async def ask(
        node_id: int, part: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | KafkaError]:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for partition, epoch in part.items():
            topic = topics.setdefault(partition.topic, OffsetForLeaderTopic(topic=partition.topic))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=partition.partition,
                    current_leader_epoch=_leader_epoch(cluster, partition),
                    leader_epoch=epoch,
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=_CONSUMER, topics=list(topics.values()))
        response = await cluster.ask(node_id, request, OffsetForLeaderEpochResponse)
        found: dict[TopicPartition, EpochEnd | KafkaError] = {}
        for answered in response.topics:
            for each in answered.partitions:
                partition = TopicPartition(answered.topic, each.partition)
                if each.error_code:
                    found[partition] = BrokerError(each.error_code, about=str(partition))
                else:
                    found[partition] = EpochEnd(each.leader_epoch, each.end_offset)
        return found

    return await _by_leader(cluster, epochs, ask)


def _leader_epoch(cluster: Cluster, partition: TopicPartition) -> int:
    known = cluster.metadata.find(partition)
    return -1 if known is None else known.leader_epoch


async def _by_leader(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, V],
    ask: Callable[
        [int, Mapping[TopicPartition, V]], Awaitable[dict[TopicPartition, A | KafkaError]]
    ],
) -> dict[TopicPartition, A | KafkaError]:
    found: dict[TopicPartition, A | KafkaError] = {}
    by_leader: dict[int, dict[TopicPartition, V]] = {}
    for partition, value in wanted.items():
        known = cluster.metadata.find(partition)
        if known is None:
            code = cluster.metadata.topic_errors.get(
                partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            found[partition] = BrokerError(code, about=str(partition))
        elif known.leader == NO_LEADER:
            code = ErrorCode.LEADER_NOT_AVAILABLE
            found[partition] = BrokerError(code, about=str(partition))
        else:
            by_leader.setdefault(known.leader, {})[partition] = value

    async def ask_one(node_id: int, part: Mapping[TopicPartition, V]) -> None:
        try:
            found.update(await ask(node_id, part))
        except KafkaError as error:
            found.update(dict.fromkeys(part, error))

    await asyncio.gather(*(ask_one(node_id, part) for node_id, part in by_leader.items()))
    return found


async def list_offsets_until(
    cluster: Cluster, timestamps: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, FoundOffset]:
    """Ask until all leaders have answered.

    Raises:
        KafkaTimeoutError: That took too long.
        KafkaError: One of them refused for good.
    """
    found: dict[TopicPartition, FoundOffset] = {}

    async def attempt() -> None:
        missing = {p: each for p, each in timestamps.items() if p not in found}
        if any(cluster.metadata.find(partition) is None for partition in missing):
            await cluster.refresh({partition.topic for partition in missing})
        answered = await list_offsets(cluster, missing)
        found.update({p: a for p, a in answered.items() if isinstance(a, FoundOffset)})
        failed = [each for each in answered.values() if isinstance(each, KafkaError)]
        if failed:
            await cluster.refresh({partition.topic for partition in missing})
            raise worst(failed)

    if timestamps:
        await within(cluster.retry(attempt, timeout_ms, about="ListOffsets"), timeout_ms)
    return found


def worst(failures: Iterable[KafkaError]) -> KafkaError:
    """Return one that trying again does not help, if there is one."""
    return sorted(failures, key=lambda each: each.retriable)[0]


async def within(awaitable: Awaitable[A], timeout_ms: float) -> A:
    """Wait no longer than this.

    Raises:
        KafkaTimeoutError: It took longer.
    """
    try:
        async with asyncio.timeout(max(0.0, timeout_ms) / 1000):
            return await awaitable
    except TimeoutError as error:
        if isinstance(error, KafkaError):
            raise
        raise KafkaTimeoutError(f"not done in {timeout_ms:.0f} ms") from error
