"""The transaction coordinator of this node: the shards of ``__transaction_state`` that it leads.

What a transaction is and how it ends is decided in ``odradek.coordinator.transaction``; this writes
the markers of what was decided, again and again until every partition has its own, and asks for
others on this node whether a partition is part of a transaction.

Not here: markers for partitions that other brokers lead.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.broker.coordinator_runtime import CoordinatorRuntime, Led
from odradek.broker.internal_topics import TRANSACTION_TOPIC
from odradek.broker.transaction_markers import append_marker
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.features import TRANSACTION_VERSION
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.protocol.message import Message

if TYPE_CHECKING:
    from odradek.broker.node import Node
    from odradek.coordinator.transaction.markers import MarkersToWrite
    from odradek.coordinator.transaction.settings import TransactionSettings
    from odradek.coordinator.transaction.shard import TransactionShard
    from odradek.core.config import BrokerConfig

MARKER_RETRY_MS: Final = 100
_log = logging.getLogger("odradek.transactions")

Errors = dict[TopicPartition, ErrorCode]
Records = Sequence[CoordinatorRecord]

# A partition that is gone needs no marker, and one that has moved on has had it.
_NEEDS_NO_MARKER: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH}
)


class _CoordinatorFencedError(Exception):
    """There was a marker of a later coordinator, or of somebody who claimed to be one."""


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    def __init__(self, node: "Node") -> None:
        super().__init__(node, TRANSACTION_TOPIC, self._new_shard, _decode)
        self._settings: TransactionSettings | None = None
        self.marker_retries = 0
        """Transactions some of whose markers wait for another try."""

    def on_update(self, update: MetadataUpdate) -> None:
        """Hear of a new image: other settings, another version of transactions."""
        if self._settings is None:
            return  # no shards yet
        kinds = {resource.type for resource in update.delta.configs_changed}
        if update.delta.features_changed or ResourceType.BROKER in kinds:
            _set(self._settings, self._node.config, update.image)

    def with_producer_id(
        self,
        transactional_id: str,
        is_needed: "Callable[[TransactionShard], bool]",
        then: Callable[[int | None], None],
    ) -> None:
        """Call ``then`` with a new producer id if the shard will need one, else with None."""
        try:
            needs_one = is_needed(self.shard_for(transactional_id))
        except ApiError:
            needs_one = False  # there is no shard, as ``then`` will find out
        if needs_one:
            self._node.producer_ids.next(then)
        else:
            then(None)

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        then: Callable[[Errors], None],
        *,
        is_add: bool,
        version: int,
    ) -> None:
        """Make partitions part of a transaction, or tell whether they are.

        ``then`` gets an error for each, NONE among them. ``version`` is that of transactions which
        the producer works with.
        """

        def decide(shard: "TransactionShard", now: Instant) -> tuple[Records, Errors]:
            if is_add:
                return shard.add_partitions(
                    transactional_id,
                    producer_id,
                    producer_epoch,
                    partitions,
                    now,
                    transaction_version=version,
                )
            return (), shard.verify_partitions(
                transactional_id, producer_id, producer_epoch, partitions
            )

        try:
            self.ask(transactional_id, decide, then)
        except ApiError as error:
            then(dict.fromkeys(partitions, error.code))

    def _on_applied(self, led: Led["TransactionShard"]) -> None:
        for markers in led.shard.take_markers(led.replica.log.high_watermark):
            self._write_markers(led, markers, markers.partitions)
        if led.shard.wants_producer_id:
            self._node.producer_ids.next(lambda given: self._give_producer_id(led, given))

    def _give_producer_id(self, led: Led["TransactionShard"], producer_id: int) -> None:
        """Let a transaction be aborted that took too long and whose epochs are used up."""
        led.shard.give_producer_id(producer_id)
        self._arm(led)

    def _write_markers(
        self,
        led: Led["TransactionShard"],
        markers: "MarkersToWrite",
        partitions: Sequence[TopicPartition],
    ) -> None:
        if self._led.get(led.replica.partition.partition) is not led:
            return  # whoever leads now writes them
        try:
            failed = [each for each in partitions if not self._write_marker(led, markers, each)]
        except _CoordinatorFencedError as error:
            # As with Kafka the transaction stays as it was decided, and its producer is told that
            # it goes on. A coordinator of a later epoch writes what is left.
            _log.error("markers of %s are given up: %s", markers.transactional_id, error)
            return
        if failed:
            self.marker_retries += 1
            loop = asyncio.get_running_loop()
            loop.call_later(MARKER_RETRY_MS / 1000, self._retry_markers, led, markers, failed)

    def _retry_markers(
        self,
        led: Led["TransactionShard"],
        markers: "MarkersToWrite",
        partitions: Sequence[TopicPartition],
    ) -> None:
        self.marker_retries -= 1
        self._write_markers(led, markers, partitions)

    def _write_marker(
        self, led: Led["TransactionShard"], markers: "MarkersToWrite", partition: TopicPartition
    ) -> bool:
        """Write one; False if it is to be tried again.

        Raises:
            _CoordinatorFencedError: A later coordinator has written there: this one never may.
        """
        try:
            append_marker(
                self._node,
                partition,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                is_commit=markers.is_commit,
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=markers.transaction_version,
            )
        except ApiError as error:
            if error.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                raise _CoordinatorFencedError(str(error)) from error
            if error.code not in _NEEDS_NO_MARKER:
                _log.warning("marker of %s for %s: %s", markers.transactional_id, partition, error)
                return False
        written = led.shard.on_marker_written(
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
            partition,
            self.now(),
            prepared_offset=markers.prepared_offset,
        )
        self._apply_each(led, (written,))
        return True

    def _new_shard(self, leader_epoch: int) -> "TransactionShard":
        from odradek.coordinator.transaction.settings import TransactionSettings
        from odradek.coordinator.transaction.shard import TransactionShard

        if self._settings is None:
            self._settings = TransactionSettings()
            _set(self._settings, self._node.config, self._node.image)
        shard = TransactionShard(self._settings, self._node.random)
        shard.coordinator_epoch = leader_epoch
        return shard


def _set(settings: "TransactionSettings", config: "BrokerConfig", image: ClusterImage) -> None:
    settings.transaction_max_timeout_ms = config.integer("transaction.max.timeout.ms")
    settings.transactional_id_expiration_ms = config.integer("transactional.id.expiration.ms")
    settings.transaction_two_phase_commit_enable = config.flag(
        "transaction.two.phase.commit.enable"
    )
    settings.transaction_abort_timed_out_transaction_cleanup_interval_ms = config.integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    )
    settings.transaction_remove_expired_transaction_cleanup_interval_ms = config.integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms"
    )
    settings.transaction_version = image.features.get(TRANSACTION_VERSION, 0)


def _decode(key: bytes, value: bytes | None) -> tuple[Message, Message | None] | None:
    from odradek.coordinator.transaction.records import decode_transaction_record

    return decode_transaction_record(key, value)
