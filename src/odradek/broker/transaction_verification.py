"""May a producer write to partitions in its transaction? Asked before the first write (KIP-890).

The transaction's coordinator answers, in this turn of the loop or later: what it says must be
committed first. So that a late batch can never begin a transaction that no marker ends, an answer
is void if in between a marker came to the partition, or a later epoch of the producer asked.
"""

from collections.abc import Callable, Mapping
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

    broker.transactions.add_or_verify(
        transactional_id, *producer, list(asked), answered, is_add=is_add, version=version
    )
