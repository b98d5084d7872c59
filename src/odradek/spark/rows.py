"""A task's rows: from brokers or from files, in the columns and forms that are wanted."""

from collections.abc import Iterator

import pyarrow as pa

from odradek.spark.formats import Formatter, has_formats
from odradek.spark.offsets import LogRange, OffsetRange
from odradek.spark.options import SourceOptions
from odradek.spark.reading import read_range


def read_rows(
    options: SourceOptions, schema: pa.Schema, wanted: OffsetRange | LogRange
) -> Iterator[pa.RecordBatch]:
    """Iterate over the records of a range, in batches of the schema that Spark was told."""
    if isinstance(wanted, LogRange):
        from odradek.spark.log_dirs import read_log_range

        batches = read_log_range(options, wanted)
    else:
        batches = read_range(options, wanted)
    if has_formats(options):
        return _formatted(batches, Formatter(options, schema))
    return (batch.select(schema.names) for batch in batches) if options.columns else batches


def _formatted(batches: Iterator[pa.RecordBatch], formatter: Formatter) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield formatter.apply(batch)
