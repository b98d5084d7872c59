"""May a producer write to partitions in its transaction? Asked before the first write (KIP-890).

The transaction's coordinator answers, in this turn of the loop or later: it may be another broker,
and what it says must be committed first. So that a late batch can never begin a transaction that no
marker ends, an answer is void if in between a marker came to the partition, or a later epoch of the
producer asked.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.partition import Partition, Verification
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

Errors = dict[TopicPartition, ErrorCode]
Producer = tuple[int, int]
"""Producer id and epoch."""


def verify(
    broker: "BrokerServer",
    transactional_id: str,
    producer: Producer,
    partitions: Mapping[TopicPartition, None],
    then: Callable[[Errors], None],
    *,
    is_add: bool,
    version: int,
) -> None:
    """Have partitions made part of a transaction (``is_add``), or verify that they are.

    ``then`` gets a code of the coordinator's for each, or NONE: those may be written to in the same
    turn. Where the transaction is open already its coordinator is not asked.
    """
    errors: Errors = dict.fromkeys(partitions, ErrorCode.NONE)
    asked: dict[TopicPartition, tuple[Partition, Verification]] = {}
    is_asked = is_add or broker.config.flag("transaction.partition.verification.enable")
    for key in partitions:
        try:
            partition = broker.replicas.leader(key)
        except ApiError as error:
            errors[key] = error.code
            continue
        if is_asked and not partition.has_transaction(*producer):
            asked[key] = partition, partition.begin_verification(*producer)
    if not asked:
        then(errors)
        return

    def answered(codes: Errors) -> None:
        for key, (partition, verification) in asked.items():
            is_valid = partition.end_verification(verification)
            code = codes[key]
            errors[key] = code if code or is_valid else ErrorCode.INVALID_TXN_STATE
        then(errors)

    broker.transactions.ask_coordinator(
        transactional_id, *producer, list(asked), answered, is_add=is_add, version=version
    )


def add_patiently(
    broker: "BrokerServer",
    transactional_id: str,
    producer: Producer,
    partitions: Mapping[TopicPartition, None],
    then: Callable[[Errors], None],
    *,
    version: int,
    tries_left: int | None = None,
) -> None:
    """Have partitions added as ``verify`` does; while the transaction before is ended, try again.

    A producer may begin its next transaction while the markers of the last are still written. The
    broker waits a moment for them (``add.partitions.to.txn.retry.backoff.max.ms``): to send the
    batch again would cost more.
    """
    backoff_ms = broker.config.integer("add.partitions.to.txn.retry.backoff.ms")
    if tries_left is None:
        max_ms = broker.config.integer("add.partitions.to.txn.retry.backoff.max.ms")
        tries_left = -(-max_ms // backoff_ms)
    add = partial(add_patiently, broker, transactional_id, producer, partitions, then)

    def answered(errors: Errors) -> None:
        is_ending = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
        if not is_ending or tries_left <= 0 or not broker.is_ready:
            then(errors)
            return
        again = partial(add, version=version, tries_left=tries_left - 1)
        asyncio.get_running_loop().call_later(backoff_ms / 1000, again)

    verify(broker, transactional_id, producer, partitions, answered, is_add=True, version=version)
