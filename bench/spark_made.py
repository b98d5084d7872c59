"""Python data sources that do nothing, in batches and streams: what is left is Spark's own pace.

One has its rows already, the other counts those that it is given.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

BATCH_BYTES = 4 * 1024 * 1024
TYPES: Mapping[str, str] = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestampType": "int",
}


def made_source(
    name: str, size: int, records: int, partitions: int, columns: tuple[str, ...] = ()
) -> type[DataSource]:
    """Return a source like a topic; made inside a function, so that it travels by value."""
    names, ddl = columns or tuple(TYPES), dict(TYPES)
    rows_max = BATCH_BYTES // size

    def rows(partition: int, wanted: int) -> Iterator[pa.RecordBatch]:
        made = {
            "key": pa.nulls(rows_max, pa.binary()),
            "value": pa.repeat(pa.scalar(b"x" * size, pa.binary()), rows_max),
            "topic": pa.repeat(f"bench-{size}", rows_max),
            "partition": pa.repeat(pa.scalar(partition, pa.int32()), rows_max),
            "offset": pa.repeat(pa.scalar(1, pa.int64()), rows_max),
            "timestamp": pa.repeat(pa.scalar(1, pa.timestamp("us", "UTC")), rows_max),
            "timestampType": pa.repeat(pa.scalar(0, pa.int32()), rows_max),
        }
        batch = pa.RecordBatch.from_arrays([made[each] for each in names], names=list(names))
        for start in range(0, wanted, rows_max):
            yield batch.slice(0, min(rows_max, wanted - start))

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(partitions)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return rows(partition.value, records)

    class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
        def __init__(self, rows_per_trigger: int) -> None:
            self._per_trigger = rows_per_trigger

        def initialOffset(self) -> dict[str, int]:  # noqa: N802
            return {"rows": 0}

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            return ReadMaxRows(self._per_trigger) if self._per_trigger else ReadAllAvailable()

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Nothing is added later."""

        def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
            most = limit.max_rows if isinstance(limit, ReadMaxRows) else partitions * records
            return {"rows": min(partitions * records, start["rows"] + most)}

        def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
            share = (end["rows"] - start["rows"]) // partitions
            return [InputPartition((number, share)) for number in range(partitions)]

        def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
            return rows(*partition.value)

    class Made(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def schema(self) -> str:
            return ", ".join(f"{each} {ddl[each]}" for each in names)

        def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
            return Reader()

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802, ARG002
            return StreamReader(int(self.options.get("maxOffsetsPerTrigger", 0)))

    return Made


def counting_sink(name: str) -> type[DataSource]:
    """Return a sink that takes rows and leaves them; made inside a function, as the source is."""

    def count(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        sum(batch.num_rows for batch in iterator)
        return WriterCommitMessage()

    class Writer(DataSourceArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return count(iterator)

    class StreamWriter(DataSourceStreamArrowWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
            return count(iterator)

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return name

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
            return Writer()

        def streamWriter(  # noqa: N802
            self,
            schema: StructType,  # noqa: ARG002
            overwrite: bool,  # noqa: ARG002
        ) -> DataSourceStreamArrowWriter:
            return StreamWriter()

    return Counting
