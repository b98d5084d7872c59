"""Lag of a pipeline that need not run, and new beginnings for it. Neither starts Spark.

A reset begins a new epoch (see ``checkpoints``) at offsets that are looked up now, and puts the
groups of the pipeline there too. What was written stays:

- topics get the records of the new epoch behind those of the old one;
- files of the new epoch go to a folder of their own, ``<path>-epoch-<n>``.

What the sinks of the old epoch kept in groups (``task_markers``) goes: nobody will ask for it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.blocking.admin import BlockingAdmin
from odradek.client.errors import KafkaError
from odradek.client.settings import as_settings
from odradek.core.ids import TopicPartition
from odradek.spark.marker_store import Markers
from odradek.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    Everywhere,
)
from odradek.spark.options import parse_options
from odradek.spark.pipeline.checkpoints import Checkpoints, Epoch
from odradek.spark.pipeline.definition import DEAD_LETTERS, Definition, FormatSink, TopicSink
from odradek.spark.pipeline.totals import Totals
from odradek.spark.planning import Planner
from odradek.spark.sink_access import sink_access
from odradek.spark.sink_options import SinkOptions, parse_sink_options
from odradek.spark.task_markers import Task

_MARKER_SECONDS_MAX: Final = 30.0
_log: Final = logging.getLogger(__name__)


class ToOffset(NamedTuple):
    """One offset for every partition; one that is not there becomes the nearest that is."""

    offset: int


Target = Everywhere | AtTimestamp | ToOffset


@dataclass(frozen=True)
class PartitionStatus:
    committed: int | None
    """None: nothing has been committed yet."""
    end: int

    @property
    def lag(self) -> int | None:
        return None if self.committed is None else max(0, self.end - self.committed)


@dataclass(frozen=True)
class Status:
    name: str
    epoch: Epoch
    is_running: bool
    """As far as this machine knows."""
    queries: Mapping[str, Mapping[TopicPartition, PartitionStatus]]
    folders: Mapping[str, str]
    """Where sinks write files now."""
    totals: Mapping[str, Totals]
    """What has been counted since the epoch began."""


def status(definition: Definition) -> Status:
    """Return how far a pipeline has got, by what it has committed.

    Raises:
        KafkaError: The cluster does not answer, or lacks a topic.
        CheckpointError: The checkpoint is damaged.
    """
    checkpoints = Checkpoints(definition.checkpoint)
    epoch = checkpoints.epoch()
    ends = _planner(definition).resolve(Everywhere(LATEST), "latest")
    committed = _committed(definition)
    return Status(
        name=definition.name,
        epoch=epoch,
        is_running=checkpoints.is_locked(),
        queries={
            query: {
                each: PartitionStatus(_offset(committed[query], each), end)
                for each, end in sorted(ends.items())
            }
            for query in definition.queries
        },
        folders=_folders(definition, epoch.number),
        totals=checkpoints.totals(epoch, definition.queries),
    )


def reset(definition: Definition, target: Target) -> tuple[Epoch, dict[str, str]]:
    """Begin anew at a target; return the new epoch and where its sinks write files.

    Raises:
        CheckpointError: The pipeline is running, or its checkpoint is not a local folder.
        KafkaError: The cluster does not answer, or lacks a topic.
    """
    checkpoints = Checkpoints(definition.checkpoint)
    with checkpoints.lock():
        offsets = _resolved(_planner(definition), target)
        old = checkpoints.epoch()
        epoch = checkpoints.begin_epoch(offsets)
        for query in definition.queries:
            _planner(definition).access.commit(definition.group_of(query), offsets)
        for query, options in _topic_sinks(definition).items():
            query_id = checkpoints.query_id(old, query)
            if query_id is not None:
                _forget_markers(options, query_id)
    return epoch, _folders(definition, epoch.number)


def _topic_sinks(definition: Definition) -> dict[str, SinkOptions]:
    sinks = {
        sink.name: definition.topic_options(sink.topic, sink.options)
        for sink in definition.sinks
        if isinstance(sink, TopicSink)
    }
    dead = definition.dead_letters
    if dead is not None:
        sinks[DEAD_LETTERS] = definition.topic_options(dead.topic, dead.options)
    return {query: parse_sink_options(options) for query, options in sinks.items()}


def _forget_markers(options: SinkOptions, query_id: str) -> None:
    access = sink_access(options)
    markers = Markers(access.cluster)
    task = Task(options.transactional_id_prefix, query_id, "", 0, 0)
    try:
        groups = access.run(markers.groups_of(task), _MARKER_SECONDS_MAX)
        access.run(markers.delete_groups(groups), _MARKER_SECONDS_MAX)
    except (KafkaError, TimeoutError) as error:
        # They have no lag, and expire as all offsets do.
        _log.warning("groups of query %s could not be deleted: %s", query_id, error)


def _planner(definition: Definition) -> Planner:
    return Planner(parse_options(definition.source_options()))


def _resolved(planner: Planner, target: Target) -> dict[TopicPartition, int]:
    if not isinstance(target, ToOffset):
        return planner.resolve(target, "target")
    earliest = planner.resolve(Everywhere(EARLIEST), "earliest")
    latest = planner.resolve(Everywhere(LATEST), "latest")
    return {
        each: max(start, min(target.offset, latest.get(each, start)))
        for each, start in earliest.items()
    }


def _committed(definition: Definition) -> dict[str, Mapping[TopicPartition, CommittedOffset]]:
    settings = {"bootstrap.servers": definition.brokers, **definition.kafka}
    groups = {definition.group_of(query): query for query in definition.queries}
    with BlockingAdmin(as_settings(settings)) as admin:
        found = admin.list_group_offsets(list(groups))
        return {groups[group]: result.value or {} for group, result in found.items()}


def _offset(
    committed: Mapping[TopicPartition, CommittedOffset], partition: TopicPartition
) -> int | None:
    found = committed.get(partition)
    return None if found is None else found.offset


def _folders(definition: Definition, epoch: int) -> dict[str, str]:
    files = [sink for sink in definition.sinks if isinstance(sink, FormatSink) and sink.has_files]
    return {sink.name: sink.path_of(epoch) or "" for sink in files}
