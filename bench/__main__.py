"""Runs the benchmarks and prints a table: ``python -m bench [--against TREE] [NAME ...]``.

Those of Spark take minutes each, and run when they are named: ``spark_source spark_reading
spark_sink spark_latency``.
"""

import argparse
from collections.abc import Iterable
from importlib import import_module
from itertools import groupby
from pathlib import Path

from bench import brokers
from bench.timing import Row

SUITES = (
    *("protocol", "records", "storage", "cleaner", "net", "fetch"),
    *("node", "groups", "transactions", "client_producer", "client_consumer"),
)


def show(rows: Iterable[Row]) -> None:
    """Print rows by operation, as they come; the ratio is how much better the first one is."""
    for operation, group in groupby(rows, key=lambda row: row.operation):
        print(operation, flush=True)
        first: Row | None = None
        for row in group:
            first = first or row
            against = "" if row is first else _compared(first, row)
            print(f"    {row.implementation:<24}{row.value:>14,.2f} {row.unit}{against}")


def _compared(first: Row, row: Row) -> str:
    better, worse = first.value, row.value
    if not row.unit.endswith("/s"):  # less is better
        better, worse = worse, better
    return f"   {first.implementation} is {better / worse:.1f}x" if worse else ""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        type=Path,
        metavar="TREE",
        help="another version in place of Kafka: a checkout with its .venv; "
        "for what starts brokers (node, groups, transactions)",
    )
    arguments = parser.parse_args()
    brokers.AGAINST += [tree.absolute() for tree in arguments.against]
    for name in arguments.names or SUITES:
        show(Row(*row) for row in import_module(f"bench.{name}").run())


if __name__ == "__main__":
    main()
