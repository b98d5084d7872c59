"""What ``odradek topics --describe`` prints of topics and partitions."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from odradek.cli.tables import print_json
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigEntry, ConfigResource
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription, TopicDescription
from odradek.client.errors import BrokerError, UnsupportedError
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition

MIN_ISR = "min.insync.replicas"


class Report(NamedTuple):
    """What is wanted: everything, or the partitions that one of these is true of."""

    under_replicated: bool = False
    unavailable: bool = False
    under_min_isr: bool = False
    at_min_isr: bool = False
    only_overrides: bool = False
    as_json: bool = False

    @property
    def has_topics(self) -> bool:
        return not (
            self.under_replicated or self.unavailable or self.under_min_isr or self.at_min_isr
        )


class _Topic(NamedTuple):
    description: TopicDescription
    configs: Mapping[str, ConfigEntry]
    moves: Mapping[int, Reassignment]

    @property
    def overrides(self) -> dict[str, str | None]:
        return {
            name: entry.value
            for name, entry in sorted(self.configs.items())
            if not entry.is_default
        }

    def replication_factor(self, partition: PartitionDescription) -> int:
        """Return how many replicas there are when a move, if there is one, is over."""
        move = self.moves.get(partition.partition)
        if move is None:
            return len(partition.replicas)
        changing = {*move.adding_replicas, *move.removing_replicas}
        if changing.isdisjoint(partition.replicas):  # it ended while we asked
            return len(partition.replicas)
        return len(move.replicas) - len(move.adding_replicas)


async def describe(admin: Admin, descriptions: Sequence[TopicDescription], report: Report) -> None:
    """Print topics in the order of their names."""
    resources = {each.name: ConfigResource.topic(each.name) for each in descriptions}
    configs = (await admin.describe_configs(resources.values())).unwrap()
    live = {each.node_id for each in (await admin.describe_cluster()).brokers}
    moves = await _moves(admin, descriptions)
    topics = [
        _Topic(
            each,
            configs[resources[each.name]],
            {key.partition: move for key, move in moves.items() if key.topic == each.name},
        )
        for each in sorted(descriptions, key=lambda each: each.name)
    ]
    if report.as_json:
        print_json([_document(each, report, live) for each in topics])
        return
    for topic in topics:
        _print(topic, report, live)


async def _moves(
    admin: Admin, descriptions: Iterable[TopicDescription]
) -> Mapping[TopicPartition, Reassignment]:
    keys = [
        TopicPartition(topic.name, each.partition)
        for topic in descriptions
        for each in topic.partitions
    ]
    try:
        return await admin.list_partition_reassignments(keys)
    except UnsupportedError:
        return {}
    except BrokerError as error:
        if error.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return {}
        raise


def _print(topic: _Topic, report: Report, live: Collection[int]) -> None:
    if report.has_topics and (topic.overrides or not report.only_overrides):
        click.echo(_topic_line(topic))
    if report.only_overrides:
        return
    for partition in topic.description.partitions:
        if _is_wanted(topic, partition, report, live):
            click.echo(_partition_line(topic, partition))


def _is_wanted(
    topic: _Topic, partition: PartitionDescription, report: Report, live: Collection[int]
) -> bool:
    in_sync = len(partition.isr)
    min_isr = int(topic.configs[MIN_ISR].value or 1)
    is_lacking = topic.replication_factor(partition) > in_sync
    return (
        report.has_topics
        or (report.under_replicated and is_lacking)
        or (report.unavailable and partition.leader not in live)
        or (report.under_min_isr and (partition.leader < 0 or in_sync < min_isr))
        or (report.at_min_isr and in_sync == min_isr)
    )


def _topic_line(topic: _Topic) -> str:
    description = topic.description
    cells = [f"Topic: {description.name}"]
    if description.topic_id != ZERO_UUID:
        cells.append(f"TopicId: {description.topic_id}")
    configs = ",".join(f"{name}={value}" for name, value in topic.overrides.items())
    cells += [
        f"PartitionCount: {len(description.partitions)}",
        f"ReplicationFactor: {topic.replication_factor(description.partitions[0])}",
        f"Configs: {configs}",
    ]
    return "\t".join(cells)


def _partition_line(topic: _Topic, partition: PartitionDescription) -> str:
    cells = [
        f"\tTopic: {topic.description.name}",
        f"Partition: {partition.partition}",
        f"Leader: {'none' if partition.leader < 0 else partition.leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    move = topic.moves.get(partition.partition)
    if move is not None:
        cells.append(f"Adding Replicas: {_ids(move.adding_replicas)}")
        cells.append(f"Removing Replicas: {_ids(move.removing_replicas)}")
    cells.append(f"Elr: {_ids(partition.eligible_leader_replicas)}")
    cells.append(f"LastKnownElr: {_ids(partition.last_known_elr)}")
    return "\t".join(cells)


def _ids(numbers: Iterable[int] | None) -> str:
    return "N/A" if numbers is None else ",".join(map(str, numbers))


def _document(topic: _Topic, report: Report, live: Collection[int]) -> dict[str, object]:
    description = topic.description
    return {
        "topic": description.name,
        "topicId": str(description.topic_id),
        "isInternal": description.is_internal,
        "configs": topic.overrides,
        "partitions": [
            {
                "partition": each.partition,
                "leader": None if each.leader < 0 else each.leader,
                "leaderEpoch": each.leader_epoch,
                "replicas": each.replicas,
                "isr": each.isr,
                "elr": each.eligible_leader_replicas,
                "lastKnownElr": each.last_known_elr,
            }
            for each in description.partitions
            if _is_wanted(topic, each, report, live)
        ],
    }
