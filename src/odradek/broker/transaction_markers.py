"""Transaction markers: the control batches that end a producer's transaction in a partition."""

from typing import TYPE_CHECKING

from odradek.broker.commit_wait import Appended
from odradek.broker.internal_topics import GROUP_TOPIC
from odradek.core.ids import TopicPartition
from odradek.records import ControlRecordType
from odradek.records.builder import build_end_transaction_marker
from odradek.records.control import EndTransactionMarker
from odradek.storage.producer_state import AppendOrigin

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer


def append_marker(
    broker: "BrokerServer",
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    is_commit: bool,
    coordinator_epoch: int,
    transaction_version: int,
) -> Appended:
    """Append a marker to a partition that this node leads; it counts when it is committed.

    Raises:
        ApiError: It does not lead it, or the marker is late.
    """
    now_ms = broker.clock.now_ms()
    kind = ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT
    batch = build_end_transaction_marker(
        EndTransactionMarker(kind, coordinator_epoch),
        timestamp=now_ms,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
    )
    if partition.topic == GROUP_TOPIC:
        led = broker.groups.append_marker(
            partition.partition,
            batch,
            producer_id,
            is_committed=is_commit,
            version=transaction_version,
        )
        return led, led.log.log_end_offset
    led = broker.replicas.leader(partition)
    led.append(
        batch,
        now_ms,
        origin=AppendOrigin.COORDINATOR,
        transaction_version=transaction_version,
    )
    return led, led.log.log_end_offset
