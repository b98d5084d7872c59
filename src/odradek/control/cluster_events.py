"""What the active controller has to tell of the cluster: brokers fenced, partitions without leader.

Each is told when it begins, in one line for each change of the metadata, however many partitions
that concerns.
"""

import logging
from collections.abc import Mapping
from typing import Final

from odradek.core.event import Event
from odradek.core.ids import TopicPartition
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.nodes import BrokerImage
from odradek.metadata.partition import NO_LEADER, PartitionImage

NAMED_MAX: Final = 10
"""Partitions that a line names."""
_log: Final = logging.getLogger("odradek.controller")


def cluster_changed(before: ClusterImage, update: MetadataUpdate) -> None:
    """Log what a committed change means for those who look after the cluster."""
    for broker_id in sorted(update.delta.brokers_changed):
        was, now = before.brokers.get(broker_id), update.image.brokers.get(broker_id)
        if was is not None and now is not None and was.fenced != now.fenced:
            _broker_changed(broker_id, was, now)
    lost: dict[TopicPartition, PartitionImage] = {}
    found = 0
    for topic_id, number in update.delta.partitions_changed:
        topic = update.image.topics_by_id[topic_id]
        now_leader = topic.partitions[number].leader
        before_topic = before.topics_by_id.get(topic_id)
        known = None if before_topic is None else before_topic.partitions.get(number)
        if known is None or known.leader == now_leader:
            continue
        if now_leader == NO_LEADER:
            lost[TopicPartition(topic.name, number)] = topic.partitions[number]
        else:
            found += known.leader == NO_LEADER
    if lost:
        _leaders_lost(lost)
    if found:
        _log.info(Event("partitions have a leader again", count=found))


def _broker_changed(broker_id: int, was: BrokerImage, now: BrokerImage) -> None:
    if not now.fenced:
        _log.info(Event("broker unfenced", broker_id=broker_id))
    elif now.epoch != was.epoch:
        _log.info(Event("broker fenced: it was started again", broker_id=broker_id))
    elif now.in_controlled_shutdown:
        _log.info(Event("broker fenced: it is about to stop", broker_id=broker_id))
    else:
        event = (
            "broker fenced: it sent no heartbeat in broker.session.timeout.ms; see whether its"
            " process runs, stands still or cannot reach this controller"
        )
        _log.warning(Event(event, broker_id=broker_id))


def _leaders_lost(lost: Mapping[TopicPartition, PartitionImage]) -> None:
    may_lead = sorted({each for image in lost.values() for each in (*image.isr, *image.elr)})
    last = sorted({each for image in lost.values() for each in image.last_known_elr})
    _log.error(
        Event(
            "partitions have no leader: start a broker that has all committed records, or let"
            " another lead and lose records with `odradek leader-election --election-type unclean`",
            count=len(lost),
            partitions=sorted(lost)[:NAMED_MAX],
            have_all=may_lead,
            last_in_sync=last,
        )
    )
