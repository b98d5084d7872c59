"""The producer of one task: rows by the column into record batches, in one transaction or in none.

There is no queue, no future and no Python object per record: what goes to a partition is encoded
batch by batch and sent (``task_delivery``), all partitions at the same time.

It lives on the event loop of ``sink_access``. Without a transactional id it is an idempotent
producer: retries do not double anything, tasks that are run again do.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.cluster import Cluster
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import BrokerError
from odradek.client.producer.coordination import Coordination
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import ProducerFencedError, Transaction
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.spark.sink_routing import TopicPartitions
from odradek.spark.sink_rows import BadRow, Rows
from odradek.spark.task_delivery import TaskDelivery
from odradek.spark.task_requests import TaskRequests
from odradek.spark.task_topics import TaskTopics

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
        self._coordination = Coordination(cluster, options)
        self._transaction: Transaction | None = None
        if options.transactional_id is not None:
            self._transaction = Transaction(options.transactional_id)
        self._topics = TaskTopics(cluster, options.max_block_ms)
        requests = TaskRequests(cluster, options, self._transaction)
        self._delivery = TaskDelivery(requests, options, batch_bytes=batch_bytes, now_ms=now_ms)

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
                self._delivery.producer = await self._cluster.retry(
                    self._coordination.init_idempotent, limit_ms
                )
            return
        transactional_id = self._transaction.transactional_id
        self._delivery.producer = await self._coordination.init_transactional(transactional_id)
        self._transaction.is_v2 = await self._cluster.retry(
            lambda: self._coordination.has_version_2(transactional_id), limit_ms
        )

    async def commit(
        self, group_id: str = "", offsets: Mapping[TopicPartition, CommittedOffset] | None = None
    ) -> None:
        """Commit what was sent, and with it offsets of a group.

        Raises:
            KafkaError: It is not committed; or, if the last word was missing, perhaps it is.
        """
        transaction = self._transaction
        if transaction is None:
            return
        try:
            if offsets:
                await self._commit_offsets(transaction, group_id, offsets)
            await self._coordination.end(transaction, self._delivery.producer, is_commit=True)
        except BrokerError as error:
            raise self._told(error) from error

    async def _commit_offsets(
        self,
        transaction: Transaction,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
    ) -> None:
        group = ConsumerGroupMetadata(group_id)
        if not transaction.is_v2:
            await self._coordination.add_offsets(
                transaction.transactional_id, self._delivery.producer, group_id
            )
        await self._coordination.commit_offsets(
            transaction, self._delivery.producer, offsets, group
        )

    async def abort(self) -> None:
        """Abort what was sent. If that fails, the next producer of the id does it.

        Raises:
            KafkaError: The coordinator said no, or nothing.
        """
        if self._transaction is not None and self._delivery.partitions:
            await self._coordination.end(
                self._transaction, self._delivery.producer, is_commit=False
            )

    async def topics(self, names: Sequence[str]) -> dict[str, TopicPartitions | str]:
        """Return what topics look like now, or why one is not to be had.

        Raises:
            KafkaError: Nobody answered, or not about topics.
        """
        return await self._topics.look_up(names)

    async def send(self, parts: Mapping[TopicPartition, Rows]) -> list[BadRow]:
        """Return when all rows are in the logs of their leaders, but for those that were refused.

        Raises:
            ProducerFencedError: Another attempt of the task has taken over.
            KafkaError: Something could not be delivered.
        """
        await self._add_partitions(
            [each for each in parts if each not in self._delivery.partitions]
        )
        # All are waited for, also when one has failed: nothing may arrive behind the end of the
        # transaction.
        sending = (self._delivery.deliver(*each) for each in parts.items())
        bad: list[BadRow] = []
        failures: list[BaseException] = []
        for outcome in await asyncio.gather(*sending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                failures.append(outcome)
            else:
                bad += outcome
        if failures:
            first = failures[0]
            raise self._told(first) if isinstance(first, BrokerError) else first
        return sorted(bad)

    async def _add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        transaction = self._transaction
        for each in partitions:
            self._delivery.add(each)
        if transaction is None or transaction.is_v2 or not partitions:
            return
        await self._coordination.add_partitions(
            transaction.transactional_id, self._delivery.producer, partitions
        )

    def _told(self, error: BrokerError) -> BrokerError:
        if self._transaction is None or error.code not in _FENCED:
            return error
        problem = (
            f"transaction {self._transaction.transactional_id} was taken over by another attempt "
            "of this task, or took longer than kafka.transaction.timeout.ms"
        )
        return ProducerFencedError(error.code, problem)
