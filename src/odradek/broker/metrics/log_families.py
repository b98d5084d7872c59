"""``kafka_log_…``: sizes and offsets of the logs on this node, flushes, log directories."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from odradek.broker.metrics.family import Family, Kind, Sample, gauge
from odradek.broker.metrics.request_families import Summaries
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

_LOG: Final[tuple[tuple[str, str, Callable[[Log], int]], ...]] = (
    ("size", "Bytes of the log's segments.", lambda log: log.segments.bytes),
    ("numlogsegments", "Segments of the log.", lambda log: len(log.segments)),
    ("logstartoffset", "The first offset there is.", lambda log: log.log_start_offset),
    ("logendoffset", "The offset that the next record gets.", lambda log: log.log_end_offset),
)


class LogFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._summaries = Summaries(broker.metrics.started_ms)

    def collect(self) -> Iterator[Family]:
        yield from self._logs()
        yield self._flushes()
        yield from self._directories()

    def _logs(self) -> Iterator[Family]:
        logs = [*self._broker.store.logs, self._broker.metadata.log]
        labelled = [
            ({"topic": log.partition.topic, "partition": str(log.partition.partition)}, log)
            for log in logs
        ]
        for name, help_text, value_of in _LOG:
            samples = [Sample(labels, value_of(log)) for labels, log in labelled]
            yield Family(f"kafka_log_log_{name}", help_text, Kind.GAUGE, samples)

    def _flushes(self) -> Family:
        flushes = self._broker.metrics.flushes
        now_ms = self._broker.clock.monotonic_ms()
        samples = self._summaries.samples("", {}, flushes.counts, flushes.sum_us, now_ms)
        return Family(
            "kafka_log_logflushstats_logflushrateandtimems",
            "How long flushes of logs took, in ms, with the wait for a thread.",
            Kind.SUMMARY,
            list(samples),
        )

    def _directories(self) -> Iterator[Family]:
        directories = self._broker.store.directories
        offline = [Sample({"logdirectory": str(d.path)}, not d.is_online) for d in directories]
        yield gauge(
            "kafka_log_logmanager_offlinelogdirectorycount",
            "Log directories that failed.",
            sum(sample.value for sample in offline),
        )
        yield Family(
            "kafka_log_logmanager_logdirectoryoffline",
            "1 for a log directory that failed.",
            Kind.GAUGE,
            offline,
        )
        cordoned = [Sample({"logdirectory": str(d.path)}, d.is_cordoned) for d in directories]
        yield gauge(
            "kafka_log_logmanager_cordonedlogdirectorycount",
            "Log directories that take no new partitions.",
            sum(sample.value for sample in cordoned),
        )
        yield Family(
            "kafka_log_logmanager_logdirectorycordoned",
            "1 for a log directory that takes no new partitions.",
            Kind.GAUGE,
            cordoned,
        )
        full = [Sample({"logdirectory": str(d.path)}, d.is_full) for d in directories]
        times = [Sample({"logdirectory": str(d.path)}, d.times_full) for d in directories]
        help_text = "1 for a log directory that is full: writes are refused, reads go on."
        yield Family("odradek_log_directory_full", help_text, Kind.GAUGE, full)
        help_text = "Times that a log directory had no space left."
        yield Family("odradek_log_directory_full_times", help_text, Kind.COUNTER, times)
