"""New offsets for groups that have no members: where each scenario leads, and its CSV."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import click

from odradek.cli.json_files import read_file
from odradek.cli.tables import column_width, padded
from odradek.cli.tool_options import ToolError, now_ms
from odradek.client.admin.admin import Admin
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.partitions import OffsetSpec
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

Plan: TypeAlias = dict[TopicPartition, int]

_DURATION: Final = re.compile(
    r"([-+]?)P(?:([-+]?\d+)D)?(?:T(?=[-+\d])(?:([-+]?\d+)H)?(?:([-+]?\d+)M)?"
    r"(?:([-+]?\d+(?:\.\d{0,9})?)S)?)?",
    re.IGNORECASE,
)
_NO_OFFSET: Final = -1


class Scenario(NamedTuple):
    """What was asked for. With nothing set, offsets stay where they are."""

    to_offset: int | None = None
    shift_by: int | None = None
    time_ms: int | None = None
    to_earliest: bool = False
    to_latest: bool = False
    file: Path | None = None
    topics: Sequence[str] | None = None
    """Topics, or ``topic:0,1``; None for all that a group has offsets of."""


def wanted_time(moment: str | None, duration: str | None) -> int | None:
    """Return the time in ms that --to-datetime or --by-duration name.

    Raises:
        ToolError: It is not in their format.
    """
    if moment is not None:
        return parse_datetime(moment)
    if duration is not None:
        return now_ms() - parse_duration(duration)
    return None


def parse_datetime(text: str) -> int:
    """Read ``YYYY-MM-DDThh:mm:ss.sss``, in UTC if no zone follows."""
    if "T" not in text:
        problem = "It does not contain a 'T' according to ISO8601 format"
        raise ToolError(f"Error parsing timestamp. {problem}")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ToolError(f'Unparseable date: "{text}"') from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime.fromtimestamp(0, UTC)) // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Read ``PnDTnHnMnS``, as Java does; in ms."""
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        raise ToolError(f"Text cannot be parsed to a Duration: {text}")
    sign, days, hours, minutes, seconds = match.groups()
    whole = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60
    total_ms = whole * 1000 + round(float(seconds or 0) * 1000)
    return -total_ms if sign == "-" else total_ms


class OffsetReset:
    """Resets of some groups by one scenario."""

    def __init__(
        self, admin: Admin, scenario: Scenario, group_ids: Sequence[str], *, timeout_ms: int
    ) -> None:
        self._admin = admin
        self._scenario = scenario
        self._timeout_ms = timeout_ms
        self._file_plans: Mapping[str, Plan] = {}
        if scenario.file is not None:
            only = group_ids[0] if len(group_ids) == 1 else None
            self._file_plans = read_csv(read_file(scenario.file), only)

    async def state_of(self, group_id: str) -> str:
        """Return the state of a group; one that is not there is dead."""
        results = await self._admin.describe_groups([group_id], timeout_ms=self._timeout_ms)
        error = results[group_id].error
        if isinstance(error, BrokerError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
            return "Dead"
        return results[group_id].unwrap().state

    async def run(self, group_id: str, *, execute: bool) -> Plan:
        """Return the new offsets, and set them if that is wanted."""
        listed = await self._admin.list_group_offsets([group_id], timeout_ms=self._timeout_ms)
        committed = listed[group_id].unwrap()
        partitions = await self._scope(committed)
        await self._check_exist(partitions)
        plan = await self._plan(group_id, partitions, committed)
        if execute and plan:
            results = await self._admin.alter_group_offsets(
                group_id, plan, timeout_ms=self._timeout_ms
            )
            results.unwrap()
        return dict(sorted(plan.items()))

    async def _scope(self, committed: Collection[TopicPartition]) -> list[TopicPartition]:
        if self._scenario.topics is None:
            return list(committed)
        found, errors = await named_partitions(
            self._admin, self._scenario.topics, timeout_ms=self._timeout_ms
        )
        for error in errors.values():
            raise error
        return found

    async def _check_exist(self, partitions: Iterable[TopicPartition]) -> None:
        wanted = set(partitions)
        described = await self._admin.describe_topics(
            {key.topic for key in wanted}, timeout_ms=self._timeout_ms
        )
        existing = {
            TopicPartition(topic.name, each.partition): each.leader
            for topic in described.unwrap().values()
            for each in topic.partitions
        }
        unknown = sorted(wanted - existing.keys())
        if unknown:
            raise ToolError(f'The partitions "{_names(unknown)}" do not exist')
        leaderless = sorted(key for key in wanted if existing[key] < 0)
        if leaderless:
            raise ToolError(f'The partitions "{_names(leaderless)}" have no leader')

    async def _plan(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
    ) -> Plan:
        scenario = self._scenario
        if scenario.to_offset is not None:
            return await self._within_log(dict.fromkeys(partitions, scenario.to_offset))
        if scenario.to_earliest:
            return await self._offsets(partitions, OffsetSpec.EARLIEST)
        if scenario.to_latest:
            return await self._offsets(partitions, OffsetSpec.LATEST)
        if scenario.shift_by is not None:
            return await self._shifted(partitions, committed, scenario.shift_by)
        if scenario.time_ms is not None:
            return await self._at_time(partitions, scenario.time_ms)
        if scenario.file is not None:
            if group_id not in self._file_plans:
                raise ToolError(f"No reset plan for group {group_id} found")
            return await self._within_log(self._file_plans[group_id])
        current = {key: committed[key].offset for key in partitions if key in committed}
        rest = [key for key in partitions if key not in committed]
        return {**current, **await self._offsets(rest, OffsetSpec.LATEST)}

    async def _shifted(
        self,
        partitions: Sequence[TopicPartition],
        committed: Mapping[TopicPartition, CommittedOffset],
        shift_by: int,
    ) -> Plan:
        for key in partitions:
            if key not in committed:
                problem = "since there is no current committed offset"
                raise click.UsageError(f"Cannot shift offset for partition {key} {problem}")
        return await self._within_log({key: committed[key].offset + shift_by for key in partitions})

    async def _at_time(self, partitions: Sequence[TopicPartition], time_ms: int) -> Plan:
        found = await self._offsets(partitions, time_ms)
        missing = [key for key, offset in found.items() if offset == _NO_OFFSET]
        for key in missing:
            problem = "is empty. Falling back to latest known offset."
            click.echo(f"\nWarn: Partition {key.partition} from topic {key.topic} {problem}")
        return {**found, **await self._offsets(missing, OffsetSpec.LATEST)}

    async def _within_log(self, wanted: Mapping[TopicPartition, int]) -> Plan:
        """Bring offsets to where there are records, with a word about each."""
        starts = await self._offsets(wanted, OffsetSpec.EARLIEST)
        ends = await self._offsets(wanted, OffsetSpec.LATEST)
        plan = {}
        for key, offset in wanted.items():
            plan[key] = min(max(offset, starts[key]), ends[key])
            if offset > ends[key]:
                problem = "is higher than latest offset"
            elif offset < starts[key]:
                problem = "is lower than earliest offset"
            else:
                continue
            shown = f"New offset ({offset}) {problem} for topic partition {key}"
            click.echo(f"WARN {shown}. Value will be set to {plan[key]}", err=True)
        return plan

    async def _offsets(self, partitions: Iterable[TopicPartition], spec: int) -> Plan:
        results = await self._admin.list_offsets(
            dict.fromkeys(partitions, spec), timeout_ms=self._timeout_ms
        )
        return {key: each.offset for key, each in results.unwrap().items()}


async def named_partitions(
    admin: Admin, topics: Iterable[str], *, timeout_ms: int
) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError]]:
    """Return the partitions of ``topic`` and ``topic:0,1``; errors are by topic, partition -1.

    Raises:
        click.UsageError: One is neither.
    """
    found: list[TopicPartition] = []
    whole = []
    for text in topics:
        if ":" in text:
            found += _parsed_partitions(text)
        else:
            whole.append(text)
    errors: dict[TopicPartition, KafkaError] = {}
    for name, result in (await admin.describe_topics(whole, timeout_ms=timeout_ms)).items():
        if result.error is not None:
            errors[TopicPartition(str(name), -1)] = result.error
            continue
        numbers = (each.partition for each in result.unwrap().partitions)
        found += [TopicPartition(str(name), each) for each in numbers]
    return list(dict.fromkeys(found)), errors


def _parsed_partitions(text: str) -> list[TopicPartition]:
    topic, _, numbers = text.partition(":")
    if not topic or not numbers or ":" in numbers:
        problem = "expected topic name and partitions"
        raise click.UsageError(f"Invalid topic arg '{text}', {problem}")
    for number in numbers.split(","):
        if not number.isdecimal():
            raise click.UsageError(f"Invalid partition '{number}' specified in topic arg '{text}'")
    return [TopicPartition(topic, int(number)) for number in numbers.split(",")]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, partitions))


def print_table(plans: Mapping[str, Plan]) -> None:
    widths = (
        column_width(15, plans),
        column_width(15, (key.topic for plan in plans.values() for key in plan)),
        10,
    )
    lines: list[tuple[object, ...]] = []
    if plans:
        lines.append(("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"))
    for group_id, plan in plans.items():
        lines += [(group_id, *key, offset) for key, offset in plan.items()]
    for line in lines:
        click.echo("\n" + padded(line, widths), nl=False)
    click.echo()


def to_csv(plans: Mapping[str, Plan], *, with_group: bool) -> str:
    """Return ``topic,partition,offset`` lines, or ``group,topic,partition,offset``."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for group_id, plan in plans.items():
        for key, offset in plan.items():
            writer.writerow((*([group_id] if with_group else []), *key, offset))
    return text.getvalue()


def read_csv(text: str, only_group: str | None) -> dict[str, Plan]:
    """Read what ``to_csv`` wrote; lines without a group are ``only_group``'s.

    Raises:
        ToolError: A line is something else.
    """
    plans: dict[str, Plan] = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        cells = [only_group, *row] if len(row) == 3 else [*row]
        try:
            group_id, topic, partition, offset = cells
            if group_id is None or topic is None:
                raise ValueError("there is no group")
            plan = plans.setdefault(group_id.strip(), {})
            plan[TopicPartition(topic.strip(), int(partition or ""))] = int(offset or "")
        except ValueError as error:
            problem = "is not [group,]topic,partition,offset"
            raise ToolError(f"line {number} of the CSV file {problem}: {','.join(row)}") from error
    return plans
