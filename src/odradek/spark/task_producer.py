"""The producer of one task: rows by the column into record batches, in one transaction or in none.

There is no queue, no future and no Python object per record: a part of a topic is encoded batch by
batch and sent, one batch under way per partition, all partitions at the same time. So a batch that
a broker finds too large can be cut smaller, and a row that it refuses left out, without a later
batch being in the way of the sequence numbers.

It lives on the event loop of ``sink_access``. Without a transactional id it is an idempotent
producer: retries do not double anything, tasks that are run again do.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.cluster import Cluster
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import BrokerError, ConnectionLostError, KafkaError
from odradek.client.metadata import NO_LEADER
from odradek.client.producer.batch import NO_PRODUCER, NO_SEQUENCE, SEQUENCE_MASK
from odradek.client.producer.coordination import Coordination
from odradek.client.producer.delivery import STALE_METADATA
from odradek.client.producer.produce_requests import VERSION_TOPIC_IDS
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import ProducerFencedError, Transaction
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import parse_header
from odradek.records.arrow import to_batches
from odradek.spark.sink_routing import TopicPartitions
from odradek.spark.sink_rows import BadRow, Rows

TOPIC_WAIT_MS_MAX: Final = 5_000
"""How long a topic may take to come into being. Brokers answer the same for one that is being
created and for one that never will be, so every unknown topic costs this once."""

_BY_NAME_MAX: Final = VERSION_TOPIC_IDS - 1
_V1_TRANSACTIONS_MAX: Final = _BY_NAME_MAX - 1
_CODES: Final = {int(code): code for code in ErrorCode}
_NO_SUCH_TOPIC: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}
)
_OF_ROWS: Final = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
    }
)
_FENCED: Final = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class TaskProducer:
    def __init__(
        self,
        cluster: Cluster,
        options: ProducerOptions,
        *,
        batch_bytes: int,
        now_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._batch_bytes = batch_bytes
        self._now_ms = now_ms
        self._coordination = Coordination(cluster, options)
        self._transaction: Transaction | None = None
        if options.transactional_id is not None:
            self._transaction = Transaction(options.transactional_id)
        self._producer = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        self._limits: dict[str, int] = {}

    # The transaction.

    async def begin(self) -> None:
        """Become the producer of the transactional id: who was it before is fenced.

        When this returns, what an earlier attempt left open is aborted, and what it had begun to
        commit is committed.

        Raises:
            KafkaError: The coordinator said no, or nothing, for ``max.block.ms``.
        """
        limit_ms = self._options.max_block_ms
        if self._transaction is None:
            if self._options.idempotent:
                self._producer = await self._cluster.retry(
                    self._coordination.init_idempotent, limit_ms
                )
            return
        transactional_id = self._transaction.transactional_id
        self._producer = await self._coordination.init_transactional(transactional_id)
        self._transaction.is_v2 = await self._cluster.retry(
            lambda: self._coordination.has_version_2(transactional_id), limit_ms
        )

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Commit what was sent, and with it offsets of the group named as the transaction is.

        Raises:
            KafkaError: It is not committed; or, if the last word was missing, perhaps it is.
        """
        transaction = self._transaction
        if transaction is None:
            return
        try:
            if offsets:
                await self._commit_offsets(transaction, offsets)
            await self._coordination.end(transaction, self._producer, is_commit=True)
        except BrokerError as error:
            raise self._told(error) from error

    async def _commit_offsets(
        self, transaction: Transaction, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        group = ConsumerGroupMetadata(transaction.transactional_id)
        if not transaction.is_v2:
            await self._coordination.add_offsets(
                transaction.transactional_id, self._producer, group.group_id
            )
        await self._coordination.commit_offsets(transaction, self._producer, offsets, group)

    async def abort(self) -> None:
        """Abort what was sent. If that fails, the next producer of the id does it.

        Raises:
            KafkaError: The coordinator said no, or nothing.
        """
        if self._transaction is not None and self._sequences:
            await self._coordination.end(self._transaction, self._producer, is_commit=False)

    # Topics.

    async def topics(self, names: Sequence[str]) -> dict[str, TopicPartitions | str]:
        """Return what topics look like now, or why one is not to be had.

        Raises:
            KafkaError: Nobody answered, or not about topics.
        """
        metadata = self._cluster.metadata

        async def attempt() -> None:
            await self._cluster.refresh(names)
            for name in names:
                if name not in metadata.topics:
                    raise self._missing(name)

        wait_ms = min(self._options.max_block_ms, TOPIC_WAIT_MS_MAX)
        try:
            await self._cluster.retry(attempt, wait_ms)
        except KafkaError:
            # Told below, topic by topic.
            if not all(name in metadata.topics or name in metadata.topic_errors for name in names):
                raise
        return {name: self._topic(name) for name in names}

    def _topic(self, name: str) -> TopicPartitions | str:
        known = self._cluster.metadata.topics.get(name)
        if known is None:
            error = self._missing(name)
            if error.code not in _NO_SUCH_TOPIC:
                raise error
            return str(error)
        led = [n for n, each in sorted(known.partitions.items()) if each.leader != NO_LEADER]
        return TopicPartitions(len(known.partitions), led or sorted(known.partitions))

    def _missing(self, name: str) -> BrokerError:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = self._cluster.metadata.topic_errors.get(name, unknown)
        return BrokerError(code, about=f"topic {name}")

    # Rows.

    async def send(self, parts: Mapping[TopicPartition, Rows]) -> list[BadRow]:
        """Return when all rows are in the logs of their leaders, but for those that were refused.

        Raises:
            ProducerFencedError: Another attempt of the task has taken over.
            KafkaError: Something could not be delivered.
        """
        await self._add_partitions([each for each in parts if each not in self._sequences])
        # All are waited for, also when one has failed: nothing may arrive behind the end of the
        # transaction.
        sending = (self._deliver(*each) for each in parts.items())
        bad: list[BadRow] = []
        failures: list[BaseException] = []
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                bad += outcome
        if failures:
            raise failures[0]
        return sorted(bad)

    async def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        transaction = self._transaction
        first = NO_SEQUENCE if self._producer == NO_PRODUCER else 0
        self._sequences.update(dict.fromkeys(partitions, first))
        if transaction is None or transaction.is_v2 or not partitions:
            return
        await self._coordination.add_partitions(
            transaction.transactional_id, self._producer, partitions
        )

    async def _deliver(self, partition: TopicPartition, rows: Rows) -> list[BadRow]:
        bad: list[BadRow] = []
        while len(rows):
            rows, refused = await self._deliver_until_refused(partition, rows)
            bad += refused
        return bad

    async def _deliver_until_refused(
        self, partition: TopicPartition, rows: Rows
    ) -> tuple[Rows, list[BadRow]]:
        """Send batch after batch; return rows that are left, and those that cannot be sent."""
        start = 0
        for batch in self._encode(partition, rows):
            count = parse_header(batch).records_count
            answer = await self._append(partition, batch)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return self._on_refused(partition, rows.slice(start), count, len(batch), answer)
            start += count
            sequence = self._sequences[partition]
            if sequence != NO_SEQUENCE:
                self._sequences[partition] = (sequence + count) & SEQUENCE_MASK
        return rows.slice(start), []

    def _encode(self, partition: TopicPartition, rows: Rows) -> Iterator[bytearray]:
        value = rows.find("value")
        assert value is not None
        return to_batches(
            value,
            key=rows.find("key"),
            headers=rows.find("headers"),
            timestamp_ms=self._now_ms(),
            batch_bytes_max=self._limits.get(partition.topic, self._batch_bytes),
            codec=self._options.codec,
            level=self._options.codec_level,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.epoch,
            base_sequence=self._sequences[partition],
            transactional=self._transaction is not None,
        )

    def _on_refused(
        self,
        partition: TopicPartition,
        rows: Rows,
        count: int,
        size: int,
        answer: PartitionProduceResponse,
    ) -> tuple[Rows, list[BadRow]]:
        """Find the rows at fault among the first ``count``; nothing of them is in the log."""
        error = BrokerError(answer.error_code, answer.error_message, about=str(partition))
        if error.code not in _OF_ROWS:
            raise self._told(error)
        reasons = {
            each.batch_index: each.batch_index_error_message for each in answer.record_errors
        }
        if not reasons and count > 1:
            self._limits[partition.topic] = max(1, size // 2)
            return rows, []
        is_too_large = error.code is ErrorCode.MESSAGE_TOO_LARGE
        bad = [
            rows.bad(
                index,
                f"{error}: {reason}" if reason else str(error),
                partition.topic,
                partition.partition,
                is_too_large=is_too_large,
            )
            for index, reason in (reasons or {0: None}).items()
            if 0 <= index < count
        ]
        if not bad:
            raise error
        return rows.without([index for index in reasons or (0,) if 0 <= index < count]), bad

    # Requests.

    async def _append(
        self, partition: TopicPartition, batch: bytearray
    ) -> PartitionProduceResponse:
        """Return what the leader says in the end, after what may pass has passed."""

        async def attempt() -> PartitionProduceResponse:
            known = await self._cluster.leader(partition)
            try:
                response = await self._cluster.ask(
                    known.leader,
                    self._request(partition, batch),
                    ProduceResponse,
                    version_max=self._version_max(partition),
                )
            except KafkaError:
                await self._cluster.refresh([partition.topic])
                raise
            answer = _only_answer(response)
            code = _CODES.get(answer.error_code, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in STALE_METADATA:
                await self._cluster.refresh([partition.topic])
            if code.retriable:
                raise BrokerError(code, answer.error_message, about=str(partition))
            return answer

        about = f"{partition}: not delivered"
        return await self._cluster.retry(attempt, self._options.delivery_timeout_ms, about=about)

    def _request(
        self, partition: TopicPartition, batch: bytearray
    ) -> Callable[[int], ProduceRequest]:
        def build(version: int) -> ProduceRequest:
            topic = TopicProduceData(
                partition_data=[PartitionProduceData(index=partition.partition, records=batch)]
            )
            if version >= VERSION_TOPIC_IDS:
                topic.topic_id = self._cluster.metadata.topic_id(partition.topic)
            else:
                topic.name = partition.topic
            return ProduceRequest(
                transactional_id=self._options.transactional_id,
                acks=self._options.acks,
                timeout_ms=self._options.request_timeout_ms,
                topic_data=[topic],
            )

        return build

    def _version_max(self, partition: TopicPartition) -> int | None:
        if self._transaction is not None and not self._transaction.is_v2:
            return _V1_TRANSACTIONS_MAX
        is_named = self._cluster.metadata.topic_id(partition.topic) == ZERO_UUID
        return _BY_NAME_MAX if is_named else None

    def _told(self, error: BrokerError) -> BrokerError:
        if self._transaction is None or error.code not in _FENCED:
            return error
        problem = (
            f"transaction {self._transaction.transactional_id} was taken over by another attempt "
            "of this task, or took longer than kafka.transaction.timeout.ms"
        )
        return ProducerFencedError(error.code, problem)


def _only_answer(response: ProduceResponse) -> PartitionProduceResponse:
    answers = [each for topic in response.responses for each in topic.partition_responses]
    if len(answers) != 1:
        raise ConnectionLostError(f"a Produce of one partition has {len(answers)} answers")
    return answers[0]
