"""What is left of the Spark source when Spark is taken away: records into Arrow, one core.

The leader's way fetches, checks and decodes, while the broker, a process of its own, works beside
it; ``log.dirs`` reads files. Both plain and compressed, whole and by headers alone, which is all
that counting needs (the option ``columns``). Beside what Spark can take from a Python
source (``spark_source``, ``arrow alone``) this says whose time it is that a query takes.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa

from bench.spark_site import filled_node
from bench.timing import Row
from odradek.records.arrow import SCHEMA
from odradek.spark.options import parse_options
from odradek.spark.source import OdradekReader

ROUNDS = 5
RECORDS = {100: 300_000, 1024: 60_000}
CODECS = ("none", "lz4", "zstd")
COUNTED = {"columns": "partition"}


def run() -> Iterator[Row]:
    topics = {f"bench-{size}": (size, records) for size, records in RECORDS.items()}
    for codec in CODECS:
        with (
            tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
            filled_node(Path(folder), topics, compression_type=codec) as (servers, log_dir),
        ):
            for size, records in RECORDS.items():
                topic = {"subscribe": f"bench-{size}"}
                files = {"log.dirs": str(log_dir), **topic}
                brokers = {"kafka.bootstrap.servers": servers, **topic}
                for what, more in (("", {}), (", counted", COUNTED)):
                    ways = {
                        "log.dirs": _reading({**files, **more}),
                        "brokers": _reading({**brokers, **more}),
                    }
                    yield from _measure(f"{size} B, {codec}{what}", records, ways)


def _reading(options: dict[str, str]) -> Callable[[], int]:
    parsed = parse_options(options)
    wanted = parsed.columns or SCHEMA.names
    reader = OdradekReader(parsed, pa.schema([SCHEMA.field(name) for name in wanted]))
    parts = reader.partitions()
    return lambda: sum(batch.num_rows for part in parts for batch in reader.read(part))


def _measure(what: str, records: int, ways: dict[str, Callable[[], int]]) -> Iterator[Row]:
    wall, used = dict.fromkeys(ways, float("inf")), dict.fromkeys(ways, float("inf"))
    for _ in range(ROUNDS):
        for name, read in ways.items():
            begun, begun_cpu = time.perf_counter(), time.process_time()
            assert read() == records
            wall[name] = min(wall[name], time.perf_counter() - begun)
            used[name] = min(used[name], time.process_time() - begun_cpu)
    for name, seconds in wall.items():
        yield Row(f"into Arrow, {what}", name, records / seconds / 1000, "krows/s")
    for name, seconds in used.items():
        yield Row(
            f"into Arrow, {what}, CPU of the reader", name, seconds / records * 1e6, "µs a row"
        )
