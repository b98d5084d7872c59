"""What ``odradek topics --describe --offsets`` prints: where replicas and groups are in each log.

Of each replica: where its log starts and ends, and the high watermark as it knows it. Of each
group that has committed something: the offset, who reads the partition, and how much is left to
read. Kafka has no such view: its tools show the leader's high watermark and call it the log end.

Where a consumer is between two commits, its position, is known to nobody else
(``consumer.position()``).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from odradek.cli.tables import aligned, print_json
from odradek.client.admin.admin import Admin
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.groups import CONSUMER_PROTOCOL_TYPE, GroupMember
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.topics import PartitionDescription, TopicDescription
from odradek.core.ids import TopicPartition

_REPLICA_HEADERS = ("REPLICA", "STATE", "LOG-START", "HIGH-WATERMARK", "LOG-END", "BEHIND")
_GROUP_HEADERS = ("GROUP", "CONSUMER-ID", "HOST", "COMMITTED", "LAG")
_INDENT = "  "


class ReplicaRow(NamedTuple):
    """One copy of a partition; a broker that does not answer tells nothing."""

    broker: int
    is_leader: bool
    is_in_sync: bool
    log_start_offset: int | None = None
    high_watermark: int | None = None
    log_end_offset: int | None = None
    behind: int | None = None
    """Records that the leader has and this one has not."""

    @property
    def state(self) -> str:
        if self.is_leader:
            return "leader"
        return "in sync" if self.is_in_sync else "out of sync"


class GroupRow(NamedTuple):
    group_id: str
    member_id: str | None
    host: str | None
    committed_offset: int
    lag: int | None


class PartitionOffsets(NamedTuple):
    topic: str
    description: PartitionDescription
    replicas: Sequence[ReplicaRow]
    groups: Sequence[GroupRow]


async def report_offsets(
    admin: Admin, descriptions: Iterable[TopicDescription], *, as_json: bool
) -> None:
    """Print the partitions of topics in the order of their names."""
    ordered = sorted(descriptions, key=lambda each: each.name)
    partitions = {
        TopicPartition(topic.name, each.partition): each
        for topic in ordered
        for each in topic.partitions
    }
    replicas = await _find_replicas(admin, partitions)
    groups = await _find_groups(admin, partitions, replicas)
    found = [
        PartitionOffsets(key.topic, each, replicas[key], groups[key])
        for key, each in partitions.items()
    ]
    if as_json:
        print_json([_document(each) for each in found])
        return
    for each in found:
        _print(each)


Partitions = Mapping[TopicPartition, PartitionDescription]


async def _find_replicas(
    admin: Admin, partitions: Partitions
) -> dict[TopicPartition, list[ReplicaRow]]:
    live = {each.node_id for each in (await admin.describe_cluster()).brokers}
    keys = [
        TopicPartitionReplica(*key, broker)
        for key, each in partitions.items()
        for broker in each.replicas
        if broker in live
    ]
    listed = await admin.list_log_ends(keys)
    ends = {key: each.value for key, each in listed.items() if each.value is not None}
    # There is nothing to read at the end, and the answer has the other offsets.
    fetched = await admin.fetch_replicas(ends)
    rows: dict[TopicPartition, list[ReplicaRow]] = {}
    for key, each in partitions.items():
        leader_end = ends.get(TopicPartitionReplica(*key, each.leader))
        rows[key] = []
        for broker in each.replicas:
            replica = TopicPartitionReplica(*key, broker)
            row = ReplicaRow(broker, broker == each.leader, broker in each.isr)
            end = ends.get(replica)
            if end is not None:
                behind = None if leader_end is None else max(leader_end - end, 0)
                row = row._replace(log_end_offset=end, behind=behind)
            told = fetched[replica].value if replica in fetched else None
            if told is not None:
                row = row._replace(
                    log_start_offset=told.log_start_offset, high_watermark=told.high_watermark
                )
            rows[key].append(row)
    return rows


async def _find_groups(
    admin: Admin, partitions: Partitions, replicas: Mapping[TopicPartition, Sequence[ReplicaRow]]
) -> dict[TopicPartition, list[GroupRow]]:
    rows: dict[TopicPartition, list[GroupRow]] = {key: [] for key in partitions}
    listed = await admin.list_groups()
    ids = sorted(
        each.group_id for each in listed if each.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
    )
    committed = await admin.list_group_offsets(dict.fromkeys(ids, tuple(partitions)))
    readers = await _find_readers(admin, [each for each in ids if committed[each].value])
    for group_id in ids:
        offsets = committed[group_id].value or {}
        for key, offset in offsets.items():
            reader = readers.get((group_id, key))
            rows[key].append(_group_row(group_id, reader, offset, replicas[key]))
    return rows


async def _find_readers(
    admin: Admin, group_ids: Sequence[str]
) -> dict[tuple[str, TopicPartition], GroupMember]:
    described = await admin.describe_groups(group_ids)
    return {
        (group_id, key): member
        for group_id, each in described.items()
        if each.value is not None
        for member in each.value.members
        for key in member.assignment
    }


def _group_row(
    group_id: str,
    reader: GroupMember | None,
    committed: CommittedOffset,
    replicas: Sequence[ReplicaRow],
) -> GroupRow:
    known = [each.high_watermark for each in replicas if each.is_leader]
    end = known[0] if known else None
    lag = None if end is None else max(end - committed.offset, 0)
    if reader is None:
        return GroupRow(group_id, None, None, committed.offset, lag)
    return GroupRow(group_id, reader.member_id, reader.client_host, committed.offset, lag)


def _print(found: PartitionOffsets) -> None:
    description = found.description
    leader = "none" if description.leader < 0 else description.leader
    isr = ",".join(map(str, description.isr))
    click.echo(
        f"Topic: {found.topic}\tPartition: {description.partition}\tLeader: {leader}\tIsr: {isr}"
    )
    rows = [
        (
            each.broker,
            each.state,
            each.log_start_offset,
            each.high_watermark,
            each.log_end_offset,
            each.behind,
        )
        for each in found.replicas
    ]
    _print_table(_REPLICA_HEADERS, rows)
    if found.groups:
        _print_table(_GROUP_HEADERS, found.groups)


def _print_table(headers: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    for line in aligned([headers, *rows]):
        click.echo(_INDENT + line)


def _document(found: PartitionOffsets) -> dict[str, object]:
    description = found.description
    return {
        "topic": found.topic,
        "partition": description.partition,
        "leader": None if description.leader < 0 else description.leader,
        "replicas": [
            {
                "broker": each.broker,
                "isInSync": each.is_in_sync,
                "logStartOffset": each.log_start_offset,
                "highWatermark": each.high_watermark,
                "logEndOffset": each.log_end_offset,
                "behind": each.behind,
            }
            for each in found.replicas
        ],
        "groups": [
            {
                "groupId": each.group_id,
                "memberId": each.member_id,
                "host": each.host,
                "committedOffset": each.committed_offset,
                "lag": each.lag,
            }
            for each in found.groups
        ],
    }
