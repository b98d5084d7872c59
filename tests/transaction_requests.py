"""A transactional producer that speaks the protocol itself, in whichever version is asked for."""

import time
from collections.abc import Iterable, Sequence

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

TIMEOUT_MS = 60_000
TRANSACTION_KEY = 1
GROUP_KEY = 0
INIT_VERSION = 5
ADD_VERSION = 3
PRODUCE_VERSION = 12
END_VERSION = 5
T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def find_coordinator(connection: BrokerConnection, key: str, key_type: int) -> None:
    """Have the topic of a coordinator made, as a client's first question does."""
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    (found,) = connection.ask(request, FindCoordinatorResponse).coordinators
    assert not found.error_code, found.error_message


class TransactionalProducer:
    """Does nothing by itself but count: sequences, and the epoch that EndTxn v5 answers with."""

    def __init__(
        self,
        connection: BrokerConnection,
        transactional_id: str = "tx",
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = self.producer_epoch = -1
        self.timeout_ms = timeout_ms
        self._connection = connection
        self._sequences: dict[TopicPartition, int] = {}

    def begin(self) -> "TransactionalProducer":
        """Find the coordinator and get an id, as every transactional producer begins."""
        find_coordinator(self._connection, self.transactional_id, TRANSACTION_KEY)
        while (response := self.init()).error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass  # what the producer before it left open is aborted first
        assert not response.error_code, ErrorCode(response.error_code)
        self.take(response)
        return self

    def take(self, given: InitProducerIdResponse | EndTxnResponse) -> None:
        """Go on under the id and epoch of an answer."""
        self.producer_id, self.producer_epoch = given.producer_id, given.producer_epoch
        self._sequences.clear()

    def init(
        self,
        version: int = INIT_VERSION,
        *,
        had: tuple[int, int] = (-1, -1),
        two_phase: bool = False,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=had[0],
            producer_epoch=had[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )
        return self._connection.ask(request, InitProducerIdResponse, version)

    def add(
        self, *partitions: TopicPartition, version: int = ADD_VERSION
    ) -> dict[TopicPartition, ErrorCode]:
        """AddPartitionsToTxn as producers send it, up to version 3."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=topics_of(partitions),
        )
        answer = self._connection.ask(request, AddPartitionsToTxnResponse, version)
        return errors_in(answer.results_by_topic_v3_and_below)

    def as_transaction(
        self, *partitions: TopicPartition, verify: bool
    ) -> AddPartitionsToTxnTransaction:
        """Return one of the transactions that a broker asks about, from version 4 on."""
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            verify_only=verify,
            topics=topics_of(partitions),
        )

    def add_offsets(self, group_id: str = "g", version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        answer = self._connection.ask(request, AddOffsetsToTxnResponse, version)
        return ErrorCode(answer.error_code)

    def produce(
        self, *values: bytes, partition: TopicPartition = T0, version: int = PRODUCE_VERSION
    ) -> ErrorCode:
        """Send one batch; versions from 13 on know topics by id and are not for this."""
        request = self.produce_request(*values, partition=partition)
        answer = self._connection.ask(request, ProduceResponse, version)
        code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
        if not code:
            self._sequences[partition] = self._sequences.get(partition, 0) + len(values)
        return code

    def produce_request(self, *values: bytes, partition: TopicPartition = T0) -> ProduceRequest:
        batch = make_batch(
            values,
            timestamp=time.time_ns() // 1_000_000,  # like the markers: no segment for each
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self._sequences.get(partition, 0),
            transactional=True,
        )
        data = PartitionProduceData(index=partition.partition, records=batch)
        topic = TopicProduceData(name=partition.topic, partition_data=[data])
        return ProduceRequest(
            transactional_id=self.transactional_id, acks=-1, timeout_ms=1000, topic_data=[topic]
        )

    def commit_offset(
        self,
        offset: int,
        *,
        partition: TopicPartition = T0,
        group_id: str = "g",
        generation: int = -1,
        member_id: str = "",
        version: int = 5,
    ) -> ErrorCode:
        committed = TxnOffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata=""
        )
        topic = TxnOffsetCommitRequestTopic(name=partition.topic, partitions=[committed])
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            topics=[topic],
        )
        answer = self._connection.ask(request, TxnOffsetCommitResponse, version)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def end_request(self, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )

    def end(self, *, commit: bool, version: int = END_VERSION) -> ErrorCode:
        """End the transaction; with version 5 the next one has another epoch."""
        answer = self._connection.ask(self.end_request(commit=commit), EndTxnResponse, version)
        code = ErrorCode(answer.error_code)
        if not code and version >= END_VERSION:
            self.take(answer)
        return code


def topics_of(partitions: Iterable[TopicPartition]) -> list[AddPartitionsToTxnTopic]:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(number)
    return list(topics.values())


def errors_in(
    results: Sequence[AddPartitionsToTxnTopicResult],
) -> dict[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
        for topic in results
        for each in topic.results_by_partition
    }
