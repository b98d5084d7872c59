"""The names of kafka_exporter, a program that many run beside Kafka; here it is not needed.

Offsets of a partition are told by its leader, so with several nodes to scrape each is told once.
Consumer groups (``kafka_consumergroup_…``) are told by their coordinator: ``group_families``.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.metrics.family import Family, Kind, Sample, gauge
from odradek.metadata.partition import PartitionImage
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

_PARTITION: Final[tuple[tuple[str, str, Callable[[PartitionImage], float]], ...]] = (
    ("leader", "The id of the leader.", lambda p: p.leader),
    (
        "leader_is_preferred",
        "1 if the leader is the first of the replicas.",
        lambda p: p.leader == p.preferred_leader,
    ),
    ("replicas", "Replicas of the partition.", lambda p: len(p.replicas)),
    ("in_sync_replica", "Replicas that are in sync.", lambda p: len(p.isr)),
    (
        "under_replicated_partition",
        "1 if a replica is not in sync.",
        lambda p: len(p.isr) < len(p.replicas),
    ),
)
_OFFSETS: Final[tuple[tuple[str, str, Callable[[Log], float]], ...]] = (
    ("current_offset", "Up to where consumers can read.", lambda log: log.high_watermark),
    ("oldest_offset", "The first offset there is.", lambda log: log.log_start_offset),
)


class ExporterFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        yield from self._brokers()
        yield from self._topics()
        yield from self._partitions()
        yield from self._offsets()

    def _brokers(self) -> Iterator[Family]:
        brokers = self._broker.image.brokers
        alive = sum(not broker.fenced for broker in brokers.values())
        yield gauge("kafka_brokers", "Brokers that are not fenced.", alive)
        samples = []
        for broker_id, broker in brokers.items():
            endpoint = next(iter(broker.endpoints.values()), None)
            if endpoint is not None and not broker.fenced:
                address = f"{endpoint.host}:{endpoint.port}"
                samples.append(Sample({"id": str(broker_id), "address": address}, 1))
        yield Family("kafka_broker_info", "1, labelled with a broker.", Kind.GAUGE, samples)

    def _topics(self) -> Iterator[Family]:
        topics = self._broker.image.topics
        samples = [Sample({"topic": name}, len(t.partitions)) for name, t in topics.items()]
        yield Family("kafka_topic_partitions", "Partitions of a topic.", Kind.GAUGE, samples)

    def _partitions(self) -> Iterator[Family]:
        labelled = [
            ({"topic": name, "partition": str(number)}, partition)
            for name, topic in self._broker.image.topics.items()
            for number, partition in topic.partitions.items()
        ]
        for name, help_text, value_of in _PARTITION:
            samples = [Sample(labels, value_of(partition)) for labels, partition in labelled]
            yield Family(f"kafka_topic_partition_{name}", help_text, Kind.GAUGE, samples)

    def _offsets(self) -> Iterator[Family]:
        labelled = [
            ({"topic": log.partition.topic, "partition": str(log.partition.partition)}, log)
            for log in self._broker.store.logs
            if self._leads(log)
        ]
        for name, help_text, value_of in _OFFSETS:
            samples = [Sample(labels, value_of(log)) for labels, log in labelled]
            yield Family(f"kafka_topic_partition_{name}", help_text, Kind.GAUGE, samples)

    def _leads(self, log: Log) -> bool:
        topic = self._broker.image.topics.get(log.partition.topic)
        partition = None if topic is None else topic.partitions.get(log.partition.partition)
        return partition is not None and partition.leader == self._broker.node_id
