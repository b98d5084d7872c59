"""Groups and transactions that this node coordinates, in Kafka's and in kafka_exporter's names."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.metrics.family import Family, Kind, Sample, counter, gauge
from odradek.core.ids import TopicPartition

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.coordinator.group.shard import GroupShard

_CLASSIC_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
)
_UNKNOWN: Final = -1

Place = tuple[str, str, int]
Offsets = list[tuple[Place, int]]


class GroupFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        shards = list(self._broker.groups.loaded_shards())
        yield from self._groups(shards)
        yield from self._counts(shards)
        offsets: Offsets = [each for shard in shards for each in shard.offsets.all()]
        yield from self._lags(offsets)
        yield from self._transactions()

    def _groups(self, shards: "list[GroupShard]") -> Iterator[Family]:
        listed = [group.listed() for shard in shards for group in shard.groups.values()]
        types = Counter(group.group_type for group in listed)
        states = Counter((group.group_type, group.group_state) for group in listed)
        yield Family(
            "kafka_server_group_coordinator_metrics_group_count",
            "Groups by protocol.",
            Kind.GAUGE,
            [Sample({"protocol": name}, types[name]) for name in ("classic", "consumer")],
        )
        yield Family(
            "kafka_server_group_coordinator_metrics_consumer_group_count",
            "Groups of the consumer protocol by state.",
            Kind.GAUGE,
            [
                Sample({"state": state.lower()}, states["consumer", state])
                for state in ("Empty", "Assigning", "Reconciling", "Stable", "Dead")
            ],
        )
        prefix = "kafka_coordinator_group_groupmetadatamanager_numgroups"
        yield gauge(prefix, "Groups of the classic protocol.", types["classic"])
        for state in _CLASSIC_STATES:
            name, help_text = f"{prefix}{state.lower()}", f"Classic groups that are {state}."
            yield gauge(name, help_text, states["classic", state])

    def _counts(self, shards: "list[GroupShard]") -> Iterator[Family]:
        offsets = sum(shard.offsets.count for shard in shards)
        name = "kafka_coordinator_group_groupmetadatamanager_numoffsets"
        yield gauge(name, "Committed offsets that are kept.", offsets)
        counts: tuple[tuple[str, str, Callable[[GroupShard], int]], ...] = (
            ("group_completed_rebalance", "Rebalances that came to an end.", _rebalances),
            ("offset_commit", "Offsets that were committed.", lambda shard: shard.commits),
            ("offset_expiration", "Offsets that expired.", lambda shard: shard.expired),
        )
        for name, help_text, count in counts:
            full_name = f"kafka_server_group_coordinator_metrics_{name}"
            yield counter(full_name, help_text, sum(map(count, shards)))

    def _lags(self, offsets: Offsets) -> Iterator[Family]:
        families = {
            name: Family(f"kafka_consumergroup_{name}", help_text, Kind.GAUGE, [])
            for name, help_text in (
                ("current_offset", "Committed by a group."),
                ("lag", "From there to where consumers can read; -1 if the topic is not here."),
                ("current_offset_sum", "Committed by a group, over the partitions of a topic."),
                ("lag_sum", "How far a group is behind, over the partitions of a topic."),
                ("members", "Members of a group."),
            )
        }
        sums: Counter[tuple[str, str, str]] = Counter()
        for (group_id, topic, partition), offset in offsets:
            if offset < 0:  # none, as Kafka says it: something else is kept in the metadata
                continue
            labels = {"consumergroup": group_id, "topic": topic, "partition": str(partition)}
            lag = self._lag(TopicPartition(topic, partition), offset)
            families["current_offset"].samples.append(Sample(labels, offset))
            families["lag"].samples.append(Sample(labels, lag))
            sums["current_offset_sum", group_id, topic] += offset
            sums["lag_sum", group_id, topic] += max(lag, 0)
        for (name, group_id, topic), total in sums.items():
            labels = {"consumergroup": group_id, "topic": topic}
            families[name].samples.append(Sample(labels, total))
        for shard in self._broker.groups.loaded_shards():
            for group in shard.groups.values():
                sample = Sample({"consumergroup": group.group_id}, group.size)
                families["members"].samples.append(sample)
        yield from families.values()

    def _lag(self, partition: TopicPartition, offset: int) -> int:
        found = self._broker.replicas.find(partition)
        return _UNKNOWN if found is None else max(found.log.high_watermark - offset, 0)

    def _transactions(self) -> Iterator[Family]:
        states = Counter(
            metadata.state.title
            for shard in self._broker.transactions.loaded_shards()
            for metadata in shard.transactions.values()
        )
        yield Family(
            "odradek_transactions",
            "Transactional ids by the state of their transaction.",
            Kind.GAUGE,
            [Sample({"state": state}, count) for state, count in sorted(states.items())],
        )


def _rebalances(shard: "GroupShard") -> int:
    return shard.rebalances
