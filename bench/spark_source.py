"""Our Spark source beside Spark's own Kafka connector, and beside rows made on the spot.

Batches and streams over a topic of two partitions, into ``noop`` and into Parquet files; the broker
is a node of ours in a process of its own, and Spark has two cores. ``arrow alone`` is a Python data
source whose batches are there already: what is left is Spark's, and no Python source can be faster.
Then the same of one column, records only counted, and queries that want few rows: how long they
take.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pyspark.sql import DataFrame

from bench.spark_made import made_source
from bench.spark_site import (
    PARTITIONS,
    Site,
    filled_node,
    first_time_ms,
    rates,
    spark_site,
    take_turns,
)
from bench.timing import Row

ROUNDS = 3
STREAM_ROUNDS = 2
RECORDS = {100: 600_000, 1024: 120_000}
MICRO_BATCHES = 6
SINKS = ("noop", "parquet")
WANTED_SHARE = 100
"""A query that wants few rows wants one of so many."""
SECONDS_MAX = 600


class Source(NamedTuple):
    format: str
    options: Mapping[str, str]
    columns: tuple[str, ...] = ("*",)


def run() -> Iterator[Row]:
    topics = {f"bench-{size}": (size, records) for size, records in RECORDS.items()}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        filled_node(Path(folder), topics) as (servers, log_dir),
        spark_site() as site,
    ):
        for size, records in RECORDS.items():
            bench = _Bench(site, Path(folder), size, records)
            topic = {"subscribe": f"bench-{size}"}
            brokers = {"kafka.bootstrap.servers": servers, **topic}
            files = {"log.dirs": str(log_dir), **topic}
            yield from bench.batches(brokers, files)
            yield from bench.streams(brokers)
            yield from bench.one_column(brokers, files)
            yield from bench.counted(brokers, files)
            yield from bench.few_rows(brokers, files)


class _Bench:
    def __init__(self, site: Site, folder: Path, size: int, records: int) -> None:
        self._site, self._folder = site, folder
        self._size, self._records = size, records
        self._trigger_seconds: dict[str, float] = {}
        """What a stream's micro-batches took by Spark's own account, at best."""
        for name, columns in (("made", ()), ("made_narrow", ("value",))):
            made = made_source(name, size, records // PARTITIONS, PARTITIONS, columns)
            site.spark.dataSource.register(made)

    def batches(self, brokers: Mapping[str, str], files: Mapping[str, str]) -> Iterator[Row]:
        sources = {
            "odradek": Source("odradek", brokers),
            "odradek, log.dirs": Source("odradek", files),
            "arrow alone": Source("made", {}),
            **self._connector(brokers),
        }
        for sink in SINKS:
            work = {name: partial(self._batch, each, sink) for name, each in sources.items()}
            costs = take_turns(work, ROUNDS)
            yield from rates(f"spark batch {self._size} B to {sink}", self._records, costs)

    def streams(self, brokers: Mapping[str, str]) -> Iterator[Row]:
        limit = {"maxOffsetsPerTrigger": str(self._records // MICRO_BATCHES)}
        for more, kind, sink in (
            ({}, "one", "noop"),
            ({}, "one", "parquet"),
            (limit, str(MICRO_BATCHES), "noop"),
        ):
            options = {**brokers, **more, "startingOffsets": "earliest"}
            sources = {
                "odradek": Source("odradek", options),
                "arrow alone": Source("made", more),
                **self._connector(options),
            }
            work = {name: partial(self._stream, each, sink) for name, each in sources.items()}
            what = f"spark stream {self._size} B to {sink}, micro-batches: {kind}"
            self._trigger_seconds.clear()
            yield from rates(what, self._records, take_turns(work, STREAM_ROUNDS))
            for name, each in sources.items():
                rate = self._records / self._trigger_seconds[each.format] / 1000
                yield Row(f"{what}, without the start", name, rate, "krows/s")

    def one_column(self, brokers: Mapping[str, str], files: Mapping[str, str]) -> Iterator[Row]:
        wanted = {"columns": "value"}
        sources = {
            "odradek, columns": Source("odradek", {**brokers, **wanted}),
            "odradek, select": Source("odradek", brokers, ("value",)),
            "log.dirs, columns": Source("odradek", {**files, **wanted}),
            "arrow alone": Source("made_narrow", {}),
            **self._connector(brokers, ("value",)),
        }
        work = {name: partial(self._batch, each, "noop") for name, each in sources.items()}
        what = f"spark batch {self._size} B, values only"
        yield from rates(what, self._records, take_turns(work, ROUNDS))

    def counted(self, brokers: Mapping[str, str], files: Mapping[str, str]) -> Iterator[Row]:
        """Rows that nobody looks at: headers of batches tell how many there are."""
        wanted = {"columns": "partition"}
        sources = {
            "log.dirs, columns": Source("odradek", {**files, **wanted}),
            "odradek, columns": Source("odradek", {**brokers, **wanted}),
            "log.dirs": Source("odradek", files),
            "odradek": Source("odradek", brokers),
            **self._connector(brokers),
        }
        work = {name: partial(self._count, each, self._records) for name, each in sources.items()}
        what = f"spark batch {self._size} B, counted"
        yield from rates(what, self._records, take_turns(work, ROUNDS))

    def few_rows(self, brokers: Mapping[str, str], files: Mapping[str, str]) -> Iterator[Row]:
        """The newest rows, by the option that says where to begin."""
        wanted = self._records // WANTED_SHARE
        since_ms = first_time_ms(self._records) + self._records - wanted
        begin = {"startingTimestamp": str(since_ms)}
        sources = {
            "log.dirs": Source("odradek", {**files, **begin}),
            "odradek": Source("odradek", {**brokers, **begin}),
            **self._connector({**brokers, **begin}),
        }
        work = {name: partial(self._count, each, wanted) for name, each in sources.items()}
        costs = take_turns(work, ROUNDS)
        what = f"spark batch {self._size} B, the newest of {WANTED_SHARE}"
        for name, cost in costs.items():
            yield Row(what, name, cost.seconds * 1000, "ms")
        for name, cost in costs.items():
            yield Row(f"{what}, CPU of Spark", name, cost.cpu_seconds * 1000, "ms")

    def _connector(
        self, options: Mapping[str, str], columns: tuple[str, ...] = ("*",)
    ) -> dict[str, Source]:
        source = Source("kafka", options, columns)
        return {"kafka connector": source} if self._site.has_connector else {}

    # Queries.

    def _frame(self, source: Source) -> DataFrame:
        reader = self._site.spark.read.format(source.format).options(**source.options)
        return reader.load().select(*source.columns)

    def _batch(self, source: Source, sink: str) -> None:
        writer = self._frame(source).write.format(sink).mode("overwrite")
        writer.save(*([] if sink == "noop" else [str(self._folder / "output")]))

    def _count(self, source: Source, wanted: int) -> None:
        found = self._frame(source).count()
        assert found == wanted, f"{found} rows"

    def _stream(self, source: Source, sink: str) -> None:
        reader = self._site.spark.readStream.format(source.format).options(**source.options)
        output = Path(tempfile.mkdtemp(dir=self._folder))
        writer = reader.load().writeStream.format(sink).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(output / "checkpoint"))
        query = writer.start(*([] if sink == "noop" else [str(output / "rows")]))
        assert query.awaitTermination(SECONDS_MAX)
        assert query.exception() is None
        took = sum(each.durationMs["triggerExecution"] for each in query.recentProgress) / 1000
        best = self._trigger_seconds.get(source.format, took)
        self._trigger_seconds[source.format] = min(best, took)
        shutil.rmtree(output)
