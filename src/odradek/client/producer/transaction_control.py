"""Carries out what an application wants of its transactions, at their coordinator.

A call that runs out of time (``KafkaTimeoutError``) leaves the producer as it was: the same call
can be made again, and has to be, before any other.
"""

from collections.abc import Awaitable, Callable

from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError, KafkaTimeoutError
from odradek.client.producer.coordination import Offsets
from odradek.client.producer.sender import Sender
from odradek.client.producer.sequences import Sequences
from odradek.client.producer.settings import ProducerOptions
from odradek.client.producer.transaction import GroupMetadata, Transaction
from odradek.client.producer.transaction import TransactionState as State


class TransactionControl:
    def __init__(
        self,
        options: ProducerOptions,
        cluster: Cluster,
        transaction: Transaction,
        sequences: Sequences,
        sender: Sender,
        flush: Callable[[], Awaitable[None]],
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._transaction = transaction
        self._sequences = sequences
        self._sender = sender
        self._flush = flush
        self._coordination = sender.coordination

    async def init(self) -> None:
        transaction = self._transaction
        transaction.move_to(State.INITIALIZING)
        try:
            producer = await self._coordination.init_transactional(transaction.transactional_id)
            transaction.is_v2 = await self._has_version_2()
        except BaseException:
            transaction.move_to(State.UNINITIALIZED)
            raise
        self._sequences.reset(producer)
        transaction.move_to(State.READY)

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        transaction = self._transaction
        transaction.check_in_transaction()
        if not offsets:
            return
        try:
            if not transaction.is_v2:
                await self._coordination.add_offsets(
                    transaction.transactional_id, self._sequences.producer, group.group_id
                )
            transaction.is_begun = True
            await self._coordination.commit_offsets(
                transaction, self._sequences.producer, offsets, group
            )
        except KafkaTimeoutError as error:
            transaction.fail_abortably(error)
            raise
        except KafkaError as error:
            raise transaction.on_refused(error) from error

    async def commit(self) -> None:
        transaction = self._transaction
        transaction.start_commit()
        await self._flush()
        transaction.check_usable()
        await self._end(is_commit=True)

    async def abort(self) -> None:
        transaction = self._transaction
        transaction.start_abort()
        self._sender.delivery.on_transaction_lost()
        await self._flush()  # what is on the wire comes back, one way or the other
        await self._sender.settle()
        await self._end(is_commit=False)

    async def _end(self, *, is_commit: bool) -> None:
        transaction, producer = self._transaction, self._sequences.producer
        transactional_id = transaction.transactional_id
        try:
            # The coordinator may or may not have heard of these. It ends what there is of a
            # producer that asks for its next epoch.
            is_unclear = bool(transaction.adding) and not transaction.is_begun
            if transaction.is_begun:
                producer = await self._coordination.end(transaction, producer, is_commit=is_commit)
            is_upgraded = not transaction.is_v2 and await self._has_version_2()
            if transaction.needs_epoch or is_unclear or is_upgraded:
                producer = await self._coordination.init_transactional(transactional_id, producer)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            raise transaction.on_refused(error) from error
        transaction.is_v2 = transaction.is_v2 or is_upgraded
        if producer != self._sequences.producer:
            self._sequences.reset(producer)
        transaction.on_ended()

    async def _has_version_2(self) -> bool:
        transactional_id = self._transaction.transactional_id
        return await self._cluster.retry(
            lambda: self._coordination.has_version_2(transactional_id), self._options.max_block_ms
        )
