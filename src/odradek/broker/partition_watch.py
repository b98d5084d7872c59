"""Logs when partitions that this node leads enter a state that somebody must do something about.

- fewer replicas are in sync than ``min.insync.replicas``: records with acks=all are refused
- a replica leaves an ISR and rejoins it again and again
- a reassignment adds a replica on a broker that is fenced, and waits for it

One change of the metadata may bring thousands of partitions into a state: they are one line. What
has no leader is reported by the active controller (``control.cluster_events``).
"""

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from odradek.core.event import Event
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.partition import PartitionImage
from odradek.replication.isr_flaps import IsrFlaps

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.broker.replica_changes import Role

NAMED_MAX: Final = 10
"""Partitions that a line names."""
_log: Final = logging.getLogger("odradek.replication")


class PartitionWatch:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._flaps = IsrFlaps()
        self._under_min_isr: set[TopicPartition] = set()
        self._adding: dict[TopicPartition, tuple[int, ...]] = {}
        """The replicas that moves add to partitions that are led here."""
        self._waited_for: set[int] = set()
        """Fenced brokers that moves have been reported to wait for."""

    def on_update(
        self, before: ClusterImage, update: MetadataUpdate, roles: Iterable["Role"]
    ) -> Steps[None]:
        """Look at what has changed, when it has taken effect."""
        entered: list[TopicPartition] = []
        left: list[TopicPartition] = []
        now_ms = self._broker.clock.monotonic_ms()
        for role in roles:
            yield
            is_led = role.partition.leader == self._broker.node_id
            if is_led:
                self._note_isr(before, role, now_ms)
            self._note_move(role.at, role.partition, is_led=is_led)
            is_under = is_led and self._is_under_min_isr(role.at)
            if is_under != (role.at in self._under_min_isr):
                (entered if is_under else left).append(role.at)
        if update.delta.topics_deleted:
            self._forget_deleted()
        self._under_min_isr.update(entered)
        self._under_min_isr.difference_update(left)
        self._report_isrs(update.image, entered, left)
        for flapping in self._flaps.take_news(now_ms):
            _log.warning(
                Event(
                    "a replica leaves the ISR and rejoins it repeatedly: it is too slow for"
                    " replica.lag.time.max.ms, or its broker stands still now and then; see the"
                    " log of that broker",
                    broker_id=flapping.broker_id,
                    times=flapping.times,
                    in_ms=flapping.span_ms,
                    **_named(flapping.partitions),
                )
            )
        self._report_moves(update.image)

    def _note_isr(self, before: ClusterImage, role: "Role", now_ms: int) -> None:
        topic = before.topics_by_id.get(role.topic_id)
        was = None if topic is None else topic.partitions.get(role.at.partition)
        if was is not None and was.isr != role.partition.isr:
            self._flaps.on_isr(role.at, was.isr, role.partition.isr, now_ms)

    def _note_move(self, at: TopicPartition, partition: PartitionImage, *, is_led: bool) -> None:
        if is_led and partition.adding:
            self._adding[at] = partition.adding
        else:
            self._adding.pop(at, None)

    def _is_under_min_isr(self, at: TopicPartition) -> bool:
        partition = self._broker.replicas.find(at)
        leadership = None if partition is None else partition.leadership
        return leadership is not None and leadership.is_under_min_isr

    def _forget_deleted(self) -> None:
        replicas = self._broker.replicas
        self._under_min_isr = {each for each in self._under_min_isr if replicas.find(each)}
        self._adding = {at: ids for at, ids in self._adding.items() if replicas.find(at)}

    def _report_isrs(
        self,
        image: ClusterImage,
        entered: Sequence[TopicPartition],
        left: Sequence[TopicPartition],
    ) -> None:
        if entered:
            missing = sorted({each for at in entered for each in _out_of_sync(image, at)})
            _log.warning(
                Event(
                    "partitions are under min.insync.replicas, and records with acks=all refused:"
                    " start the missing replicas, or wait until they have caught up",
                    missing=missing,
                    **_named(entered),
                )
            )
        if left and not self._under_min_isr:
            _log.info(Event("no partition that is led here is under min.insync.replicas any more"))

    def _report_moves(self, image: ClusterImage) -> None:
        """Report a fenced broker once; again when it was back in between."""
        if not self._adding and not self._waited_for:
            return
        waiting: dict[int, list[TopicPartition]] = {}
        for at, adding in self._adding.items():
            for broker_id in adding:
                broker = image.brokers.get(broker_id)
                if broker is None or broker.fenced:
                    waiting.setdefault(broker_id, []).append(at)
        for broker_id in sorted(waiting.keys() - self._waited_for):
            _log.warning(
                Event(
                    "moves of partitions wait for a broker that is fenced: start it, or stop the"
                    " moves with `odradek reassign-partitions --cancel`",
                    broker_id=broker_id,
                    **_named(waiting[broker_id]),
                )
            )
        self._waited_for = set(waiting)


def _out_of_sync(image: ClusterImage, at: TopicPartition) -> list[int]:
    topic = image.topics.get(at.topic)
    partition = None if topic is None else topic.partitions.get(at.partition)
    if partition is None:
        return []
    return [each for each in partition.replicas if each not in partition.isr]


def _named(partitions: Sequence[TopicPartition]) -> dict[str, object]:
    return {"count": len(partitions), "partitions": sorted(partitions)[:NAMED_MAX]}
