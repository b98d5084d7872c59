"""What has been counted of one query since its epoch began. Pure.

Spark counts a micro-batch and forgets it, so totals are kept in the checkpoint of the pipeline,
with the number of the last batch that is in them: one that is told twice is counted once. What a
batch counted is known only when it is told; one that was committed just before the driver was
killed never is. Then the next one has a number too high, and ``uncounted_batches`` says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odradek.spark.pipeline.expectations import (
    CORRUPT_COUNT,
    DEAD_LETTER_COUNT,
    EXPECTATION_PREFIX,
    FAILED,
    ROWS,
)


@dataclass
class Count:
    rows: int = 0
    failed: int = 0


@dataclass
class Totals:
    query_id: str = ""
    """Spark's, which is in the checkpoint of the query: with another one all begins anew."""
    last_batch: int | None = -1
    """The last one that is counted; None: counts of earlier runs were not kept."""
    batches: int = 0
    uncounted_batches: int = 0
    input_rows: int = 0
    corrupt_records: int = 0
    dead_letters: int = 0
    expectations: dict[str, Count] = field(default_factory=dict)

    @property
    def bad_rows(self) -> int:
        return self.corrupt_records + sum(each.failed for each in self.expectations.values())

    def of_query(self, query_id: str) -> "Totals":
        """Return these, or new ones if they are those of another query."""
        if query_id == self.query_id:
            return self
        return Totals(query_id, None if self.last_batch is None else -1)

    def count_batch(
        self, batch: int, input_rows: int, observed: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Count a batch, with all that Spark observed in it, unless it has been counted."""
        if self.last_batch is not None:
            if batch <= self.last_batch:
                return
            self.uncounted_batches += batch - self.last_batch - 1
        self.last_batch = batch
        self.batches += 1
        self.input_rows += input_rows
        for name, counts in observed.items():
            self._observe(name, counts)

    def _observe(self, name: str, counts: Mapping[str, Any]) -> None:
        rows, failed = int(counts.get(ROWS) or 0), int(counts.get(FAILED) or 0)
        if name == CORRUPT_COUNT:
            self.corrupt_records += failed
        elif name == DEAD_LETTER_COUNT:
            self.dead_letters += failed
        elif name.startswith(EXPECTATION_PREFIX):
            count = self.expectations.setdefault(name.removeprefix(EXPECTATION_PREFIX), Count())
            count.rows += rows
            count.failed += failed

    def as_json(self) -> dict[str, Any]:
        return {
            "batches": self.batches,
            "uncounted_batches": self.uncounted_batches,
            "input_rows": self.input_rows,
            "corrupt_records": self.corrupt_records,
            "dead_letters": self.dead_letters,
            "expectations": {
                name: {"rows": count.rows, "failed": count.failed}
                for name, count in self.expectations.items()
            },
        }


def kept(totals: Totals) -> dict[str, Any]:
    """Return what is written down of totals."""
    return {"query_id": totals.query_id, "last_batch": totals.last_batch, **totals.as_json()}


def read_totals(written: Mapping[str, Any]) -> Totals:
    """Return totals as they were written down.

    Raises:
        KeyError, TypeError, ValueError: They were not.
    """
    return Totals(
        query_id=str(written["query_id"]),
        last_batch=int(written["last_batch"]),
        batches=int(written["batches"]),
        uncounted_batches=int(written["uncounted_batches"]),
        input_rows=int(written["input_rows"]),
        corrupt_records=int(written["corrupt_records"]),
        dead_letters=int(written["dead_letters"]),
        expectations={
            str(name): Count(int(count["rows"]), int(count["failed"]))
            for name, count in written["expectations"].items()
        },
    )
