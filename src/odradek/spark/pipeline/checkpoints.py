"""Where a pipeline keeps how far it is, and since when.

    <checkpoint>/pipeline.json       the epoch, and the offsets it began at
    <checkpoint>/lock                held by whoever runs or resets it
    <checkpoint>/running             held by the same; looked at by who only asks whether it runs
    <checkpoint>/totals-<n>.json     what has been counted in an epoch, by query
    <checkpoint>/dead-letters-<n>-<sink>.json   what a sink put aside: it counts by itself
    <checkpoint>/epoch-<n>/<sink>/   Spark's checkpoint of one query

A reset begins a new epoch: what Spark keeps cannot be wound back, so it starts afresh beside the
old one, which stays as it was.

Missing: epochs, totals and the lock in checkpoints that are not local folders (``s3a://``, ``hdfs://``).
Those are always in epoch 0 and cannot be reset: name another checkpoint and another start instead.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from odradek.spark.dead_letter_counts import read_count
from odradek.spark.offsets import Offsets, offsets_json, parse_offsets
from odradek.spark.pipeline.totals import Totals, kept, read_totals

STATE_BYTES_MAX: Final = 16 * 2**20


class CheckpointError(RuntimeError):
    """A checkpoint is in use, damaged, or cannot do what is asked of it."""


class Epoch(NamedTuple):
    number: int = 0
    offsets: Offsets | None = None
    """Where it began; None is what the file of the pipeline says."""

    def start_options(self) -> dict[str, str]:
        """Return options of the source, to be used instead of those in the file."""
        if self.offsets is None:
            return {}
        return {"startingOffsets": json.dumps(offsets_json(self.offsets))}


class Checkpoints:
    def __init__(self, location: str) -> None:
        self.location = location.rstrip("/")
        self.folder = _local_folder(location)

    def of_query(self, epoch: Epoch, query: str) -> str:
        return f"{self.location}/epoch-{epoch.number}/{query}"

    def query_id(self, epoch: Epoch, query: str) -> str | None:
        """Return Spark's id of a query, which its sink has names by; None: it never ran."""
        if self.folder is None:
            return None
        path = self.folder / f"epoch-{epoch.number}" / query / "metadata"
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError), path.open("rb") as file:
            return str(json.loads(file.read(STATE_BYTES_MAX + 1))["id"])
        return None

    def epoch(self) -> Epoch:
        """Return the epoch that runs now, or would run next.

        Raises:
            CheckpointError: What is written there makes no sense.
        """
        if self.folder is None or not (path := self._state_path()).exists():
            return Epoch()
        try:
            state = json.loads(path.read_bytes()[: STATE_BYTES_MAX + 1])
            return _epoch(state)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error

    def begin_epoch(self, offsets: Offsets) -> Epoch:
        """Make the next start begin at these offsets, with nothing behind it.

        Raises:
            CheckpointError: The checkpoint is not a local folder.
        """
        if self.folder is None:
            raise CheckpointError(
                f"{self.location} is not a local folder and cannot be reset: "
                "give the pipeline another checkpoint and another start"
            )
        epoch = Epoch(self.epoch().number + 1, offsets)
        state = {"epoch": epoch.number, "startingOffsets": offsets_json(offsets)}
        _replace(self._state_path(), state, is_synced=True)
        return epoch

    def totals(self, epoch: Epoch, queries: Iterable[str]) -> dict[str, Totals]:
        """Return what has been counted of queries in an epoch.

        Counts that are damaged or not there are not worth refusing a start: they begin anew, and
        the batches before are told as uncounted.
        """
        if self.folder is None:
            return {query: Totals(last_batch=None) for query in queries}
        written: Any = {}
        with contextlib.suppress(OSError, ValueError):
            written = json.loads(self._totals_path(epoch).read_bytes()[: STATE_BYTES_MAX + 1])
        found = {query: Totals() for query in queries}
        for query in found:
            with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
                found[query] = read_totals(written[query])
            self.take_dead_letters(epoch, query, found[query])
        return found

    def take_dead_letters(self, epoch: Epoch, query: str, totals: Totals) -> None:
        """Take over how many rows a sink has put aside, as far as it is that query's."""
        path = self.dead_letter_file(epoch, query)
        if path is None:
            return
        count = read_count(path)
        if count.query and count.query == totals.query_id:
            totals.dead_letters = count.dead_letters

    def dead_letter_file(self, epoch: Epoch, query: str) -> Path | None:
        """Return where the sink of a query counts; None: it cannot."""
        if self.folder is None:
            return None
        return self.folder.absolute() / f"dead-letters-{epoch.number}-{query}.json"

    def keep_totals(self, epoch: Epoch, totals: Mapping[str, Totals]) -> None:
        """Write down what has been counted; called after every batch, so it waits for no disk."""
        if self.folder is not None:
            written = {query: kept(each) for query, each in totals.items()}
            _replace(self._totals_path(epoch), written, is_synced=False)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep others from running the same pipeline; a process that dies lets go.

        Raises:
            CheckpointError: Somebody runs it.
        """
        if self.folder is None:
            yield
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as file, self._running_path().open("a") as running:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                problem = f"the pipeline of {self.location} is running already"
                raise CheckpointError(problem) from error
            fcntl.flock(running, fcntl.LOCK_EX)  # those who look have it for a moment
            yield

    def is_locked(self) -> bool:
        """Tell whether somebody runs the pipeline, on this machine.

        The kernel tells only those who try to lock. On the lock itself that would keep somebody
        from running it who begins in this very moment.
        """
        if self.folder is None or not (path := self._running_path()).exists():
            return False
        with path.open() as running:
            try:
                fcntl.flock(running, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
        return False

    def _running_path(self) -> Path:
        assert self.folder is not None
        return self.folder / "running"

    def _state_path(self) -> Path:
        assert self.folder is not None
        return self.folder / "pipeline.json"

    def _totals_path(self, epoch: Epoch) -> Path:
        assert self.folder is not None
        return self.folder / f"totals-{epoch.number}.json"


def _replace(path: Path, content: object, *, is_synced: bool) -> None:
    """Write a file that is there as a whole or as it was before."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(content, file)
        file.flush()
        if is_synced:
            os.fsync(file.fileno())
    new.replace(path)


def _epoch(state: Mapping[str, Any]) -> Epoch:
    number = state["epoch"]
    if not isinstance(number, int) or number < 0:
        raise ValueError(f"epoch {number!r}")
    return Epoch(number, parse_offsets(state["startingOffsets"]))


def _local_folder(location: str) -> Path | None:
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else location)
    return None
