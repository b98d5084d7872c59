"""Replicas, one by one: in which log directories they are, where their logs end, what they hold."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver, Places, refusal
from odradek.client.admin.results import Results
from odradek.client.admin.routing import by_topic
from odradek.client.errors import KafkaError, check
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_ANY_REPLICA: Final = -2
"""The replica id with which a broker answers for its own log, whoever leads."""
_LATEST: Final = -1
_FETCH_BY_NAME: Final = 12
"""The last version of Fetch that has topics by name; from 11 on followers answer, too."""


class ReplicaInfo(NamedTuple):
    """``is_future``: a copy that is still being made; ``offset_lag`` is how far it is behind."""

    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDirDescription(NamedTuple):
    """``error`` is set for a directory that is offline; sizes are -1 where they are not told."""

    error: KafkaError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool = False
    """Whether it takes no new partitions (KIP-1066)."""


class ReplicaBatches(NamedTuple):
    high_watermark: int
    """As this replica knows it."""
    records: bytes
    """Batches as they lie there, up to the high watermark; the last one may be cut short."""
    log_start_offset: int = -1


class TopicPartitionReplica(NamedTuple):
    topic: str
    partition: int
    broker: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker}"


class LogDirOperations:
    _driver: Driver

    async def describe_log_dirs(
        self,
        brokers: Collection[int] | None = None,
        *,
        partitions: Collection[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> Results[int, dict[str, LogDirDescription]]:
        """Return the log directories of brokers by path, with all replicas or with some."""
        driver = self._driver
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]

        async def ask(node_id: int) -> dict[str, LogDirDescription]:
            request = DescribeLogDirsRequest(topics=topics)
            response = await driver.cluster.ask(node_id, request, DescribeLogDirsResponse)
            check(response.error_code, about="DescribeLogDirs")
            return {each.log_dir: _described(each) for each in response.results}

        return await driver.every_broker(ask, brokers=brokers, timeout_ms=timeout_ms)

    async def alter_replica_log_dirs(
        self,
        moves: Mapping[TopicPartitionReplica, str],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartitionReplica, None]:
        """Begin to move replicas to other directories of their brokers; see describe_log_dirs."""
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartitionReplica]
        ) -> Mapping[TopicPartitionReplica, KafkaError | None]:
            request = AlterReplicaLogDirsRequest(dirs=_moves({key: moves[key] for key in keys}))
            response = await driver.cluster.ask(node_id, request, AlterReplicaLogDirsResponse)
            answers: dict[TopicPartitionReplica, KafkaError | None] = {}
            for topic in response.results:
                for each in topic.partitions:
                    key = TopicPartitionReplica(topic.topic_name, each.partition_index, node_id)
                    answers[key] = refusal(each.error_code, about=key)
            return answers

        return await driver.bulk(moves, _to_brokers, ask, timeout_ms=timeout_ms)

    async def list_log_ends(
        self, replicas: Collection[TopicPartitionReplica], *, timeout_ms: float | None = None
    ) -> Results[TopicPartitionReplica, int]:
        """Return the offset after the last record of each replica, whether it is in sync or not.

        A partition needs no leader for that. Consumers see less: what is committed.
        """
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartitionReplica]
        ) -> Mapping[TopicPartitionReplica, int | KafkaError]:
            request = ListOffsetsRequest(replica_id=_ANY_REPLICA, topics=_latest(keys))
            response = await driver.cluster.ask(node_id, request, ListOffsetsResponse)
            return {
                (key := TopicPartitionReplica(topic.name, each.partition_index, node_id)): (
                    refusal(each.error_code, about=key) or each.offset
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return await driver.bulk(replicas, _to_brokers, ask, timeout_ms=timeout_ms)

    async def fetch_replicas(
        self,
        offsets: Mapping[TopicPartitionReplica, int],
        *,
        partition_bytes_max: int = 1 << 20,
        max_wait_ms: int = 0,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartitionReplica, ReplicaBatches]:
        """Return batches of each replica from an offset on, from the replica itself.

        A broker that has nothing new is waited for, at most so long.
        """
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartitionReplica]
        ) -> Mapping[TopicPartitionReplica, ReplicaBatches | KafkaError]:
            wanted = {TopicPartition(key.topic, key.partition): offsets[key] for key in keys}
            topics = [
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=number,
                            fetch_offset=wanted[TopicPartition(topic, number)],
                            partition_max_bytes=partition_bytes_max,
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(wanted).items()
            ]
            request = FetchRequest(
                max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=topics
            )
            response = await driver.cluster.ask(
                node_id, request, FetchResponse, version_max=_FETCH_BY_NAME
            )
            check(response.error_code, about="Fetch")
            return {
                (key := TopicPartitionReplica(topic.topic, each.partition_index, node_id)): (
                    refusal(each.error_code, about=key)
                    or ReplicaBatches(
                        each.high_watermark, bytes(each.records or b""), each.log_start_offset
                    )
                )
                for topic in response.responses
                for each in topic.partitions
            }

        return await driver.bulk(offsets, _to_brokers, ask, timeout_ms=timeout_ms)


async def _to_brokers(keys: Sequence[TopicPartitionReplica]) -> Places[TopicPartitionReplica]:
    return {key: key.broker for key in keys}


def _latest(replicas: Sequence[TopicPartitionReplica]) -> list[ListOffsetsTopic]:
    partitions = [TopicPartition(each.topic, each.partition) for each in replicas]
    return [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=_LATEST) for index in indexes
            ],
        )
        for topic, indexes in by_topic(partitions).items()
    ]


def _moves(moves: Mapping[TopicPartitionReplica, str]) -> list[AlterReplicaLogDir]:
    by_path: dict[str, list[TopicPartition]] = {}
    for (topic, partition, _), path in moves.items():
        by_path.setdefault(path, []).append(TopicPartition(topic, partition))
    return [
        AlterReplicaLogDir(
            path=path,
            topics=[
                AlterReplicaLogDirTopic(name=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ],
        )
        for path, partitions in by_path.items()
    ]


def _described(found: DescribeLogDirsResult) -> LogDirDescription:
    replicas = {
        TopicPartition(topic.name, each.partition_index): ReplicaInfo(
            each.partition_size, each.offset_lag, each.is_future_key
        )
        for topic in found.topics
        for each in topic.partitions
    }
    error = refusal(found.error_code, about=found.log_dir)
    return LogDirDescription(
        error, replicas, found.total_bytes, found.usable_bytes, found.is_cordoned
    )
