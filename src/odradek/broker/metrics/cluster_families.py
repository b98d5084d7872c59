"""``kafka_controller_…``, and the metadata log as its quorum and as this broker sees it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.broker.metrics.family import Family, counter, gauge
from odradek.broker.metrics.quorum_families import QuorumFamilies
from odradek.metadata.partition import NO_LEADER

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer


class ClusterFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        yield from self._controller()
        yield from QuorumFamilies(self._broker).collect()
        yield from self._broker_metadata()

    def _controller(self) -> Iterator[Family]:
        image = self._broker.image
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
                self._broker.metadata_offset,
            ),
        ):
            yield gauge(f"kafka_controller_kafkacontroller_{name}", help_text, value)
        yield counter(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders that were elected though records may be missing there.",
            self._broker.metrics.partition_changes.unclean_elections,
        )

    def _broker_metadata(self) -> Iterator[Family]:
        provenance = self._broker.image.provenance
        lag_ms = max(self._broker.clock.now_ms() - provenance.last_timestamp_ms, 0)
        for name, help_text, value in (
            ("offset", "The offset of the last metadata record applied.", provenance.last_offset),
            ("timestamp", "When it was written, in ms.", provenance.last_timestamp_ms),
            ("lag_ms", "How long ago that is, in ms.", lag_ms),
        ):
            full_name = f"kafka_server_brokermetadatametrics_last_applied_record_{name}"
            yield gauge(full_name, help_text, value)
