"""Partitions: offsets by time and by name, deleting records, elections, reassignments."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Result, Results
from odradek.client.admin.routing import ToLeaders, by_topic
from odradek.client.errors import KafkaError, UnsupportedError, check
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

MOVES_PER_REQUEST_MAX: Final = 10_000
"""Kafka's controllers, and ours, refuse a request for more as a whole."""
_CONSUMER: Final = -1
# The newest version each mark came with: an old broker would take it for a point in time.
_MARK_SINCE: Final = {-3: 7, -4: 8, -5: 9, -6: 11}


class OffsetSpec(IntEnum):
    """Marks of a partition. Any other number is a time: the first record at or after it."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


class ListedOffset(NamedTuple):
    """What was found; ``offset`` is -1 where there is nothing such."""

    offset: int
    timestamp: int
    leader_epoch: int


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


class Reassignment(NamedTuple):
    """A move under way."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


class PartitionOperations:
    _driver: Driver

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec | int],
        *,
        read_committed: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, ListedOffset]:
        """Find offsets: ``{TopicPartition("orders", 0): OffsetSpec.LATEST}``, or a time in ms.

        With ``read_committed`` the latest is the end of what no open transaction holds back.
        """
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, ListedOffset | KafkaError]:
            versions = (await driver.cluster.connection(node_id)).versions
            answers: dict[TopicPartition, ListedOffset | KafkaError] = {}
            known = []
            for key in keys:
                since = _MARK_SINCE.get(specs[key], 0)
                if versions.knows(ListOffsetsRequest.ID, since):
                    known.append(key)
                else:
                    answers[key] = _too_old(specs[key])
            if known:
                request = _list_request(
                    driver, {key: specs[key] for key in known}, read_committed=read_committed
                )
                response = await driver.cluster.ask(node_id, request, ListOffsetsResponse)
                answers.update(_listed(response))
            return answers

        return await driver.bulk(specs, ToLeaders(driver), ask, timeout_ms=timeout_ms)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> Results[TopicPartition, int]:
        """Delete the records before an offset, -1 for all; the values are the new log starts."""
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, int | KafkaError]:
            topics = [
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=each, offset=before[TopicPartition(topic, each)]
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(keys).items()
            ]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=driver.request_timeout_ms)
            response = await driver.cluster.ask(node_id, request, DeleteRecordsResponse)
            return {
                (key := TopicPartition(topic.name, each.partition_index)): (
                    refusal(each.error_code, about=key) or each.low_watermark
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return await driver.bulk(before, ToLeaders(driver), ask, timeout_ms=timeout_ms)

    async def elect_leaders(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        election: ElectionType = ElectionType.PREFERRED,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Elect leaders for partitions, or with None wherever it is needed.

        ELECTION_NOT_NEEDED is the error of a partition that has the wanted leader already.
        """
        driver = self._driver
        topics = None
        if partitions is not None:
            topics = [
                TopicPartitions(topic=topic, partitions=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]

        async def ask(node_id: int) -> Results[TopicPartition, None]:
            request = ElectLeadersRequest(
                election_type=election,
                topic_partitions=topics,
                timeout_ms=driver.request_timeout_ms,
            )
            response = await driver.cluster.ask(node_id, request, ElectLeadersResponse)
            check(response.error_code, about="ElectLeaders")
            results: Results[TopicPartition, None] = Results()
            for topic in response.replica_election_results:
                for each in topic.partition_result:
                    key = TopicPartition(topic.topic, each.partition_id)
                    error = refusal(each.error_code, each.error_message, about=key)
                    results[key] = Result(error=error)
            return results

        return await driver.single(ask, route=driver.to_controller, timeout_ms=timeout_ms)

    async def alter_partition_reassignments(
        self,
        moves: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Give partitions new replicas, or with None stop the move that is under way.

        A controller takes no more than 10,000 of them at once, so more go in several requests:
        when one is refused, the moves of those before it have begun.
        To forbid a change of the replication factor, brokers of 4.1 or later are needed.
        """
        driver = self._driver

        async def ask(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            topics = [
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        _reassignable(each, moves[TopicPartition(topic, each)])
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(keys).items()
            ]
            request = AlterPartitionReassignmentsRequest(
                topics=topics,
                allow_replication_factor_change=allow_replication_factor_change,
                timeout_ms=driver.request_timeout_ms,
            )
            response = await driver.cluster.ask(
                node_id, request, AlterPartitionReassignmentsResponse
            )
            check(response.error_code, response.error_message, about="reassignment")
            return {
                (key := TopicPartition(topic.name, each.partition_index)): refusal(
                    each.error_code, each.error_message, about=key
                )
                for topic in response.responses
                for each in topic.partitions
            }

        final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        return await driver.bulk(
            moves,
            driver.to_controller,
            ask,
            timeout_ms=timeout_ms,
            final=final,
            by_controllers=True,
            keys_max=MOVES_PER_REQUEST_MAX,
        )

    async def list_partition_reassignments(
        self,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, Reassignment]:
        """Return the moves under way, of all partitions or of some."""
        driver = self._driver
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(partitions).items()
            ]

        async def ask(node_id: int) -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(
                topics=topics, timeout_ms=driver.request_timeout_ms
            )
            response = await driver.cluster.ask(
                node_id, request, ListPartitionReassignmentsResponse
            )
            check(response.error_code, response.error_message, about="reassignments")
            return {
                TopicPartition(topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return await driver.single(
            ask, route=driver.to_controller, timeout_ms=timeout_ms, by_controllers=True
        )


def _list_request(
    driver: Driver, specs: Mapping[TopicPartition, int], *, read_committed: bool
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), timestamp in specs.items():
        asked = ListOffsetsPartition(partition_index=partition, timestamp=int(timestamp))
        topics.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=int(read_committed),
        topics=[ListOffsetsTopic(name=name, partitions=each) for name, each in topics.items()],
        timeout_ms=driver.request_timeout_ms,
    )


def _listed(
    response: ListOffsetsResponse,
) -> Iterable[tuple[TopicPartition, ListedOffset | KafkaError]]:
    for topic in response.topics:
        for each in topic.partitions:
            key = TopicPartition(topic.name, each.partition_index)
            found = ListedOffset(each.offset, each.timestamp, each.leader_epoch)
            yield key, refusal(each.error_code, about=key) or found


def _too_old(spec: int) -> KafkaError:
    return UnsupportedError(f"the broker does not know {OffsetSpec(spec).name}")


def _reassignable(partition: int, replicas: Sequence[int] | None) -> ReassignablePartition:
    chosen = None if replicas is None else list(replicas)
    return ReassignablePartition(partition_index=partition, replicas=chosen)
