"""The data source that Spark finds under the name ``odradek``: readers and writers, and the schema.

A row of the source is a record, in the columns of Spark's Kafka source. ``keyFormat`` and
``valueFormat`` change the types of those two and add a column for rows that cannot be decoded.

Conditions of a query are not pushed down (``pushFilters``): Spark 4.3 uses the reader that had some
for later queries over the same DataFrame too, which then miss rows. Where to begin and to end, and
which columns are wanted, can be said by options.

Sinks and log files are imported when they are asked for: every Python worker of Spark imports this
module, and most only read from brokers.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from odradek.records.arrow import SCHEMA, SCHEMA_WITH_HEADERS
from odradek.spark.formats import CORRUPT, CORRUPT_DDL, CORRUPT_TYPE, column_ddl, has_formats
from odradek.spark.message_first import message_first
from odradek.spark.options import OptionError, SourceOptions, check_for_batch, parse_options
from odradek.spark.planning import Planner
from odradek.spark.rows import read_rows
from odradek.spark.stream_reader import OdradekStreamReader

FORMAT = "odradek"


class OdradekDataSource(DataSource):
    """Topics as DataFrames: ``spark.read.format("odradek")`` and its siblings."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    @message_first
    def schema(self) -> str:
        """Return the columns, as DDL: only Spark can parse what a user writes as a schema."""
        return _ddl(parse_options(self.options))

    @message_first
    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        check_for_batch(options)
        return OdradekReader(options, _checked_schema(options, schema))

    @message_first
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = parse_options(self.options)
        return OdradekStreamReader(options, _checked_schema(options, schema))

    @message_first
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from odradek.spark.sink import batch_writer

        return batch_writer(self.options, schema, overwrite=overwrite)

    @message_first
    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from odradek.spark.sink import stream_writer

        return stream_writer(self.options, schema, overwrite=overwrite)


class OdradekReader(DataSourceReader):
    """Reads a bounded range, planned once."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        if self._options.log_dirs:
            from odradek.spark.log_dirs import plan_log_dirs

            return [InputPartition(each) for each in plan_log_dirs(self._options)]
        return [InputPartition(each) for each in Planner(self._options).batch_ranges()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Where there is nothing to read Spark makes up a partition without a value.
        if partition.value is None:
            return iter(())
        return read_rows(self._options, self._schema, partition.value)


def _ddl(options: SourceOptions) -> str:
    columns = {
        "key": column_ddl("key", options.key_format, options.key_schema),
        "value": column_ddl("value", options.value_format, options.value_schema),
        "topic": "topic STRING",
        "partition": "partition INT",
        "offset": "offset LONG",
        "timestamp": "timestamp TIMESTAMP",
        "timestampType": "timestampType INT",
    }
    if options.include_headers:
        columns["headers"] = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
    if has_formats(options):
        columns[CORRUPT] = CORRUPT_DDL
    missing = [name for name in options.columns if name not in columns]
    if missing:
        raise OptionError(f"columns: {missing[0]!r} is not one of {', '.join(columns)}")
    return ", ".join(columns[name] for name in options.columns or columns)


def _checked_schema(options: SourceOptions, schema: StructType) -> pa.Schema:
    """Return the schema in Arrow's terms.

    Raises:
        OptionError: It is not the source's own: ``.schema(…)`` was called.
    """
    given = to_arrow_schema(schema, timezone="UTC")
    expected = SCHEMA_WITH_HEADERS if options.include_headers else SCHEMA
    for name, kind in (("key", options.key_format), ("value", options.value_format)):
        if kind != "binary" and name in given.names:
            expected = expected.set(expected.get_field_index(name), given.field(name))
    if has_formats(options):
        expected = expected.append(pa.field(CORRUPT, CORRUPT_TYPE))
    if options.columns:
        expected = pa.schema([expected.field(name) for name in options.columns])
    if not given.equals(expected):
        raise OptionError("the odradek source has a fixed schema: do not set one")
    return given
