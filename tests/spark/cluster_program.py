"""A driver program for tests of clusters: one pipeline file, then a batch into a topic and back.

``python -m tests.spark.cluster_program FILE SERVERS FOLDER [OPTION=VALUE ...]`` prints what it
found as a line of JSON. Where it runs is what the file says, and ``OPTION`` is Spark's.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from odradek.spark import pipeline
from tests.spark.patience import patiently

BATCH_ROWS = 50
ANSWER = "FOUND "


def main(file: Path, servers: str, folder: Path, conf: dict[str, str]) -> None:
    definition = pipeline.load(file)
    settings = replace(definition.spark, conf={**definition.spark.conf, **conf})
    definition = replace(definition, spark=settings)
    spark = pipeline.make_session(definition)
    found = run_all(spark, definition, servers, folder)
    found["pythons"] = sorted(pythons(spark))
    spark.stop()
    print(ANSWER + json.dumps(found))


def run_all(
    spark: SparkSession, definition: pipeline.Definition, servers: str, folder: Path
) -> dict[str, Any]:
    """Run the pipeline and a batch write; return what came out."""
    patiently(lambda: pipeline.run(definition, spark=spark))
    archive = spark.read.parquet(str(folder / "archive")).orderBy("n")
    patiently(lambda: write_batch(spark, servers))
    return {
        "archive": [row.asDict() for row in archive.collect()],
        "topic": sorted(patiently(lambda: read_batch(spark, servers, "out"))),
        "batch": sorted(patiently(lambda: read_batch(spark, servers, "batch"))),
    }


def write_batch(spark: SparkSession, servers: str) -> None:
    rows = spark.range(0, BATCH_ROWS, numPartitions=2).selectExpr(
        "CAST(id AS STRING) AS key", "concat('row ', id) AS value"
    )
    options = {"kafka.bootstrap.servers": servers, "topic": "batch"}
    options |= {"txnAppId": "cluster-program", "txnVersion": "1"}
    rows.write.format("odradek").options(**options).mode("append").save()


def read_batch(spark: SparkSession, servers: str, topic: str) -> list[str]:
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    committed = {"kafka.isolation.level": "read_committed"}
    records = spark.read.format("odradek").options(**options, **committed).load()
    return [row["value"] for row in records.select(f.col("value").cast("string")).collect()]


def pythons(spark: SparkSession) -> set[tuple[str, bool]]:
    """Return where the executors' Pythons have this package from, and whether it is installed."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from importlib import metadata

        import odradek

        is_installed = any(each.name == "odradek" for each in metadata.distributions())
        for _ in batches:
            columns = {"place": [odradek.__file__], "is_installed": [is_installed]}
            yield pa.RecordBatch.from_pydict(columns)

    looked = spark.range(0, 2, numPartitions=2).mapInArrow(
        look, "place STRING, is_installed BOOLEAN"
    )
    return {(row["place"], row["is_installed"]) for row in looked.collect()}


if __name__ == "__main__":
    _, given_file, given_servers, given_folder, *pairs = sys.argv
    given_conf = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    main(Path(given_file), given_servers, Path(given_folder), given_conf)
