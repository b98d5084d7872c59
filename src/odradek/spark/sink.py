"""The sink that Spark sees, for ``df.write`` and ``df.writeStream`` with ``format("odradek")``.

A thin adapter: options and columns are checked on the driver, ``write`` runs in the tasks.

The name of a streaming query in the cluster is its id, which is in its checkpoint: two queries from
copies of one checkpoint would take each other for attempts of the same. A batch write has a name of
its own each time, unless ``txnAppId`` gives it one.

Between a batch that was interrupted and its next attempt the rows have to be spread over Spark's
partitions as before. If they are not, tasks that were done see it by the number of their rows, and
the driver by tasks that are missing now; the query then fails with a ``ReplayError``, again and
again, until somebody has decided. What other tasks wrote by then may be there twice.

Attempts of one task fence each other, the later one the earlier: leave ``spark.speculation`` off.

A batch write that fails leaves what its finished tasks had committed. Batch writes need
``mode("append")``: without it Spark refuses, for it cannot ask a Python source whether it exists.

Exactly once needs, besides the right to write to its topics, that to read them and groups that
begin with ``transactionalIdPrefix``: markers are offsets that those have committed.

Missing: Spark's ``spark.kafka.clusters.*`` (delegation tokens).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from odradek.client.errors import KafkaError
from odradek.client.producer.coordination import Coordination
from odradek.client.producer.settings import options_from
from odradek.spark.dead_letter_counts import count_batch
from odradek.spark.marker_store import Markers
from odradek.spark.options import OptionError
from odradek.spark.sink_access import sink_access
from odradek.spark.sink_options import SinkOptions, check_schema, parse_sink_options
from odradek.spark.task_markers import ReplayError, Task
from odradek.spark.writing import TaskWritten, write_task

# Spark's names for what a task knows of its query.
QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
RUN_ID: Final = "spark.jobGroup.id"

_DRIVER_SECONDS_MAX: Final = 30.0
_log: Final = logging.getLogger(__name__)

Messages = Sequence[WriterCommitMessage | None]


def batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "OdradekWriter":
    """Return the writer of one batch write.

    Raises:
        OptionError: An option or a column is missing or wrong.
    """
    if overwrite:
        raise OptionError('a topic cannot be overwritten: use mode("append")')
    parsed = parse_sink_options(options)
    check_schema(parsed, schema)
    return OdradekWriter(parsed)


def stream_writer(
    options: Mapping[str, str],
    schema: StructType,
    *,
    overwrite: bool,  # noqa: ARG001  # in complete mode; the whole result is appended each time
) -> "OdradekStreamWriter":
    """Return the writer of one micro-batch.

    Raises:
        OptionError: An option or a column is missing or wrong.
    """
    parsed = parse_sink_options(options)
    check_schema(parsed, schema)
    if parsed.once is not None:
        raise OptionError("txnAppId is for batch writes: a streaming query has a name by itself")
    return OdradekStreamWriter(parsed)


class OdradekWriter(DataSourceArrowWriter):
    """Writes once; made on the driver, copied into every task, and back on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._name, self._version = options.once or (uuid4().hex, 0)
        self._run = uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, self._task(_context().partitionId()), iterator)

    def commit(self, messages: Messages) -> None:
        if self._options.once is not None:
            _look_at_markers(self._options, messages, is_stream=False)
        _count_dead_letters(self._options, messages)
        self._forget_markers(messages)

    def abort(self, messages: Messages) -> None:
        dead = [self._task(number) for number, each in enumerate(messages) if each is None]
        _abort_left_open(self._options, dead)
        self._forget_markers(messages)

    def _task(self, partition: int) -> Task:
        prefix = self._options.transactional_id_prefix
        return Task(prefix, self._name, self._run, self._version, partition)

    def _forget_markers(self, messages: Messages) -> None:
        """Delete the groups of a write that cannot come again: it has no name of its own."""
        if self._options.once is None:
            _delete_groups(
                self._options,
                sorted({each.marker_group for each in _written(messages) if each.marker_group}),
            )


class OdradekStreamWriter(DataSourceStreamArrowWriter):
    """Writes a micro-batch; Spark makes a new one for each."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = _context()
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise RuntimeError("Spark does not tell tasks the query and the batch they belong to")
        task = Task(
            self._options.transactional_id_prefix,
            query,
            context.getLocalProperty(RUN_ID) or "",
            int(batch),
            context.partitionId(),
        )
        return write_task(self._options, task, iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        _look_at_markers(self._options, messages, is_stream=True)
        _count_dead_letters(self._options, messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        done = _written(messages)
        if not done:
            return  # nobody is left to say which query it was; transactions end by their timeout
        dead = [
            done[0].task._replace(partition=number)
            for number, each in enumerate(messages)
            if each is None
        ]
        _abort_left_open(self._options, dead)


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None, "writers run in tasks"
    return context


def _written(messages: Messages) -> list[TaskWritten]:
    return [each for each in messages if isinstance(each, TaskWritten)]


def _look_at_markers(options: SinkOptions, messages: Messages, *, is_stream: bool) -> None:
    """Check, in the first batch of a run, that an earlier run had no more tasks than this one.

    Groups of tasks that nobody will ask for are deleted: those of earlier days have lags.

    Raises:
        ReplayError: It had, and some of them wrote this batch.
    """
    first = next((each for each in _written(messages) if each.is_first_of_run), None)
    if first is None or not options.is_exactly_once or options.without_marker:
        return
    access = sink_access(options)
    surveying = Markers(access.cluster).survey(first.task, len(messages), is_stream=is_stream)
    survey = access.run(surveying)
    if survey.beyond:
        forget = "; ".join(place.forget_command for place in survey.beyond.values())
        raise ReplayError(
            f"batch {first.task.batch} was interrupted when Spark partitions {[*survey.beyond]} "
            f"had been written; now there are only {len(messages)}, so their rows are there twice. "
            f"To go on all the same, forget that they were written: {forget}"
        )
    _delete_groups(options, survey.stale_groups)


def _delete_groups(options: SinkOptions, groups: Sequence[str]) -> None:
    if not groups:
        return
    access = sink_access(options)
    try:
        deleting = Markers(access.cluster).delete_groups(groups)
        access.run(deleting, _DRIVER_SECONDS_MAX)
    except (KafkaError, TimeoutError) as error:
        _log.warning("groups of finished tasks could not be deleted: %s", error)


def _count_dead_letters(options: SinkOptions, messages: Messages) -> None:
    """Write down how many rows were put aside; rows are more than their count, so it may fail."""
    done, path = _written(messages), options.dead_letter_count_file
    if not done or path is None:
        return
    task, dead_letters = done[0].task, sum(each.dead_letters for each in done)
    try:
        count_batch(Path(path), task.name, task.batch, dead_letters)
    except OSError as error:
        _log.warning("%d dead letters of %s are not counted: %s", dead_letters, task, error)


def _abort_left_open(options: SinkOptions, tasks: Sequence[Task]) -> None:
    """Abort what tasks that died left open, so that readers need not wait for its timeout."""
    if not options.is_exactly_once or not tasks:
        return
    access = sink_access(options)
    try:
        for task in tasks:
            settings = options_from(options.settings(task.transactional_id))
            coordination = Coordination(access.cluster, settings)
            fencing = coordination.init_transactional(task.transactional_id)
            access.run(fencing, _DRIVER_SECONDS_MAX)
    except (KafkaError, TimeoutError) as error:
        _log.warning("transactions of failed tasks were left open: %s", error)
