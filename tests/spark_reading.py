"""Drives the Spark source as Spark does, without Spark: plans, then reads every partition."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from odradek.client import BlockingProducer
from odradek.core.ids import TopicPartition
from odradek.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS
from odradek.spark.options import check_for_batch, parse_options
from odradek.spark.source import OdradekReader
from odradek.spark.stream_reader import OdradekStreamReader

Offsets = dict[str, dict[str, int]]
# A query that has to give up shall do so soon.
HASTY = {"fetchOffset.retryIntervalMs": "20", "kafka.fetch.max.wait.ms": "50"}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def batch_reader(options: Mapping[str, str]) -> OdradekReader:
    parsed = parse_options({**HASTY, **options})
    check_for_batch(parsed)
    schema = SCHEMA_WITH_HEADERS if parsed.include_headers else SCHEMA
    wanted = parsed.columns or schema.names
    return OdradekReader(parsed, pa.schema([schema.field(name) for name in wanted]))


def read_batch(options: Mapping[str, str]) -> pa.Table:
    reader = batch_reader(options)
    schema = SCHEMA_WITH_HEADERS if parse_options(options).include_headers else SCHEMA
    # Readers and partitions travel to other processes.
    copy = pickle.loads(pickle.dumps(reader))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    batches = [batch for part in parts for batch in copy.read(part)]
    return pa.Table.from_batches(batches, schema)


def values(table: pa.Table) -> list[bytes]:
    found: list[bytes] = table.column("value").to_pylist()
    return found


class Stream:
    """A streaming query: its offsets, and the rows of its micro-batches."""

    def __init__(self, options: Mapping[str, str], start: Offsets | None = None) -> None:
        self.reader = OdradekStreamReader(parse_options({**HASTY, **options}), SCHEMA)
        self.offset: dict[str, Any] = self.reader.initialOffset() if start is None else start
        self._is_new = start is None

    def step(self, limit: ReadLimit | None = None) -> list[bytes] | None:
        """Run a micro-batch; None if there is nothing new."""
        if limit is None:
            limit = self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(self.offset, limit)
        is_first, self._is_new = self._is_new, False
        if end == self.offset and is_first:
            # Spark runs the first batch whatever is in it.
            assert self.reader.partitions(self.offset, end) == []
            end = self.reader.latestOffset(self.offset, limit)
        if end == self.offset:
            return None
        rows = [
            value
            for part in self.reader.partitions(self.offset, end)
            for batch in self.reader.read(part)
            for value in batch.column("value").to_pylist()
        ]
        self.offset = end
        return rows

    def everything(self) -> list[bytes] | None:
        return self.step(ReadAllAvailable())


def produce(
    servers: str, topic: str, given: Iterable[bytes | None], *, partition: int = 0, **more: Any
) -> list[int]:
    """Send values one after the other; returns their offsets."""
    with BlockingProducer(bootstrap_servers=servers, linger_ms=5, **more) as producer:
        sent = [producer.send(topic, value=each, partition=partition) for each in given]
        producer.flush()
        return [each.result().offset for each in sent]


def at(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)
