"""``kafka_controller_…``: the cluster as the metadata of this node has it, and who is in charge."""

from collections.abc import Iterator

from odradek.broker.metrics.family import Family, counter, gauge
from odradek.broker.metrics.partition_changes import PartitionChanges
from odradek.metadata.partition import NO_LEADER
from odradek.quorum.metadata_quorum import MetadataQuorum

_CONTROLLER = "kafka_controller_kafkacontroller_"
_ELECTIONS = "kafka_controller_controllerstats_"


class ControllerFamilies:
    def __init__(self, metadata: MetadataQuorum, changes: PartitionChanges) -> None:
        self._metadata = metadata
        self._changes = changes

    def collect(self) -> Iterator[Family]:
        image = self._metadata.image
        partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
        offline = sum(partition.leader == NO_LEADER for partition in partitions)
        displaced = sum(partition.leader != partition.preferred_leader for partition in partitions)
        fenced = sum(broker.fenced for broker in image.brokers.values())
        is_active = self._metadata.raft.is_leader
        for name, help_text, value in (
            ("activecontrollercount", "1 on the controller that is in charge.", is_active),
            ("globaltopiccount", "Topics of the cluster.", len(image.topics)),
            ("globalpartitioncount", "Partitions of the cluster.", len(partitions)),
            ("offlinepartitionscount", "Partitions without a leader.", offline),
            ("preferredreplicaimbalancecount", "Partitions led by another than wanted.", displaced),
            ("activebrokercount", "Brokers that are not fenced.", len(image.brokers) - fenced),
            ("fencedbrokercount", "Brokers that are fenced.", fenced),
            (
                "lastappliedrecordoffset",
                "The offset of the last metadata record in the image.",
                image.provenance.last_offset,
            ),
        ):
            yield gauge(_CONTROLLER + name, help_text, value)
        for name, help_text, value in (
            (
                "uncleanleaderelections",
                "Leaders that were elected though records may be missing there.",
                self._changes.unclean_elections,
            ),
            (
                "electionfromeligibleleaderreplicas",
                "Leaders that were elected out of the ELR: not in sync, and nothing is missing.",
                self._changes.elections_from_elr,
            ),
        ):
            yield counter(_ELECTIONS + name, help_text, value)
