"""From options to ranges of offsets: asks the cluster what is there and decides what to read.

Data that is gone, because it aged out or its topic was deleted, fails the query unless
``failOnDataLoss`` is false; then it is told of in the log and the rest is read.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.spark.cluster_access import ClusterAccess, access_to
from odradek.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    OffsetLimit,
    OffsetRange,
    Offsets,
    Specific,
    split_ranges,
)
from odradek.spark.options import OptionError, SourceOptions, Subscribe

_log = logging.getLogger(__name__)
_HINT: Final = (
    "Records may have aged out, or a topic may have been deleted before all of it was read. To go "
    'on with what is there, set the source option "failOnDataLoss" to "false".'
)

T = TypeVar("T")


class DataLossError(RuntimeError):
    """Records that were to be read are not there any more."""


def report_data_loss(options: SourceOptions, problem: str) -> None:
    """Raise, or log a warning where the query is to go on.

    Raises:
        DataLossError: With failOnDataLoss, which is the default.
    """
    if options.fail_on_data_loss:
        raise DataLossError(f"{problem}. {_HINT}")
    _log.warning("%s. It is skipped, as failOnDataLoss is false.", problem)


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    @property
    def access(self) -> ClusterAccess:
        return access_to(self._options.client)

    def batch_ranges(self) -> list[OffsetRange]:
        """Return the tasks of a batch query.

        Raises:
            OptionError: Offsets are given, but not for the partitions that there are.
            DataLossError: They end before they begin.
            KafkaError: The cluster does not answer.
        """
        options = self._options
        starts = self.resolve(options.starting_for_batch, "startingOffsets")
        ends = self.resolve(options.ending_for_batch, "endingOffsets")
        ranges = []
        for partition in sorted(starts.keys() & ends.keys()):
            start, end = starts[partition], ends[partition]
            if start > end:
                report_data_loss(options, f"{partition} begins at {start} but ends at {end}")
            ranges.append(OffsetRange(partition, start, end))
        return self._split(ranges)

    def stream_ranges(self, starts: Offsets, ends: Offsets) -> list[OffsetRange]:
        """Return the tasks of a micro-batch.

        Raises:
            DataLossError: Something between the offsets is gone.
            KafkaError: The cluster does not answer.
        """
        gone = starts.keys() - ends.keys()
        if gone:
            report_data_loss(self._options, f"{_names(gone)} are gone")
        begins = {**starts, **self._begins_of_new(ends.keys() - starts.keys())}
        shrunk = {p for p in begins if p in ends and ends[p] < begins[p]}
        if shrunk:
            begins |= self._begins_of_shrunk(shrunk, begins, ends)
        ranges = [OffsetRange(p, begins[p], ends[p]) for p in sorted(begins.keys() & ends.keys())]
        return self._split(ranges)

    def _begins_of_new(self, new: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions begin that were not there before: they are read from there."""
        wanted = set(new)
        if not wanted:
            return {}
        begins = self.earliest(wanted)
        if begins.keys() != wanted:
            missing = wanted - begins.keys()
            report_data_loss(self._options, f"{_names(missing)} came and went")
        for partition, offset in begins.items():
            if offset != 0:
                report_data_loss(
                    self._options, f"Added partition {partition} starts from {offset} instead of 0"
                )
        return begins

    def _begins_of_shrunk(
        self, shrunk: set[TopicPartition], starts: Offsets, ends: Offsets
    ) -> dict[TopicPartition, int]:
        """A log that ends before where we were is another log: it is read from its beginning."""
        for partition in sorted(shrunk):
            report_data_loss(
                self._options,
                f"Partition {partition}'s offset was changed from {starts[partition]} to "
                f"{ends[partition]}: it was deleted and made anew, or has lost records",
            )
        return self.earliest(shrunk)

    def _split(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        return split_ranges(
            ranges,
            partitions_min=self._options.partitions_min,
            records_max=self._options.records_per_partition_max,
        )

    # Asking the cluster.

    def resolve(self, limit: OffsetLimit, name: str) -> dict[TopicPartition, int]:
        """Return the offsets that a limit means now, for all partitions that are selected.

        Raises:
            OptionError: The limit has offsets for other partitions, or there is none at a time.
        """
        return self.resolve_start(limit, name)[0]

    def resolve_start(
        self, limit: OffsetLimit, name: str
    ) -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
        """Return the offsets that a limit means, and the partitions where that is the end of now.

        Raises:
            OptionError: As ``resolve``.
        """

        def attempt() -> tuple[dict[TopicPartition, int], set[TopicPartition]]:
            found = self._marked(limit, name)
            return self._resolve_marks(found), {p for p, each in found.items() if each == LATEST}

        return self._with_retries(attempt)

    def earliest(self, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where partitions begin; those that are not there any more are left out."""

        def attempt() -> dict[TopicPartition, int]:
            there = self._partitions() & set(wanted)
            return self.access.list_offsets(dict.fromkeys(there, EARLIEST))

        return self._with_retries(attempt)

    def latest(self, known: Offsets) -> dict[TopicPartition, int]:
        """Return where partitions end.

        An end before what is known already is asked for again: a new leader may not know yet what
        was committed, and says so only for a moment.
        """
        for left in range(max(1, self._options.retries) - 1, -1, -1):
            ends = self.resolve(Everywhere(LATEST), "latest")
            if all(end >= known.get(partition, 0) for partition, end in ends.items()):
                break
            if left:
                time.sleep(self._options.retry_interval_ms / 1000)
        return ends

    def _partitions(self) -> set[TopicPartition]:
        selection = self._options.selection
        if self._options.fail_on_data_loss or not isinstance(selection, Subscribe):
            return self.access.partitions(selection)
        found: set[TopicPartition] = set()
        for topic in selection.topics:
            try:
                found |= self.access.partitions(Subscribe((topic,)))
            except KafkaError as error:
                _log.warning("%s. It is left out, as failOnDataLoss is false.", error)
        return found

    def _marked(self, limit: OffsetLimit, name: str) -> dict[TopicPartition, int]:
        """Return what a limit means, with marks for the ends of logs."""
        partitions = self._partitions()
        match limit:
            case Everywhere(mark):
                return dict.fromkeys(partitions, mark)
            case Specific(offsets):
                _check_covered(partitions, offsets, name)
                return dict(offsets)
            case AtTimestamps(timestamps, or_latest):
                _check_covered(partitions, timestamps, name + "ByTimestamp")
                return self._at_timestamps(timestamps, or_latest=or_latest)
            case AtTimestamp(timestamp_ms, or_latest):
                return self._at_timestamps(
                    dict.fromkeys(partitions, timestamp_ms), or_latest=or_latest
                )

    def _resolve_marks(self, offsets: Offsets) -> dict[TopicPartition, int]:
        marks = {p: each for p, each in offsets.items() if each in (EARLIEST, LATEST)}
        return {**offsets, **(self.access.list_offsets(marks) if marks else {})}

    def _at_timestamps(self, timestamps: Offsets, *, or_latest: bool) -> dict[TopicPartition, int]:
        found = self.access.list_offsets(timestamps)
        for partition, offset in found.items():
            if offset < 0 and not or_latest:
                raise OptionError(
                    f"No offset matched from request of topic-partition {partition} and "
                    f"timestamp {timestamps[partition]}"
                )
        return {p: LATEST if each < 0 else each for p, each in found.items()}

    def _with_retries(self, attempt: Callable[[], T]) -> T:
        for left in range(max(1, self._options.retries) - 1, -1, -1):
            try:
                return attempt()
            except KafkaError as error:
                if not left:
                    raise
                _log.warning("Offsets could not be asked for, trying again: %s", error)
                time.sleep(self._options.retry_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")


def _check_covered(
    partitions: set[TopicPartition], given: Mapping[TopicPartition, int], name: str
) -> None:
    if partitions != given.keys():
        raise OptionError(
            f"If {name} contains specific offsets, all TopicPartitions must be in it; use -1 for "
            f"latest, -2 for earliest. Specified: {_names(given)} Assigned: {_names(partitions)}"
        )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"
