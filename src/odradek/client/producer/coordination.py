"""What a producer asks coordinators for: ids, partitions and offsets in transactions, their end.

Each call tries again until it works, a refusal is final, or its time is over; a coordinator that is
gone or moved is looked for anew. What a refusal means for the transaction is not decided here.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from odradek.client.cluster import GROUP, TRANSACTION, Cluster
from odradek.client.errors import BrokerError, ConnectionLostError, KafkaTimeoutError, check
from odradek.client.producer.batch import NO_PRODUCER, ProducerIdAndEpoch
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import GroupMetadata, OffsetToCommit, Transaction
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
)
from odradek.protocol.generated.end_txn import EndTxnRequest, EndTxnResponse
from odradek.protocol.generated.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from odradek.protocol.message import Message
from odradek.wire.connection import Request

R = TypeVar("R", bound=Message)

Offsets = Mapping[TopicPartition, int | OffsetToCommit]

_INT_MAX: Final = 2**31 - 1
_INIT_WITH_EPOCH: Final = 3
# The newest versions in which each API means what it did before transaction.version 2, and in
# which topics are named, respectively: brokers take the later ones for something else.
_ADD_PARTITIONS_OF_CLIENTS_MAX: Final = 3
_END_V1_MAX: Final = 4
_OFFSETS_V1_MAX: Final = 4
_OFFSETS_BY_NAME_MAX: Final = 5
_TRANSACTION_VERSION_2: Final = 2
_LOOK_AGAIN: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})


class Coordination:
    def __init__(self, cluster: Cluster, options: ProducerOptions) -> None:
        self._cluster = cluster
        self._options = options

    async def init_idempotent(self) -> ProducerIdAndEpoch:
        """Get an id from any broker, once.

        Raises:
            KafkaError: There is none now.
        """
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_INT_MAX)
        response = await self._cluster.ask_any(request, InitProducerIdResponse)
        check(response.error_code, about="InitProducerId")
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def init_transactional(
        self, transactional_id: str, producer: ProducerIdAndEpoch = NO_PRODUCER
    ) -> ProducerIdAndEpoch:
        """Get id and epoch of a transactional id, and end what an earlier producer left open.

        With the ``producer`` one is already, only the next epoch.
        """

        def request(version: int) -> InitProducerIdRequest:
            made = InitProducerIdRequest(
                transactional_id=transactional_id,
                transaction_timeout_ms=self._options.transaction_timeout_ms,
            )
            if version >= _INIT_WITH_EPOCH:
                made.producer_id, made.producer_epoch = producer
            return made

        response = await self._ask(
            transactional_id,
            TRANSACTION,
            request,
            InitProducerIdResponse,
            lambda answer: [answer.error_code],
        )
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def has_version_2(self, transactional_id: str) -> bool:
        """Whether the coordinator's cluster has transaction.version 2."""
        node_id = await self._cluster.coordinator(transactional_id, TRANSACTION)
        connection = await self._cluster.connection(node_id)
        level = connection.versions.features.get("transaction.version", 0)
        return level >= _TRANSACTION_VERSION_2

    async def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition],
    ) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, partition in partitions:
            by_topic.setdefault(topic, []).append(partition)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in by_topic.items()
            ],
        )

        def codes(response: AddPartitionsToTxnResponse) -> list[int]:
            return [
                partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            ]

        await self._ask(
            transactional_id,
            TRANSACTION,
            request,
            AddPartitionsToTxnResponse,
            codes,
            version_max=_ADD_PARTITIONS_OF_CLIENTS_MAX,
        )

    async def add_offsets(
        self, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str
    ) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        await self._ask(
            transactional_id,
            TRANSACTION,
            request,
            AddOffsetsToTxnResponse,
            lambda answer: [answer.error_code],
        )

    async def commit_offsets(
        self,
        transaction: Transaction,
        producer: ProducerIdAndEpoch,
        offsets: Offsets,
        group: GroupMetadata,
    ) -> None:
        """Put a group's offsets into the transaction, at the group's coordinator."""

        def request(version: int) -> TxnOffsetCommitRequest:
            made = TxnOffsetCommitRequest(
                transactional_id=transaction.transactional_id,
                group_id=group.group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                topics=_offset_topics(offsets),
            )
            if version >= 3:
                made.generation_id_or_member_epoch = group.generation_id
                made.member_id = group.member_id
                made.group_instance_id = group.group_instance_id
            return made

        await self._ask(
            group.group_id,
            GROUP,
            request,
            TxnOffsetCommitResponse,
            lambda answer: [
                each.error_code for topic in answer.topics for each in topic.partitions
            ],
            version_max=_OFFSETS_BY_NAME_MAX if transaction.is_v2 else _OFFSETS_V1_MAX,
        )

    async def end(
        self, transaction: Transaction, producer: ProducerIdAndEpoch, *, is_commit: bool
    ) -> ProducerIdAndEpoch:
        """Commit or abort; return who the producer is from now on."""
        request = EndTxnRequest(
            transactional_id=transaction.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        response = await self._ask(
            transaction.transactional_id,
            TRANSACTION,
            request,
            EndTxnResponse,
            lambda answer: [answer.error_code],
            version_max=None if transaction.is_v2 else _END_V1_MAX,
        )
        if response.producer_id < 0:
            return producer
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def _ask(
        self,
        key: str,
        key_type: int,
        request: Request,
        response: type[R],
        codes: Callable[[R], Iterable[int]],
        *,
        version_max: int | None = None,
    ) -> R:
        """Ask a coordinator until it answers without error, for ``max.block.ms`` at most."""
        about = response.__name__.removesuffix("Response")

        async def attempt() -> R:
            try:
                node_id = await self._cluster.coordinator(key, key_type)
                answer = await self._cluster.ask(
                    node_id, request, response, version_max=version_max
                )
                for code in _worst_first(codes(answer)):
                    check(code, about=f"{about} of {key}")
            except (ConnectionLostError, KafkaTimeoutError):
                self._cluster.forget_coordinator(key, key_type)
                raise
            except BrokerError as error:
                if error.code in _LOOK_AGAIN:
                    self._cluster.forget_coordinator(key, key_type)
                raise
            return answer

        limit_ms = self._options.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                return await self._cluster.retry(attempt, limit_ms, about=f"{about} of {key}")
        except KafkaTimeoutError:
            raise
        except TimeoutError as error:
            raise KafkaTimeoutError(f"{about} of {key}: no answer in {limit_ms} ms") from error


def _worst_first(codes: Iterable[int]) -> list[int]:
    """Return refusals that are final before those that may pass, and what only follows last."""

    def rank(code: int) -> int:
        if code == ErrorCode.OPERATION_NOT_ATTEMPTED:
            return 2
        return 1 if BrokerError(code).retriable else 0

    return sorted((code for code in codes if code), key=rank)


def _offset_topics(offsets: Offsets) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (name, index), offset in offsets.items():
        made = TxnOffsetCommitRequestPartition(partition_index=index, committed_metadata="")
        if isinstance(offset, int):
            made.committed_offset = offset
        else:
            made.committed_offset = offset.offset
            made.committed_metadata = offset.metadata or ""
            if offset.leader_epoch is not None:
                made.committed_leader_epoch = offset.leader_epoch
        topic = topics.setdefault(name, TxnOffsetCommitRequestTopic(name=name))
        topic.partitions.append(made)
    return list(topics.values())
