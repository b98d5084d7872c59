"""``kafka_server_…``: traffic by topic, replicas, requests that wait."""

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.metrics.family import NO_LABELS, Family, Kind, Sample, counter, gauge
from odradek.controller.config_rules import TopicConfigRules
from odradek.controller.partition_index import PartitionIndex
from odradek.controller.settings import ControllerSettings
from odradek.controller.view import ClusterView
from odradek.metadata.partition import PartitionImage

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

_TRAFFIC: Final = (
    ("messagesin", "messages_in", "Records that were appended."),
    ("bytesin", "bytes_in", "Bytes of record batches that were appended."),
    ("bytesout", "bytes_out", "Bytes of record batches that were fetched by consumers."),
    ("bytesrejected", "bytes_rejected", "Bytes of batches that were refused as too large."),
    ("totalproducerequests", "total_produce_requests", "Appends that were tried, by partition."),
    ("totalfetchrequests", "total_fetch_requests", "Reads that were tried, by partition."),
    ("failedproducerequests", "failed_produce_requests", "Appends that failed unexpectedly."),
    ("failedfetchrequests", "failed_fetch_requests", "Reads that failed unexpectedly."),
)
_REPLICA_TRAFFIC: Final = (
    ("replicationbytesin", "replication_bytes_in", "Bytes fetched from leaders."),
    ("replicationbytesout", "replication_bytes_out", "Bytes sent to followers."),
    ("reassignmentbytesin", "reassignment_bytes_in", "Of these, for replicas being added."),
    ("reassignmentbytesout", "reassignment_bytes_out", "Of these, to replicas being added."),
)
_TOPIC_METRICS: Final = "kafka_server_brokertopicmetrics_"
_REPLICA_MANAGER: Final = "kafka_server_replicamanager_"


class ServerFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        yield from self._traffic()
        yield from self._leaders()
        yield from self._replicas()
        yield from self._throttles()
        yield self._purgatory()
        yield from self._metadata()

    def _traffic(self) -> Iterator[Family]:
        traffic = self._broker.replicas.traffic
        total = traffic.total()
        for name, attribute, help_text in _TRAFFIC:
            # Without a label: all topics together, as Kafka has it. Boards tell by `topic`.
            samples = [Sample(NO_LABELS, getattr(total, attribute))]
            samples += [
                Sample({"topic": topic}, getattr(counts, attribute))
                for topic, counts in traffic.topics.items()
            ]
            yield Family(_TOPIC_METRICS + name, help_text, Kind.COUNTER, samples)
        for name, attribute, help_text in _REPLICA_TRAFFIC:
            yield counter(_TOPIC_METRICS + name, help_text, getattr(traffic.replicas, attribute))

    def _leaders(self) -> Iterator[Family]:
        """Return what a leader knows of its partitions."""
        broker = self._broker
        settings = ControllerSettings(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            min_insync_replicas=broker.config.integer("min.insync.replicas"),
        )
        rules = TopicConfigRules(lambda: broker.config)
        view = ClusterView(broker.image, settings, rules, PartitionIndex())
        counts: Counter[str] = Counter()
        for topic in broker.image.topics.values():
            min_isr = view.min_isr(topic)
            for partition in topic.partitions.values():
                if partition.leader == broker.node_id:
                    counts.update(_conditions(partition, min_isr))
        for name, help_text in (
            ("leadercount", "Partitions this node leads."),
            ("underreplicatedpartitions", "Of these, with replicas that are not in sync."),
            ("underminisrpartitioncount", "Of these, with fewer in sync than writes need."),
            ("atminisrpartitioncount", "Of these, with just as many in sync as writes need."),
            ("reassigningpartitions", "Of these, being moved."),
        ):
            yield gauge(_REPLICA_MANAGER + name, help_text, counts[name])

    def _replicas(self) -> Iterator[Family]:
        broker = self._broker
        logs, now_ms = broker.store.logs, broker.clock.now_ms()
        offline = sum(len(each.logs) for each in broker.store.directories if not each.is_online)
        producer_ids = sum(len(log.producer_states.active_producers) for log in logs)
        late = sum(log.producer_states.late_transactions(now_ms) > 0 for log in logs)
        count = len(broker.replicas.partitions)
        for name, help_text, value in (
            ("partitioncount", "Partitions of which this node has a replica.", count),
            ("offlinereplicacount", "Replicas whose log directory is offline.", offline),
            ("produceridcount", "Producers whose sequences are remembered.", producer_ids),
            ("partitionswithlatetransactionscount", "Partitions with late transactions.", late),
        ):
            yield gauge(_REPLICA_MANAGER + name, help_text, value)
        changes = broker.metrics.partition_changes
        shrinks, expands = changes.isr_shrinks, changes.isr_expands
        lag_max = broker.fetchers.lag_max
        help_text = "How many records the replica is behind its leader that is furthest."
        yield gauge("kafka_server_replicafetchermanager_maxlag", help_text, lag_max)
        yield counter(_REPLICA_MANAGER + "isrshrinks", "Times an ISR led here shrank.", shrinks)
        yield counter(_REPLICA_MANAGER + "isrexpands", "Times an ISR led here grew.", expands)

    def _throttles(self) -> Iterator[Family]:
        throttles, now_ms = self._broker.throttles, self._broker.clock.monotonic_ms()
        for name, quota, what in (
            ("leaderreplication", throttles.leader, "sent to throttled replicas"),
            ("followerreplication", throttles.follower, "fetched by throttled replicas"),
            ("alterlogdirsreplication", throttles.log_dirs, "copied between log directories"),
        ):
            help_text = f"Bytes a second {what}."
            yield gauge(f"kafka_server_{name}_byte_rate", help_text, quota.rate.per_second(now_ms))

    def _purgatory(self) -> Family:
        waiting = Counter(_operation(type(each)) for each in self._broker.delayed)
        waiting.setdefault("Fetch", 0)
        return Family(
            "kafka_server_delayedoperationpurgatory_purgatorysize",
            "Requests that wait to be answered.",
            Kind.GAUGE,
            [Sample({"delayedoperation": name}, n) for name, n in sorted(waiting.items())],
        )

    def _metadata(self) -> Iterator[Family]:
        provenance = self._broker.image.provenance
        lag_ms = max(self._broker.clock.now_ms() - provenance.last_timestamp_ms, 0)
        for name, help_text, value in (
            ("offset", "The offset of the last metadata record applied.", provenance.last_offset),
            ("timestamp", "When it was written, in ms.", provenance.last_timestamp_ms),
            ("lag_ms", "How long ago that is, in ms.", lag_ms),
        ):
            full_name = f"kafka_server_brokermetadatametrics_last_applied_record_{name}"
            yield gauge(full_name, help_text, value)


def _conditions(partition: PartitionImage, min_isr: int) -> Iterator[str]:
    yield "leadercount"
    if len(partition.isr) < len(set(partition.replicas) - set(partition.adding)):
        yield "underreplicatedpartitions"
    if len(partition.isr) < min_isr:
        yield "underminisrpartitioncount"
    if len(partition.isr) == min_isr:
        yield "atminisrpartitioncount"
    if partition.adding or partition.removing:
        yield "reassigningpartitions"


def _operation(kind: type) -> str:
    """Return Kafka's name of a delayed operation: the class is named after it."""
    return kind.__name__.lstrip("_").removeprefix("Delayed")
