"""Records of ``__transaction_state``: one per transactional id counts, the last.

With transaction version 0 values have version 0. Version 1 adds the producer ids before and after
this one and the transaction version of the client, as tagged fields; what version 0 cannot carry
is known to the living coordinator only, and forgotten by the next.
"""

from itertools import groupby
from typing import Final

from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.transaction.metadata import TransactionMetadata
from odradek.coordinator.transaction.settings import FLEXIBLE_RECORDS_VERSION
from odradek.coordinator.transaction.state import DURABLE_STATES, TransactionState
from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.transaction_records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_key, decode_versioned, record_type

_STATE_IDS: Final = frozenset(state.value for state in DURABLE_STATES)


def transaction_record(
    metadata: TransactionMetadata, transaction_version: int
) -> CoordinatorRecord:
    version = int(transaction_version >= FLEXIBLE_RECORDS_VERSION)
    is_empty = metadata.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state.value,
        transaction_partitions=None if is_empty else _by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.updated_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.next_producer_epoch = metadata.next_producer_epoch
        value.client_transaction_version = metadata.client_version
    return CoordinatorRecord(_key(metadata.transactional_id), value, version)


def tombstone(transactional_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(_key(transactional_id), None)


def _key(transactional_id: str) -> TransactionLogKey:
    return TransactionLogKey(transactional_id=transactional_id)


def _by_topic(metadata: TransactionMetadata) -> list[PartitionsSchema]:
    ordered = groupby(sorted(metadata.partitions), key=lambda partition: partition.topic)
    return [
        PartitionsSchema(topic=topic, partition_ids=[each.partition for each in partitions])
        for topic, partitions in ordered
    ]


def loaded_metadata(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=TransactionState(value.transaction_status),
        partitions=frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        updated_ms=value.transaction_last_update_timestamp_ms,
        client_version=value.client_transaction_version,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        next_producer_epoch=value.next_producer_epoch,
    )


def decode_transaction_record(
    key: bytes, value: bytes | None
) -> tuple[Message, Message | None] | None:
    """Decode a record; None for a type that is not known here.

    Raises:
        CorruptionError: The bytes are not what their type says.
    """
    if record_type(key) != TransactionLogKey.ID:
        return None
    decoded = decode_key(TransactionLogKey, key)
    if value is None:
        return decoded, None
    logged = decode_versioned(TransactionLogValue, value)
    if logged.transaction_status not in _STATE_IDS:
        problem = f"transaction {decoded.transactional_id}: state {logged.transaction_status}"
        raise CorruptionError(problem)
    return decoded, logged
