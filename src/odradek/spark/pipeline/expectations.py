"""What is expected of rows, and what becomes of those that are not as expected.

All three verdicts are counted by Spark as the rows go by (``DataFrame.observe``) and told with the
progress of a query. ``drop`` leaves rows out, ``quarantine`` makes dead letters of them, ``fail``
stops the query before the micro-batch is committed.

A dead letter has headers in the names that Kafka Connect uses. Records that could not be decoded
keep their key and value; rows that failed an expectation are written as JSON, without a key, but
with all their columns: one that is null is often the one that failed.

The query of the dead letters reads the source once for each kind of them. It tells how many records
there are, each once, and how many dead letters; the rest is told by the queries of the sinks.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from odradek.spark.dead_letters import CONNECT_PREFIX
from odradek.spark.formats import CORRUPT
from odradek.spark.pipeline.definition import Corrupt, Expectation
from odradek.spark.pipeline.origins import ORIGIN, with_origin

ROWS: Final = "rows"
FAILED: Final = "failed"
EXPECTATION_PREFIX: Final = "expectation "
SOURCE_COUNT: Final = "source"
CORRUPT_COUNT: Final = "corrupt records"
DEAD_LETTER_COUNT: Final = "dead letters"


class Rejects(NamedTuple):
    """Where rows go that are to be quarantined."""

    pipeline: str
    frames: list[DataFrame]
    is_wanted: bool
    """In the query of the dead letters; it leaves the counting of rows to the sinks."""
    origins: list[DataFrame]
    """The source with the column ORIGIN, once it is there, where Spark lets it be followed."""


def apply_expectation(frame: DataFrame, expectation: Expectation, rejects: Rejects) -> DataFrame:
    """Return the rows that go on; those that are to be quarantined are added to ``rejects``."""
    is_met = f.coalesce(f.expr(expectation.condition).cast("boolean"), f.lit(False))
    counted = frame
    if not rejects.is_wanted:
        counted = counting(frame, EXPECTATION_PREFIX + expectation.name, ~is_met)
    if expectation.otherwise == "fail":
        told = _row_json()
        problem = f.concat(f.lit(_problem(expectation) + ": "), f.substring(told, 1, 500))
        return counted.filter(_or_fail(is_met, problem))
    if expectation.otherwise == "quarantine" and rejects.is_wanted:
        rejects.frames.append(_quarantined(rejects, frame.filter(~is_met), expectation))
    return counted.filter(is_met)


def sound_records(frame: DataFrame, corrupt: Corrupt, *, is_counted: bool) -> DataFrame:
    """Return the records of a source that could be decoded."""
    is_sound = f.col(CORRUPT).isNull()
    if corrupt == "fail":
        where = f.concat_ws("", "topic", f.lit("-"), "partition", f.lit(" offset "), "offset")
        error = f.col(f"{CORRUPT}.error")
        problem = f.concat(f.lit("record cannot be decoded: "), where, f.lit(": "), error)
        return frame.filter(_or_fail(is_sound, problem))
    counted = counting(frame, CORRUPT_COUNT, ~is_sound) if is_counted else frame
    return counted.filter(is_sound)


def corrupt_records(pipeline: str, frame: DataFrame) -> DataFrame:
    """Return the records of a source that could not be decoded, as dead letters."""
    headers = {
        "topic": f.col("topic"),
        "partition": f.col("partition"),
        "offset": f.col("offset"),
        "connector.name": f.lit(pipeline),
        "stage": f.lit("VALUE_CONVERTER"),
        "exception.message": f.col(f"{CORRUPT}.error"),
    }
    return frame.filter(f.col(CORRUPT).isNotNull()).select(
        f.col(f"{CORRUPT}.key").alias("key"),
        f.col(f"{CORRUPT}.value").alias("value"),
        _headers(headers),
    )


def counting(frame: DataFrame, name: str, is_failed: Column) -> DataFrame:
    """Return the same rows; how many there are, and failed, is told with the progress."""
    failed = f.coalesce(f.sum(f.when(is_failed, 1).otherwise(0)), f.lit(0))
    return frame.observe(name, f.count(f.lit(1)).alias(ROWS), failed.alias(FAILED))


def _quarantined(rejects: Rejects, frame: DataFrame, expectation: Expectation) -> DataFrame:
    headers = {
        "connector.name": f.lit(rejects.pipeline),
        "stage": f.lit("TRANSFORMATION"),
        "exception.message": f.lit(_problem(expectation)),
    }
    records = frame.select(
        f.lit(None).cast("binary").alias("key"), _row_json().cast("binary").alias("value")
    )
    placed = with_origin(records, rejects.origins[-1]) if rejects.origins else None
    if placed is not None:
        place = {each: f.col(f"{ORIGIN}.{each}") for each in ("topic", "partition", "offset")}
        headers = place | headers
    return (records if placed is None else placed).select("key", "value", _headers(headers))


def _row_json() -> Column:
    return f.to_json(f.struct("*"), {"ignoreNullFields": "false"})


def _headers(values: dict[str, Column]) -> Column:
    pairs = [
        f.struct(
            f.lit(CONNECT_PREFIX + name).alias("key"),
            value.cast("string").cast("binary").alias("value"),
        )
        for name, value in values.items()
    ]
    return f.array(*pairs).alias("headers")


def _problem(expectation: Expectation) -> str:
    condition = " ".join(expectation.condition.split())
    return f"expectation '{expectation.name}' of '{expectation.step}' is not met: {condition}"


def _or_fail(is_met: Column, problem: Column) -> Column:
    return f.when(is_met, f.lit(True)).otherwise(f.raise_error(problem).cast("boolean"))
