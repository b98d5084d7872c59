"""The transaction coordinator of this node: the shards of ``__transaction_state`` that it leads.

What a transaction is and how it ends is decided in ``odradek.coordinator.transaction``; this writes
the markers of what was decided, again and again until every partition has its own, and asks for
others on this node whether a partition is part of a transaction. A decision counts when it is
committed, and so does a marker: only then is the next step taken.

Not here: markers for partitions that other brokers lead.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
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
    from odradek.broker.broker_server import BrokerServer
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


class _MarkerWriting:
    """The markers of one transaction, while they are written."""

    __slots__ = ("failed", "is_given_up", "led", "markers")

    def __init__(self, led: Led["TransactionShard"], markers: "MarkersToWrite") -> None:
        self.led = led
        self.markers = markers
        self.failed: list[TopicPartition] = []
        """Those that wait for another try."""
        self.is_given_up = False


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    def __init__(self, broker: "BrokerServer") -> None:
        super().__init__(broker, TRANSACTION_TOPIC, self._new_shard, _decode)
        self._settings: TransactionSettings | None = None
        self.marker_retries = 0
        """Transactions some of whose markers wait for another try."""

    def on_update(self, update: MetadataUpdate) -> None:
        """Hear of a new image: other settings, another version of transactions."""
        if self._settings is None:
            return  # no shards yet
        kinds = {resource.type for resource in update.delta.configs_changed}
        if update.delta.features_changed or ResourceType.BROKER in kinds:
            _set(self._settings, self._broker.config, update.image)

    def with_producer_id(
        self,
        transactional_id: str,
        is_needed: "Callable[[TransactionShard], bool]",
        then: Callable[[int | None], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        """Call ``then`` with a new producer id if the shard will need one, else with None.

        ``failed`` is called instead if no producer id is to be had now.
        """
        try:
            needs_one = is_needed(self.shard_for(transactional_id))
        except ApiError:
            needs_one = False  # there is no shard, as ``then`` will find out
        if needs_one:
            self._broker.producer_ids.next(then, failed)
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

        ``then`` gets an error for each, NONE among them: now, or when what that rests on is
        committed. ``version`` is that of transactions which the producer works with.
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

        self.ask(transactional_id, decide, then, lambda code: then(dict.fromkeys(partitions, code)))

    def _on_applied(self, led: Led["TransactionShard"]) -> None:
        for markers in led.shard.take_markers(led.partition.log.high_watermark):
            self._write_markers(_MarkerWriting(led, markers), markers.partitions)
        if led.shard.wants_producer_id:
            self._broker.producer_ids.next(
                lambda given: self._give_producer_id(led, given),
                lambda _code: None,  # the transaction's turn comes again
            )

    def _give_producer_id(self, led: Led["TransactionShard"], producer_id: int) -> None:
        """Let a transaction be aborted that took too long and whose epochs are used up."""
        led.shard.give_producer_id(producer_id)
        self._arm(led)

    def _write_markers(self, writing: _MarkerWriting, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            if self._is_over(writing):
                return
            self._write_marker(writing, partition)

    def _is_over(self, writing: _MarkerWriting) -> bool:
        led = writing.led
        is_ours = self._led.get(led.partition.key.partition) is led
        return writing.is_given_up or not is_ours  # else the new leader writes them

    def _write_marker(self, writing: _MarkerWriting, partition: TopicPartition) -> None:
        markers = writing.markers
        outcome = partial(self._on_marker, writing, partition)
        try:
            led, end_offset = append_marker(
                self._broker,
                partition,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                is_commit=markers.is_commit,
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=markers.transaction_version,
            )
        except ApiError as error:
            outcome(error.code)
            return
        # Without a deadline: it is committed some day, or refused when leadership is lost.
        led.when_committed(end_offset, outcome)

    def _on_marker(
        self, writing: _MarkerWriting, partition: TopicPartition, code: ErrorCode
    ) -> None:
        """Go on when a marker is committed, or is not."""
        led, markers = writing.led, writing.markers
        if self._is_over(writing):
            return
        if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            # There was a marker of a later coordinator, or of somebody who claimed to be one. As
            # with Kafka the transaction stays as it was decided, and its producer is told that it
            # goes on. A coordinator of a later epoch writes what is left.
            writing.is_given_up = True
            named = markers.transactional_id
            _log.error("markers of %s are given up: %s: %s", named, partition, code.name)
        elif code and code not in _NEEDS_NO_MARKER:
            # Of a directory that is full or broken there is an event already; not one a try.
            is_known = code is ErrorCode.KAFKA_STORAGE_ERROR
            level = logging.DEBUG if is_known else logging.WARNING
            named = markers.transactional_id
            _log.log(level, "marker of %s for %s: %s", named, partition, code.name)
            self._retry_later(writing, partition)
        else:
            written = led.shard.on_marker_written(
                markers.transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                partition,
                self.now(),
                prepared_offset=markers.prepared_offset,
            )
            self._apply_each(led, (written,))

    def _retry_later(self, writing: _MarkerWriting, partition: TopicPartition) -> None:
        writing.failed.append(partition)
        if len(writing.failed) == 1:
            self.marker_retries += 1
            loop = asyncio.get_running_loop()
            loop.call_later(MARKER_RETRY_MS / 1000, self._retry_markers, writing)

    def _retry_markers(self, writing: _MarkerWriting) -> None:
        self.marker_retries -= 1
        failed, writing.failed = writing.failed, []
        self._write_markers(writing, failed)

    def _new_shard(self, leader_epoch: int) -> "TransactionShard":
        from odradek.coordinator.transaction.settings import TransactionSettings
        from odradek.coordinator.transaction.shard import TransactionShard

        if self._settings is None:
            self._settings = TransactionSettings()
            _set(self._settings, self._broker.config, self._broker.image)
        shard = TransactionShard(self._settings, self._broker.random)
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
