"""Markers: how a task that is run again knows that it was done.

With the records of a task, in the same transaction, ``batch + 1`` is committed as an offset of a
consumer group. The group has the name of the transactional id, one for each task of a query; topic
and partition are one that the task wrote to, as a commit has to name some that exist. So either
both are there, records and marker, or neither. The metadata of the offset says how many rows there
were, how many of them became dead letters, and in which run of the query.

A task first becomes the producer of its transactional id and then asks for the marker, in this
order: until it is the producer, an earlier attempt may still commit.

Markers expire as offsets do (``offsets.retention.minutes``, a week): a query that was stopped in
the middle of a batch and is started again later than that writes the batch's rows twice. They go
with the topic that they are of.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver
from odradek.client.admin.group_offsets import CommittedOffset, GroupOffsetOperations
from odradek.client.admin.groups import GroupOperations
from odradek.client.cluster import Cluster
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

_NUMBER: Final = re.compile(r"\d{1,9}")


class ReplayError(KafkaError):
    """A batch that was written in part is not the same any more."""


class Task(NamedTuple):
    """One task of a query, or of a batch write. ``name`` is that of the query or write."""

    prefix: str
    name: str
    run: str
    batch: int
    partition: int

    @property
    def group_prefix(self) -> str:
        return f"{self.prefix}-{self.name}-"

    @property
    def transactional_id(self) -> str:
        return f"{self.group_prefix}{self.partition}"

    def __str__(self) -> str:
        return f"batch {self.batch}, Spark partition {self.partition}"


class Marker(NamedTuple):
    """What is known of the last batch that a task committed."""

    next_batch: int
    rows: int | None
    run: str | None
    dead_letters: int = 0

    def committed(self) -> CommittedOffset:
        told = {"dead_letters": self.dead_letters, "rows": self.rows, "run": self.run}
        return CommittedOffset(self.next_batch, json.dumps(told))


NO_MARKER: Final = Marker(0, None, None)


class Markers(GroupOffsetOperations, GroupOperations):
    def __init__(self, cluster: Cluster) -> None:
        self._driver = Driver(cluster)

    async def find(self, transactional_id: str) -> Marker:
        """Return the newest marker of a task; NO_MARKER if there is none.

        Raises:
            KafkaError: The coordinator of the group did not say.
        """
        return (await self.find_all([transactional_id]))[transactional_id]

    async def find_all(self, transactional_ids: Collection[str]) -> dict[str, Marker]:
        """Return the newest marker of each task."""
        # Stable: an offset of a transaction that is being committed must not be overlooked.
        found = await self.list_group_offsets(list(transactional_ids), require_stable=True)
        return {name: _newest(offsets) for name, offsets in found.unwrap().items()}

    async def tasks_beyond(self, task: Task, tasks: int) -> list[int]:
        """Return tasks that wrote this batch though there are only ``tasks`` of them now."""
        beyond = {}
        for group in await self.list_groups():
            number = group.group_id.removeprefix(task.group_prefix)
            if number != group.group_id and _NUMBER.fullmatch(number) and int(number) >= tasks:
                beyond[group.group_id] = int(number)
        markers = await self.find_all(beyond) if beyond else {}
        return sorted(
            beyond[name] for name, each in markers.items() if each.next_batch == task.batch + 1
        )


def _newest(offsets: Mapping[TopicPartition, CommittedOffset]) -> Marker:
    if not offsets:
        return NO_MARKER
    newest = max(offsets.values(), key=lambda each: each.offset)
    try:
        told = json.loads(newest.metadata)
        dead_letters = int(told.get("dead_letters", 0))
        return Marker(newest.offset, int(told["rows"]), str(told["run"]), dead_letters)
    except (ValueError, TypeError, KeyError, AttributeError):
        return Marker(newest.offset, None, None)  # somebody set it by hand


def check_same_rows(task: Task, marker: Marker, rows: int) -> None:
    """Check that a task that was done already would have the rows again that it had then.

    Rows are only counted: what is in them may differ where a query uses chance.

    Raises:
        ReplayError: It has more or fewer.
    """
    if marker.next_batch == task.batch + 1 and marker.rows not in (None, rows):
        raise ReplayError(
            f"{task}: was written before with {marker.rows} rows and now has {rows}. The batch was "
            "interrupted and its rows have been spread otherwise since, so some would be written "
            "twice and others never. Start the query with the partitioning it had "
            "(minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions, repartition) "
            f"until this batch is through, or delete group {task.transactional_id!r} to write "
            "them all again"
        )
