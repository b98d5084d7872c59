"""What a task of the sink does: rows from Spark in, records in the logs of brokers out.

Rows are routed as they come and collected. When none are under way, what was collected is sent at
once; while some are, the next are prepared, up to a portion. So brokers work while Spark does, and
the slower they are the larger are their batches. Memory is bounded by two portions and one batch of
Spark's.

Exactly once: the task is one transaction, with its marker in it (``task_markers``). Only when all
rows are in the logs does it commit; a task that fails aborts; one that dies is fenced by the next
attempt, which aborts what it left. A task that finds its marker writes nothing. What a batch as a
whole is not is atomic: its tasks commit one by one, and readers may see some before others.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from odradek.client.errors import KafkaError
from odradek.client.producer.settings import options_from
from odradek.core.ids import TopicPartition
from odradek.spark.dead_letters import bad_row_error, dead_letters
from odradek.spark.marker_store import Markers
from odradek.spark.sink_access import sink_access
from odradek.spark.sink_options import SinkOptions
from odradek.spark.sink_routing import Router, TopicPartitions
from odradek.spark.sink_rows import BadRow, Rows, rows_from
from odradek.spark.task_markers import NO_MARKER, Marker, Task, check_same_rows
from odradek.spark.task_producer import TaskProducer

PORTION_BYTES: Final = 8 * 1024 * 1024
EARLY_BYTES: Final = 512 * 1024
"""From how many on rows are sent though more might come: fewer would make many small requests."""
BATCH_BYTES: Final = 1_000_000
"""Of a record batch, unless ``kafka.batch.size`` says otherwise: there is no need to wait for rows
to come, so batches may be large; topics that take less are found out."""
TOPICS_MAX: Final = 10_000
_ABORT_SECONDS_MAX: Final = 10.0

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """What a task tells the driver."""

    task: Task
    rows: int
    dead_letters: int
    """How many of the rows were put aside, now or when it was done."""
    is_replay: bool
    """It was done before, and wrote nothing now."""
    is_first_of_run: bool
    """The task before it, of the same query, was in an earlier run, or there was none."""
    marker_group: str | None = None
    """Where it left a marker now."""


def write_task(options: SinkOptions, task: Task, batches: Iterable[pa.RecordBatch]) -> TaskWritten:
    """Write the rows of a task; return when they are committed.

    Raises:
        BadRowError: A row cannot be written, and there is no dead letter topic.
        ReplayError: The task was done already, with other rows.
        KafkaError: The brokers did not take them.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return TaskWritten(task, 0, 0, is_replay=False, is_first_of_run=False)
    return TaskWriter(options, task).write(chain([first], filled))


class TaskWriter:
    def __init__(self, options: SinkOptions, task: Task) -> None:
        transactional_id = task.transactional_id if options.is_exactly_once else None
        settings = options.settings(transactional_id)
        producer_options = options_from(settings)
        batch_bytes = BATCH_BYTES
        if "batch.size" in settings.given:
            batch_bytes = max(1, producer_options.batch_size)
        batch_bytes = min(batch_bytes, producer_options.max_request_size)
        self._options = options
        self._task = task
        self._access = sink_access(options)
        self._producer = TaskProducer(
            self._access.cluster, producer_options, batch_bytes=batch_bytes
        )

        def router(topic: str | None) -> Router:
            return Router(
                topic,
                first=task.partition + task.batch,
                stick_bytes=batch_bytes,
                row_bytes_max=producer_options.max_request_size,
                ignore_keys=producer_options.ignore_keys,
            )

        self._router = router(options.topic)
        self._dead_router = router(options.dead_letter_topic)
        self._topics: dict[str, TopicPartitions | str] = {}
        self._portion: dict[TopicPartition, list[Rows]] = {}
        self._portion_bytes = 0
        self._sending: Future[list[BadRow]] | None = None
        self._written: dict[str, int] = {}
        self._marker_group: str | None = None
        self._rows = 0
        self._dead_letters = 0

    def write(self, batches: Iterator[pa.RecordBatch]) -> TaskWritten:
        self._access.run(self._producer.begin())
        marker = self._find_marker()
        is_replay = marker.next_batch > self._task.batch
        if is_replay:
            self._rows = sum(batch.num_rows for batch in batches)
            check_same_rows(self._task, marker, self._rows)
            if marker.next_batch == self._task.batch + 1:
                self._dead_letters = marker.dead_letters
        else:
            self._write_all(batches)
        return TaskWritten(
            self._task,
            self._rows,
            self._dead_letters,
            is_replay=is_replay,
            is_first_of_run=marker.run != self._task.run,
            marker_group=self._marker_group,
        )

    def _find_marker(self) -> Marker:
        if not self._options.is_exactly_once or self._options.without_marker:
            return NO_MARKER
        markers = Markers(self._access.cluster)
        return self._access.run(markers.find(self._task))

    def _write_all(self, batches: Iterator[pa.RecordBatch]) -> None:
        try:
            for batch in batches:
                rows = rows_from(batch, self._rows, with_topic=self._options.topic is None)
                self._rows += len(rows)
                self._add(rows)
                if self._portion_bytes >= PORTION_BYTES or self._is_idle():
                    self._send_portion()
            while self._portion or self._sending is not None:
                self._send_portion()
            self._commit()
        except BaseException:
            self._abort()
            raise

    def _is_idle(self) -> bool:
        """Whether brokers have nothing to do though there is enough for them."""
        is_sending = self._sending is not None and not self._sending.done()
        return self._portion_bytes >= EARLY_BYTES and not is_sending

    def _add(self, rows: Rows) -> None:
        routed = self._router.route(rows, self._known(self._router.topics_of(rows)))
        self._collect(routed.parts, routed.size)
        self._put_aside(routed.bad)

    def _put_aside(self, bad: Sequence[BadRow]) -> None:
        if not bad:
            return
        topic = self._options.dead_letter_topic
        # A dead letter that is refused has nowhere left to go.
        hopeless = [each for each in bad if topic is None or each.topic == topic]
        if topic is None or hopeless:
            raise bad_row_error(self._task, hopeless[0])
        rows = dead_letters(self._task, bad)
        routed = self._dead_router.route(rows, self._known([topic]))
        if routed.bad:
            raise bad_row_error(self._task, routed.bad[0])
        self._dead_letters += len(rows)
        self._collect(routed.parts, routed.size)

    def _known(self, topics: Sequence[str]) -> dict[str, TopicPartitions | str]:
        new = [each for each in topics if each not in self._topics]
        if new:
            if len(self._topics) + len(new) > TOPICS_MAX:
                raise KafkaError(f"{self._task}: rows go to more than {TOPICS_MAX} topics")
            self._topics.update(self._access.run(self._producer.topics(new)))
        return self._topics

    def _collect(self, parts: Sequence[tuple[TopicPartition, Rows]], size: int) -> None:
        for partition, rows in parts:
            self._portion.setdefault(partition, []).append(rows)
            if partition.topic not in self._written:
                known = self._topics[partition.topic]
                assert isinstance(known, TopicPartitions), "rows were routed to it"
                self._written[partition.topic] = known.total
        self._portion_bytes += size

    def _send_portion(self) -> None:
        """Wait for the portion that is under way, and send the next."""
        if self._sending is not None:
            sending, self._sending = self._sending, None
            self._put_aside(sending.result())
        portion = {partition: _joined(rows) for partition, rows in self._portion.items()}
        self._portion.clear()
        self._portion_bytes = 0
        if portion:
            self._sending = self._access.submit(self._producer.send(portion))

    def _commit(self) -> None:
        if not self._written or not self._options.is_exactly_once or self._options.without_marker:
            self._access.run(self._producer.commit())
            return
        task = self._task
        place = task.place(self._written)
        marker = Marker(task.batch + 1, self._rows, task.run, self._dead_letters)
        offsets = {place.partition: marker.committed()}
        self._access.run(self._producer.commit(place.group, offsets))
        self._marker_group = place.group

    def _abort(self) -> None:
        try:
            if self._sending is not None:
                with suppress(Exception):
                    self._sending.result(_ABORT_SECONDS_MAX)  # nothing may come behind the abort
            self._access.run(self._producer.abort(), _ABORT_SECONDS_MAX)
        except (KafkaError, TimeoutError) as error:
            # The next attempt of the task, or the transaction's timeout, will see to it.
            _log.warning("%s: the transaction could not be aborted: %s", self._task, error)


def _joined(parts: Sequence[Rows]) -> Rows:
    if len(parts) == 1:
        return parts[0]
    table = pa.Table.from_batches([each.table.select(_written(each)) for each in parts])
    (batch,) = table.combine_chunks().to_batches()
    return Rows(batch)


def _written(rows: Rows) -> list[str]:
    return [name for name in rows.table.schema.names if name not in ("topic", "partition")]
