"""Rows that cannot be written, as records of a dead letter topic. Pure.

Key, value and headers are the row's own; further headers say what was wrong, in the names that
Kafka Connect uses, and where the row was: query, micro-batch, Spark partition, and row number in
it. ``…refused.by`` is ``broker``, then with ``…code``, or ``sink``: such a row was never sent. A
row that is too large goes without its key and value.

A dead letter that cannot be written fails the task: no row is lost in silence.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from odradek.client.errors import BrokerError
from odradek.spark.sink_rows import HEADERS, BadRow, Rows
from odradek.spark.task_markers import Task

CONNECT_PREFIX: Final = "__connect.errors."
PLACE_PREFIX: Final = "__odradek.errors."
REASON_CHARACTERS_MAX: Final = 2_000


class BadRowError(ValueError):
    """A row cannot be written, and there is no dead letter topic."""


def bad_row_error(task: Task, bad: BadRow) -> BadRowError:
    where = f"topic {bad.topic}: " if bad.topic is not None else ""
    return BadRowError(
        f"{task}, row {bad.number}: {where}{bad.reason} "
        "(set the option deadLetterTopic to put such rows aside)"
    )


def dead_letters(task: Task, rows: Sequence[BadRow]) -> Rows:
    """Return the rows to write instead."""
    keys = [None if each.is_too_large else each.key for each in rows]
    values = [None if each.is_too_large else each.value for each in rows]
    headers = [_headers(task, each) for each in rows]
    numbers = np.array([each.number for each in rows], np.int64)
    return Rows(
        pa.RecordBatch.from_arrays(
            [
                pa.array(values, pa.large_binary()),
                pa.array(keys, pa.large_binary()),
                pa.array(headers, HEADERS),
                pa.array(numbers),
            ],
            ["value", "key", "headers", "number"],
        )
    )


def _headers(task: Task, bad: BadRow) -> list[dict[str, str | bytes | None]]:
    own = (
        [] if bad.is_too_large else [(key, value) for key, value in bad.headers if key is not None]
    )
    refused: type[Exception] = BadRowError if bad.code is None else BrokerError
    told = {
        f"{CONNECT_PREFIX}topic": bad.topic,
        f"{CONNECT_PREFIX}partition": bad.partition,
        f"{CONNECT_PREFIX}connector.name": task.name,
        f"{CONNECT_PREFIX}task.id": task.partition,
        f"{CONNECT_PREFIX}stage": "TASK_PUT",
        f"{CONNECT_PREFIX}class.name": "odradek.spark.sink",
        f"{CONNECT_PREFIX}exception.class.name": f"{refused.__module__}.{refused.__name__}",
        f"{CONNECT_PREFIX}exception.message": bad.reason[:REASON_CHARACTERS_MAX],
        f"{PLACE_PREFIX}refused.by": "sink" if bad.code is None else "broker",
        f"{PLACE_PREFIX}code": bad.code,
        f"{PLACE_PREFIX}query": task.name,
        f"{PLACE_PREFIX}batch": task.batch,
        f"{PLACE_PREFIX}spark.partition": task.partition,
        f"{PLACE_PREFIX}row": bad.number,
    }
    further = [(key, str(value).encode()) for key, value in told.items() if value is not None]
    return [{"key": key, "value": value} for key, value in (*own, *further)]
