"""How many rows the sink of a query has put aside, in a file that the driver keeps.

What the tasks of a sink in Python tell when they are done only its ``commit`` gets to hear, on the
driver and in a process of its own; Spark has no place for it in a query's progress. So it is
written down there (``deadLetterCountFile``), as a sum with the number of the last batch in it: one
that is committed again, after a crash, is counted once. Another query begins at nothing.
"""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

FILE_BYTES_MAX: Final = 4096


class DeadLetterCount(NamedTuple):
    query: str = ""
    batch: int = -1
    dead_letters: int = 0


def read_count(path: Path) -> DeadLetterCount:
    """Return what is written there; nothing, if that makes no sense."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        with path.open("rb") as file:
            written = json.loads(file.read(FILE_BYTES_MAX))
        return DeadLetterCount(
            str(written["query"]), int(written["batch"]), int(written["dead_letters"])
        )
    return DeadLetterCount()


def count_batch(path: Path, query: str, batch: int, dead_letters: int) -> None:
    """Add what a batch has put aside, unless it is in the sum already.

    Raises:
        OSError: It cannot be written.
    """
    if not dead_letters:
        return
    before = read_count(path)
    if before.query != query:
        before = DeadLetterCount(query)
    if batch <= before.batch:
        return
    count = DeadLetterCount(query, batch, before.dead_letters + dead_letters)
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        json.dump(count._asdict(), file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
