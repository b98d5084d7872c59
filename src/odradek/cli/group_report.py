"""What ``odradek consumer-groups --describe`` prints: offsets and lag, members, or the state."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import click

from odradek.cli.tables import MISSING, column_width, json_partition, padded, print_json
from odradek.cli.tool_options import ToolError
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.groups import CONSUMER_PROTOCOL_TYPE, GroupDescription, GroupMember
from odradek.client.admin.partitions import OffsetSpec
from odradek.core.ids import TopicPartition

_REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")
_OFFSET_HEADERS: Final = (
    "GROUP",
    "TOPIC",
    "PARTITION",
    "LEADER-EPOCH",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "CONSUMER-ID",
    "HOST",
    "CLIENT-ID",
)
_EPOCH_COLUMN: Final = 3
_MEMBER_HEADERS: Final = (
    "GROUP",
    "CONSUMER-ID",
    "GROUP-INSTANCE-ID",
    "HOST",
    "CLIENT-ID",
    "#PARTITIONS",
)
_INSTANCE_COLUMN: Final = 2
_VERBOSE_HEADERS: Final = (
    "CURRENT-EPOCH",
    "CURRENT-ASSIGNMENT",
    "TARGET-EPOCH",
    "TARGET-ASSIGNMENT",
    "UPGRADED",
)
_STATE_HEADERS: Final = (
    "GROUP",
    "COORDINATOR (ID)",
    "ASSIGNMENT-STRATEGY",
    "STATE",
    "GROUP-EPOCH",
    "TARGET-ASSIGNMENT-EPOCH",
    "#MEMBERS",
)


class OffsetRow(NamedTuple):
    """One line of offsets; what is not known is None."""

    group: str
    topic: str
    partition: int
    leader_epoch: int | None
    current_offset: int | None
    log_end_offset: int | None
    lag: int | None
    consumer_id: str
    host: str
    client_id: str


class GroupReport:
    def __init__(
        self, admin: Admin, timeout_ms: int, form: str, *, is_verbose: bool, as_json: bool
    ) -> None:
        self._admin = admin
        self._timeout_ms = timeout_ms
        self._form = form
        self._is_verbose = is_verbose
        self._as_json = as_json

    async def print(self, group_ids: Sequence[str]) -> None:
        """Print groups in the order of their names."""
        results = await self._admin.describe_groups(group_ids, timeout_ms=self._timeout_ms)
        groups = [each for _, each in sorted(results.unwrap().items())]
        for group in groups:
            if group.protocol_type not in ("", CONSUMER_PROTOCOL_TYPE):
                problem = f"is not a consumer group ({group.protocol_type})."
                raise ToolError(f"GroupId {group.group_id} {problem}")
        rows = {each.group_id: await self._offset_rows(each) for each in groups}
        brokers = {each.node_id: each for each in (await self._admin.describe_cluster()).brokers}
        if self._as_json:
            print_json([_document(each, rows[each.group_id]) for each in groups])
            return
        for group in groups:
            if self._form == "members":
                _print_members(group, is_verbose=self._is_verbose)
            elif self._form == "state":
                _print_state(group, brokers[group.coordinator], is_verbose=self._is_verbose)
            else:
                _print_offsets(group, rows[group.group_id], is_verbose=self._is_verbose)

    async def _offset_rows(self, group: GroupDescription) -> list[OffsetRow]:
        """Return the lines of members with many partitions first, then what nobody has."""
        if self._form != "offsets" and not self._as_json:
            return []
        listed = await self._admin.list_group_offsets([group.group_id], timeout_ms=self._timeout_ms)
        committed = listed[group.group_id].unwrap()
        shares = [
            (sorted(each.assignment), each.member_id, each.client_host, each.client_id)
            for each in sorted(group.members, key=lambda each: -len(each.assignment))
        ]
        taken = {key for keys, *_ in shares for key in keys}
        rest = sorted(key for key in committed if key not in taken)
        shares.append((rest, MISSING, MISSING, MISSING))
        ends = await self._log_ends(taken.union(committed))
        return [
            _offset_row(group.group_id, key, committed.get(key), ends.get(key), member)
            for keys, *member in shares
            for key in keys
        ]

    async def _log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends of logs; of partitions that are gone or have no leader, nothing."""
        wanted = dict.fromkeys(partitions, OffsetSpec.LATEST)
        found = await self._admin.list_offsets(wanted, timeout_ms=self._timeout_ms)
        return {key: each.value.offset for key, each in found.items() if each.value is not None}


def _offset_row(
    group_id: str,
    key: TopicPartition,
    committed: CommittedOffset | None,
    log_end_offset: int | None,
    member: Sequence[str],
) -> OffsetRow:
    offset = None if committed is None else committed.offset
    epoch = None if committed is None or committed.leader_epoch < 0 else committed.leader_epoch
    lag = None if offset is None or log_end_offset is None else log_end_offset - offset
    return OffsetRow(group_id, *key, epoch, offset, log_end_offset, lag, *member)


def _is_shown(group: GroupDescription, count: int) -> bool:
    """Tell on stderr what is special about the state, and whether there is anything to print."""
    if group.state == "Dead":
        click.echo(f"\nError: Consumer group '{group.group_id}' does not exist.")
    elif group.state == "Empty":
        click.echo(f"\nConsumer group '{group.group_id}' has no active members.", err=True)
    elif group.state in _REBALANCING:
        click.echo(f"\nWarning: Consumer group '{group.group_id}' is rebalancing.", err=True)
    return group.state != "Dead" and count > 0


def _print_offsets(group: GroupDescription, rows: list[OffsetRow], *, is_verbose: bool) -> None:
    if not _is_shown(group, len(rows)):
        return
    widths = [
        column_width(15, (row.group for row in rows)),
        column_width(15, (row.topic for row in rows)),
        *(10, 15, 15, 15, 15),
        column_width(15, (row.consumer_id for row in rows)),
        column_width(15, (row.host for row in rows)),
    ]
    lines: list[Sequence[object]] = [_OFFSET_HEADERS, *rows]
    if not is_verbose:
        del widths[_EPOCH_COLUMN]
        lines = [_without(line, _EPOCH_COLUMN) for line in lines]
    click.echo()
    for line in lines:
        click.echo(padded(line, widths))


def _without(cells: Sequence[object], position: int) -> list[object]:
    return [*cells[:position], *cells[position + 1 :]]


def _print_members(group: GroupDescription, *, is_verbose: bool) -> None:
    members = group.members
    _is_shown(group, len(members))
    lines: list[Sequence[object]] = [_MEMBER_HEADERS]
    lines += [_member_cells(group, each) for each in members]
    least = (15, 15, 17, 15, 15, 15)
    widths = [
        max(each, column_width(each, (row[at] for row in lines[1:])))
        for at, each in enumerate(least)
    ]
    if not any(each.instance_id for each in members):
        del widths[_INSTANCE_COLUMN]
        lines = [_without(line, _INSTANCE_COLUMN) for line in lines]
    texts = [padded(line, widths) + " " for line in lines]
    if is_verbose:
        extra = _verbose_texts(group)
        texts = [first + second for first, second in zip(texts, extra, strict=True)]
    click.echo()
    for text in texts:
        click.echo(text)


def _member_cells(group: GroupDescription, member: GroupMember) -> tuple[object, ...]:
    return (
        group.group_id,
        member.member_id,
        member.instance_id or "",
        member.client_host,
        member.client_id,
        len(member.assignment),
    )


def _verbose_texts(group: GroupDescription) -> list[str]:
    """Return what --verbose adds; who was upgraded counts while a group is half and half."""
    kinds = {each.is_classic for each in group.members if each.is_classic is not None}
    rows: list[tuple[object, ...]] = [
        (
            each.member_epoch,
            _assignment(each.assignment),
            group.assignment_epoch,
            _assignment(each.target_assignment or ()),
            None if each.is_classic is None else str(not each.is_classic).lower(),
        )
        for each in group.members
    ]
    widths = [
        15,
        column_width(20, (row[1] for row in rows)),
        15,
        column_width(20, (row[3] for row in rows)),
    ]
    count = 5 if len(kinds) == 2 else 4
    return [padded(row[:count], widths) for row in (_VERBOSE_HEADERS, *rows)]


def _assignment(partitions: Iterable[TopicPartition]) -> str | None:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        topics.setdefault(topic, []).append(partition)
    texts = [f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in topics.items()]
    return ";".join(sorted(texts)) or None


def _print_state(
    group: GroupDescription, coordinator: BrokerDescription, *, is_verbose: bool
) -> None:
    if not _is_shown(group, 1):
        return
    place = f"{coordinator.host}:{coordinator.port}  ({coordinator.node_id})"
    epochs = (group.group_epoch, group.assignment_epoch)
    lines: list[Sequence[object]] = [
        _STATE_HEADERS,
        (
            group.group_id,
            place,
            group.assignor or None,
            group.state,
            *epochs,
            len(group.members),
        ),
    ]
    widths = [column_width(15, [group.group_id]), column_width(25, [place]), 20, 20, 15, 25]
    if not is_verbose:
        widths = widths[:4]
        lines = [[*line[:4], line[-1]] for line in lines]
    click.echo()
    for line in lines:
        click.echo(padded(line, widths))


def _document(group: GroupDescription, rows: Iterable[OffsetRow]) -> Mapping[str, object]:
    return {
        "groupId": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "memberId": each.member_id,
                "groupInstanceId": each.instance_id,
                "clientId": each.client_id,
                "host": each.client_host,
                "assignment": [json_partition(key) for key in each.assignment],
            }
            for each in group.members
        ],
        "offsets": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "currentOffset": row.current_offset,
                "logEndOffset": row.log_end_offset,
                "lag": row.lag,
                "memberId": None if row.consumer_id == MISSING else row.consumer_id,
            }
            for row in rows
        ],
    }
