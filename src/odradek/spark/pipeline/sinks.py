"""Starts the queries that write: topics through our exactly-once sink, all else through Spark.

Files are written by Spark's own file sink, which together with a checkpoint is exactly once for
whoever reads them with Spark: what counts is in the list ``_spark_metadata`` beside them.

Spark gives a sink in Python new rows only. Results that change (``mode: update``) or are written
anew each time (``complete``) take another way to a topic, a batch write for each micro-batch, which
is done once only because it carries the id of the query and the number of the batch.

Missing: those two modes to topics over Spark Connect, where that other way runs on the server.
"""

from collections.abc import Mapping
from pathlib import Path
from queue import Queue
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, StructType

from odradek.spark.options import OptionError
from odradek.spark.pipeline.definition import (
    DEAD_LETTERS,
    AvailableNow,
    DeadLetters,
    Definition,
    Every,
    FormatSink,
    Once,
    Place,
    Sink,
    TopicSink,
    Trigger,
)
from odradek.spark.pipeline.expectations import DEAD_LETTER_COUNT, counting
from odradek.spark.pipeline.failures import SPARK_ERRORS
from odradek.spark.pipeline.steps import Frames, spark_problem
from odradek.spark.pipeline.yaml_positions import DefinitionError, Problem
from odradek.spark.sink_options import COLUMNS, check_schema, parse_sink_options
from odradek.spark.source import FORMAT

_ID_SECONDS_MAX: Final = 60


class PlannedQuery:
    """A query that can be started; making it has shown that Spark can plan it."""

    def __init__(
        self,
        definition: Definition,
        name: str,
        frames: Frames,
        epoch: int,
        dead_letter_file: Path | None = None,
    ) -> None:
        """Put a writer behind the frame of a sink, which counts dead letters in a file.

        Raises:
            DefinitionError: The columns are not what the sink takes.
        """
        self.name = name
        self._definition = definition
        self._dead_letter_file = dead_letter_file
        self._query_id: Queue[str] = Queue()
        sinks = {sink.name: sink for sink in definition.sinks}
        self._place, self._writer = (
            self._dead_letters(frames)
            if name == DEAD_LETTERS
            else self._sink(sinks[name], frames, epoch)
        )

    def start(self, checkpoint: str, trigger: Trigger) -> StreamingQuery:
        """Start it.

        Raises:
            DefinitionError: Spark finds that this kind of query cannot be.
        """
        writer = self._writer.queryName(self._definition.group_of(self.name))
        writer = writer.option("checkpointLocation", checkpoint)
        try:
            query = _triggered(writer, trigger).start()
        except SPARK_ERRORS as error:
            raise spark_problem(self._definition, self._place, error) from error
        self._query_id.put(str(query.id))
        return query

    def _sink(self, sink: Sink, frames: Frames, epoch: int) -> tuple[Place, DataStreamWriter]:
        frame = frames[sink.step]
        self._check_mode(sink, frame)
        match sink:
            case TopicSink():
                options = self._definition.topic_options(sink.topic, sink.options)
                records = self._checked_records(sink, frame, options)
                dead = self._definition.dead_letters
                if dead is not None:
                    options.setdefault("deadLetterTopic", dead.topic)
                if self._dead_letter_file is not None:
                    options["deadLetterCountFile"] = str(self._dead_letter_file)
                writer = self._topic_writer(sink, records, options)
            case FormatSink():
                writer = frame.writeStream.format(sink.format).options(**sink.options)
                path = sink.path_of(epoch)
                if path is not None:
                    writer = writer.option("path", path)
                if sink.partition_by:
                    writer = writer.partitionBy(*sink.partition_by)
        return sink.place, writer.outputMode(sink.mode)

    def _check_mode(self, sink: Sink, frame: DataFrame) -> None:
        """Have Spark say that a mode does not go with a step, which it does when a query starts.

        By then the queries before it would run. Over Spark Connect there is no asking earlier.
        """
        if self._is_remote:
            return
        jvm = frame.sparkSession.sparkContext._jvm
        assert jvm is not None
        analysis = jvm.org.apache.spark.sql.catalyst.analysis
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        mode = {"append": modes.Append, "update": modes.Update, "complete": modes.Complete}
        plan = frame._jdf.queryExecution().analyzed()
        try:
            analysis.UnsupportedOperationChecker.checkForStreaming(plan, mode[sink.mode]())
        except SPARK_ERRORS as error:
            raise spark_problem(self._definition, sink.place, error) from error

    def _checked_records(
        self, sink: TopicSink, frame: DataFrame, options: Mapping[str, str]
    ) -> DataFrame:
        try:
            records = _records(frame, sink.key)
            check_schema(parse_sink_options(options), records.schema)
        except SPARK_ERRORS as error:
            raise spark_problem(self._definition, sink.place, error) from error
        except OptionError as error:
            problem = Problem(self._definition.file, *sink.place, str(error))
            raise DefinitionError([problem]) from error
        return records

    @property
    def _is_remote(self) -> bool:
        return self._definition.is_remote

    def _topic_writer(
        self, sink: TopicSink, records: DataFrame, options: dict[str, str]
    ) -> DataStreamWriter:
        if sink.mode == "append":
            return records.writeStream.format(FORMAT).options(**options)
        if self._is_remote:
            message = f"topics cannot have mode {sink.mode} over Spark Connect"
            place = sink.place
            raise DefinitionError([Problem(self._definition.file, *place, message)])
        query_id: list[str] = []

        def write(batch: DataFrame, number: int) -> None:
            # The first batch may come before the id of a new query is known.
            if not query_id:
                query_id.append(self._query_id.get(timeout=_ID_SECONDS_MAX))
            once = {"txnAppId": query_id[0], "txnVersion": str(number)}
            batch.write.format(FORMAT).options(**options, **once).mode("append").save()

        return records.writeStream.foreachBatch(write)

    def _dead_letters(self, frames: Frames) -> tuple[Place, DataStreamWriter]:
        dead = self._definition.dead_letters
        assert isinstance(dead, DeadLetters), "the file was checked"
        frame = counting(frames.dead_letters(), DEAD_LETTER_COUNT, f.lit(True))
        options = self._definition.topic_options(dead.topic, dead.options)
        return dead.place, frame.writeStream.format(FORMAT).options(**options)


def _records(frame: DataFrame, key: str | None) -> DataFrame:
    """Return the columns of a record: those of the step, or the whole row as JSON."""
    names = {name.lower() for name in frame.columns}
    if "value" in names:
        fields = [field for field in frame.schema.fields if field.name.lower() in COLUMNS]
        records = [_column(each) for each in fields if key is None or each.name.lower() != "key"]
    else:
        records = [f.to_json(f.struct("*")).alias("value")]
    if key is not None:
        records.append(f.expr(key).cast("string").alias("key"))
    return frame.select(*records)


def _column(field: StructField) -> Column:
    """Return a column; a key or value with fields of its own is written as it was read: as JSON."""
    column = f.col(f"`{field.name}`")
    is_json = isinstance(field.dataType, StructType) and field.name.lower() in ("key", "value")
    return f.to_json(column).alias(field.name) if is_json else column


def _triggered(writer: DataStreamWriter, trigger: Trigger) -> DataStreamWriter:
    match trigger:
        case AvailableNow():
            return writer.trigger(availableNow=True)
        case Once():
            return writer.trigger(once=True)
        case Every(interval):
            return writer.trigger(processingTime=interval or "0 seconds")
