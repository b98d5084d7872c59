"""Markers: how a task that is run again knows that it was done. Pure; ``marker_store`` keeps them.

With the records of a task, in the same transaction, an offset of a group is committed. So either
both are there, records and marker, or neither. What counts is the metadata of that offset: which
batch comes next, how many rows there were, how many of them became dead letters, and in which run
of the query. The offset itself is -1, Kafka's word for none: tools that compute lags leave it out,
though the broker keeps it with its metadata (ADR 7).

All tasks of a query share a group, ``<prefix>-<query>-tasks``, and have a partition of a topic that
they wrote to, the one with their own number. Where no such topic has as many partitions, a task has
a group to itself, named as its transactional id. No two tasks ever have the same place, whatever
partitions are added.

Markers expire as offsets do (``offsets.retention.minutes``, a week): a query that was stopped in
the middle of a batch and is started again later than that writes the batch's rows twice. They go
with the topic that they are of.
"""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition

SHARED_TASKS_MAX: Final = 256
"""Tasks from this number on have groups of their own: each task reads all of the shared one."""
NO_OFFSET: Final = -1


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

    @property
    def own_group(self) -> str:
        return self.transactional_id

    @property
    def shared_group(self) -> str:
        # Never the name of an own group, which ends in a number.
        return f"{self.group_prefix}tasks"

    def place(self, topics: Mapping[str, int]) -> "MarkerPlace":
        """Return where the marker goes; ``topics`` are those written to, with their partitions."""
        assert topics, "a task without rows has no marker"
        wide = [name for name, partitions in topics.items() if partitions > self.partition]
        if wide and self.partition < SHARED_TASKS_MAX:
            return MarkerPlace(self.shared_group, TopicPartition(wide[0], self.partition))
        return MarkerPlace(self.own_group, TopicPartition(next(iter(topics)), 0))

    def __str__(self) -> str:
        return f"batch {self.batch}, Spark partition {self.partition}"


class MarkerPlace(NamedTuple):
    group: str
    partition: TopicPartition

    @property
    def forget_command(self) -> str:
        topic, partition = self.partition
        return (
            f"odradek consumer-groups --delete-offsets --group {self.group} "
            f"--topic {topic}:{partition}"
        )


class Marker(NamedTuple):
    """What is known of the last batch that a task committed."""

    next_batch: int
    rows: int | None
    run: str | None
    dead_letters: int = 0
    place: MarkerPlace | None = None
    """Where it was found."""

    def committed(self) -> CommittedOffset:
        told = {
            "dead_letters": self.dead_letters,
            "next_batch": self.next_batch,
            "rows": self.rows,
            "run": self.run,
        }
        return CommittedOffset(NO_OFFSET, json.dumps(told))


NO_MARKER: Final = Marker(0, None, None)


def parse_marker(committed: CommittedOffset, place: MarkerPlace) -> Marker:
    """Return what a committed offset tells; NO_MARKER if it is none.

    An offset that is one is the next batch: so it was when each task had a group, and so somebody
    may set it by hand.
    """
    try:
        told = json.loads(committed.metadata)
        next_batch = int(told["next_batch"]) if committed.offset < 0 else committed.offset
        dead_letters = int(told.get("dead_letters", 0))
        return Marker(next_batch, int(told["rows"]), str(told["run"]), dead_letters, place)
    except (ValueError, TypeError, KeyError, AttributeError):
        if committed.offset < 0:
            return NO_MARKER
        return Marker(committed.offset, None, None, place=place)


def check_same_rows(task: Task, marker: Marker, rows: int) -> None:
    """Check that a task that was done already would have the rows again that it had then.

    Rows are only counted: what is in them may differ where a query uses chance.

    Raises:
        ReplayError: It has more or fewer.
    """
    if marker.next_batch == task.batch + 1 and marker.rows not in (None, rows):
        assert marker.place is not None, "markers that were found have a place"
        raise ReplayError(
            f"{task}: was written before with {marker.rows} rows and now has {rows}. The batch was "
            "interrupted and its rows have been spread otherwise since, so some would be written "
            "twice and others never. Start the query with the partitioning it had "
            "(minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions, repartition) "
            "until this batch is through, or forget that the task was done, to write its rows "
            f"again: {marker.place.forget_command}"
        )
