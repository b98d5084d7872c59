"""Transactions and producers: who writes where, what hangs, and making an end of it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.client.admin.driver import Driver, Places, refusal
from odradek.client.admin.results import Results
from odradek.client.admin.routing import ToCoordinators, ToLeaders, by_topic
from odradek.client.cluster import TRANSACTION
from odradek.client.errors import BrokerError, KafkaError, check
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class ProducerState(NamedTuple):
    """A producer of a partition; ``transaction_start_offset`` is -1 while it has none open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


class TransactionListing(NamedTuple):
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """``start_time_ms`` is -1 while no transaction is open."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


class FencedProducer(NamedTuple):
    """The ids that the next producer would go on from."""

    producer_id: int
    producer_epoch: int


class TransactionOperations:
    _driver: Driver

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker: int | None = None,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, tuple[ProducerState, ...]]:
        """Return the producers that each partition's leader, or one broker, remembers (KIP-664)."""
        driver = self._driver

        async def to_broker(keys: Sequence[TopicPartition]) -> Places[TopicPartition]:
            assert broker is not None
            return dict.fromkeys(keys, broker)

        async def ask(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, tuple[ProducerState, ...] | KafkaError]:
            topics = [
                TopicRequest(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(keys).items()
            ]
            request = DescribeProducersRequest(topics=topics)
            response = await driver.cluster.ask(node_id, request, DescribeProducersResponse)
            answers: dict[TopicPartition, tuple[ProducerState, ...] | KafkaError] = {}
            for topic in response.topics:
                for each in topic.partitions:
                    key = TopicPartition(topic.name, each.partition_index)
                    error = refusal(each.error_code, each.error_message, about=key)
                    answers[key] = _producers(each) if error is None else error
            return answers

        route = ToLeaders(driver) if broker is None else to_broker
        return await driver.bulk(partitions, route, ask, timeout_ms=timeout_ms)

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        open_for_ms: int | None = None,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of all coordinators, or those that pass the filters.

        Raises:
            KafkaError: A broker did not answer, so the list would not be whole.
        """
        driver = self._driver
        # -1 and null are what the fields have unset, and what older versions can do without.
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if open_for_ms is None else open_for_ms,
            transactional_id_pattern=pattern,
        )

        async def ask(node_id: int) -> list[TransactionListing]:
            response = await driver.cluster.ask(node_id, request, ListTransactionsResponse)
            check(response.error_code, about="ListTransactions")
            if response.unknown_state_filters:
                raise ValueError(f"no such states: {', '.join(response.unknown_state_filters)}")
            return [
                TransactionListing(
                    each.transactional_id, each.producer_id, each.transaction_state, node_id
                )
                for each in response.transaction_states
            ]

        by_broker = (await driver.every_broker(ask, timeout_ms=timeout_ms)).unwrap()
        return sorted(each for found in by_broker.values() for each in found)

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, TransactionDescription]:
        """Return state, producer and partitions of transactional ids."""
        driver = self._driver

        async def ask(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, TransactionDescription | KafkaError]:
            request = DescribeTransactionsRequest(transactional_ids=list(ids))
            response = await driver.cluster.ask(node_id, request, DescribeTransactionsResponse)
            return {
                each.transactional_id: refusal(each.error_code, about=each.transactional_id)
                or _transaction(each, node_id)
                for each in response.transaction_states
            }

        route = ToCoordinators(driver, TRANSACTION)
        return await driver.bulk(transactional_ids, route, ask, timeout_ms=timeout_ms)

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Write an abort marker for a transaction that hangs in one partition.

        For transactions that no coordinator knows any more; the ids are in ``describe_producers``.

        Raises:
            KafkaError: The leader refused.
        """
        driver = self._driver
        topic = WritableTxnMarkerTopic(
            name=partition.topic, partition_indexes=[partition.partition]
        )
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=coordinator_epoch,
        )

        async def ask(
            node_id: int, keys: Sequence[TopicPartition]
        ) -> Mapping[TopicPartition, KafkaError | None]:
            request = WriteTxnMarkersRequest(markers=[marker])
            response = await driver.cluster.ask(node_id, request, WriteTxnMarkersResponse)
            codes = [
                each.error_code
                for written in response.markers
                for topic in written.topics
                for each in topic.partitions
            ]
            return dict.fromkeys(keys, refusal(codes[0], about=partition)) if codes else {}

        results: Results[TopicPartition, None] = await driver.bulk(
            [partition], ToLeaders(driver), ask, timeout_ms=timeout_ms
        )
        results.unwrap()

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, FencedProducer]:
        """Lock out the producers of these transactional ids; what they have open is aborted."""
        driver = self._driver

        async def ask(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, FencedProducer | KafkaError]:
            return {each: await fence(node_id, each) for each in ids}

        async def fence(node_id: int, transactional_id: str) -> FencedProducer | KafkaError:
            request = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=driver.request_timeout_ms,
            )
            response = await driver.cluster.ask(node_id, request, InitProducerIdResponse)
            if response.error_code:
                return BrokerError(response.error_code, about=transactional_id)
            return FencedProducer(response.producer_id, response.producer_epoch)

        route = ToCoordinators(driver, TRANSACTION)
        return await driver.bulk(transactional_ids, route, ask, timeout_ms=timeout_ms)


def _producers(partition: PartitionResponse) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.last_timestamp,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in partition.active_producers
    )


def _transaction(each: TransactionState, node_id: int) -> TransactionDescription:
    partitions = sorted(
        TopicPartition(topic.topic, index) for topic in each.topics for index in topic.partitions
    )
    return TransactionDescription(
        each.transactional_id,
        node_id,
        each.transaction_state,
        each.producer_id,
        each.producer_epoch,
        each.transaction_timeout_ms,
        each.transaction_start_time_ms,
        tuple(partitions),
    )
