"""``kafka_controller_…``, and the metadata log as its quorum and as this broker sees it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.broker.metrics.family import Family, Kind, Sample, counter, gauge
from odradek.metadata.partition import NO_LEADER

if TYPE_CHECKING:
    from odradek.broker.node import Node


class ClusterFamilies:
    def __init__(self, node: "Node") -> None:
        self._node = node

    def collect(self) -> Iterator[Family]:
        yield from self._controller()
        yield from self._quorum()
        yield from self._broker_metadata()

    def _controller(self) -> Iterator[Family]:
        image = self._node.image
        partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
        offline = sum(partition.leader == NO_LEADER for partition in partitions)
        displaced = sum(partition.leader != partition.preferred_leader for partition in partitions)
        fenced = sum(broker.fenced for broker in image.brokers.values())
        for name, help_text, value in (
            ("activecontrollercount", "1 on the controller that is in charge.", 1),
            ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
            ("globalpartitioncount", "Partitions of the cluster.", len(partitions)),
            ("offlinepartitionscount", "Partitions without a leader.", offline),
            ("preferredreplicaimbalancecount", "Partitions led by another than wanted.", displaced),
            ("activebrokercount", "Brokers that are not fenced.", len(image.brokers) - fenced),
            ("fencedbrokercount", "Brokers that are fenced.", fenced),
            (
                "lastappliedrecordoffset",
                "The offset of the last metadata record in the image.",
                self._node.metadata_offset,
            ),
        ):
            yield gauge(f"kafka_controller_kafkacontroller_{name}", help_text, value)
        yield counter(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders that were elected though records may be missing there.",
            self._node.metrics.partition_changes.unclean_elections,
        )

    def _quorum(self) -> Iterator[Family]:
        metadata = self._node.metadata
        log = metadata.log
        for name, help_text, value in (
            ("current_leader", "The id of the quorum's leader.", self._node.node_id),
            ("current_epoch", "The quorum's epoch.", metadata.epoch),
            ("high_watermark", "Up to where the metadata log is committed.", log.high_watermark),
            ("log_end_offset", "Where the metadata log ends.", log.log_end_offset),
            ("log_end_epoch", "The epoch of its end.", log.leader_epochs.latest_epoch or 0),
        ):
            yield gauge(f"kafka_server_raftmetrics_{name}", help_text, value)
        yield Family(
            "kafka_server_raftmetrics_current_state",
            "1, labelled with this node's role in the quorum.",
            Kind.GAUGE,
            [Sample({"current_state": "leader"}, 1)],  # a quorum of one has nobody else
        )

    def _broker_metadata(self) -> Iterator[Family]:
        provenance = self._node.image.provenance
        lag_ms = max(self._node.clock.now_ms() - provenance.last_timestamp_ms, 0)
        for name, help_text, value in (
            ("offset", "The offset of the last metadata record applied.", provenance.last_offset),
            ("timestamp", "When it was written, in ms.", provenance.last_timestamp_ms),
            ("lag_ms", "How long ago that is, in ms.", lag_ms),
        ):
            full_name = f"kafka_server_brokermetadatametrics_last_applied_record_{name}"
            yield gauge(full_name, help_text, value)
