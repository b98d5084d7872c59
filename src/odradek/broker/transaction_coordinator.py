"""The transaction coordinator of this node: the shards of ``__transaction_state`` that it leads.

What a transaction is and how it ends is decided in ``odradek.coordinator.transaction``. This has
the markers of what was decided brought to every partition (``marker_sender``), and answers whether
a partition is part of a transaction, for this broker and for others. A decision counts when it is
committed, and so does a marker: only then is the next step taken.

A shard that is loaded hands out the markers of all that it finds decided: those that the
coordinator before it has written are written once more, which does no harm.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.coordinator_runtime import CoordinatorRuntime
from odradek.broker.coordinator_shards import Led
from odradek.broker.internal_topics import TRANSACTION_TOPIC
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
    from odradek.broker.marker_sender import MarkerSender
    from odradek.broker.verification_sender import VerificationSender
    from odradek.coordinator.transaction.markers import MarkersToWrite
    from odradek.coordinator.transaction.settings import TransactionSettings
    from odradek.coordinator.transaction.shard import TransactionShard
    from odradek.core.config import BrokerConfig

Errors = dict[TopicPartition, ErrorCode]
Records = Sequence[CoordinatorRecord]


class TransactionCoordinator(CoordinatorRuntime["TransactionShard"]):
    def __init__(self, broker: "BrokerServer") -> None:
        super().__init__(broker, TRANSACTION_TOPIC, self._new_shard, _decode)
        self._settings: TransactionSettings | None = None
        self._sender: MarkerSender | None = None
        self._questions: VerificationSender | None = None

    @property
    def marker_retries(self) -> int:
        """Transactions some of whose markers wait for another try, or for a leader."""
        return 0 if self._sender is None else self._sender.retries

    def on_update(self, update: MetadataUpdate) -> None:
        """Hear of a new image: other settings, other leaders, another version of transactions."""
        for sender in self._senders():
            sender.on_update()
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

    def ask_coordinator(
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
        """Ask the coordinator of a transaction, on whichever broker: see ``add_or_verify``.

        That is the leader of its partition of ``__transaction_state``, as this broker's image has
        it: nobody is asked who it is. If it is this broker its shard is asked at once.
        """
        coordinator = self.leader_for(transactional_id)
        if coordinator == self._broker.node_id:
            self.add_or_verify(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                then,
                is_add=is_add,
                version=version,
            )
            return
        if coordinator is None:
            then(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        from odradek.broker.verification_sender import Question, VerificationSender

        if self._questions is None:
            self._questions = VerificationSender(self._broker)
        question = Question(
            transactional_id, producer_id, producer_epoch, partitions, is_add, version, then
        )
        self._questions.ask(coordinator, question)

    def stop(self) -> None:
        super().stop()
        self.abandon()

    def abandon(self) -> None:
        """Ask and tell other brokers nothing more."""
        for sender in self._senders():
            sender.close()

    def _senders(self) -> "Iterator[MarkerSender | VerificationSender]":
        if self._sender is not None:
            yield self._sender
        if self._questions is not None:
            yield self._questions

    def _on_applied(self, led: Led["TransactionShard"]) -> None:
        for markers in led.shard.take_markers(led.partition.log.high_watermark):
            self._send_markers(led, markers)
        if led.shard.wants_producer_id:
            self._broker.producer_ids.next(
                lambda given: self._give_producer_id(led, given),
                lambda _code: None,  # the transaction's turn comes again
            )

    def _give_producer_id(self, led: Led["TransactionShard"], producer_id: int) -> None:
        """Let a transaction be aborted that took too long and whose epochs are used up."""
        led.shard.give_producer_id(producer_id)
        self._arm(led)

    def _send_markers(self, led: Led["TransactionShard"], markers: "MarkersToWrite") -> None:
        if self._sender is None:
            from odradek.broker.marker_sender import MarkerSender

            self._sender = MarkerSender(self._broker)
        is_over, written = partial(self._is_over, led), partial(self._on_markers, led, markers)
        self._sender.send(markers, is_over, written)

    def _is_over(self, led: Led["TransactionShard"]) -> bool:
        """Whether the shard has been given up: the new leader writes what is left."""
        return self._led.get(led.partition.key.partition) is not led

    def _on_markers(
        self,
        led: Led["TransactionShard"],
        markers: "MarkersToWrite",
        partitions: Iterable[TopicPartition],
    ) -> None:
        """Take note of partitions that have their marker, or need none."""
        if self._is_over(led):
            return
        now, transactional_id = self.now(), markers.transactional_id
        for partition in partitions:
            written = led.shard.on_marker_written(
                transactional_id,
                markers.producer_id,
                markers.producer_epoch,
                partition,
                now,
                prepared_offset=markers.prepared_offset,
            )
            if written.records:
                # Many transactions may be complete at once, and are so in one batch.
                self._carry_out(led, transactional_id, written)

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
