"""Pipelines for tests: files with a broker's address in them, records to read, and ``run``."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

from odradek.client import BlockingConsumer, BlockingProducer, TopicPartition
from odradek.spark import pipeline
from tests.spark.quick_java import QUICK_JAVA

SECONDS_MAX = 800
"""For a test: it takes one minute, and twelve on a machine that is twenty times too busy."""
COMMAND = (sys.executable, "-m", "odradek", "pipeline")


def write_definition(
    folder: Path, servers: str, text: str, trigger: str | None = "available_now"
) -> Path:
    """Write a file with what all have in common; the rest is ``text``."""
    path = folder / "pipeline.yaml"
    head = f"name: p\nbrokers: {servers}\ntrigger: {trigger or ''}\ncheckpoint: state\n"
    path.write_text(head + text)
    return path


def load_definition(folder: Path, servers: str, text: str) -> pipeline.Definition:
    return pipeline.load(write_definition(folder, servers, text))


def environment() -> dict[str, str]:
    """Return what ``run`` gets."""
    return os.environ | {"JAVA_TOOL_OPTIONS": QUICK_JAVA}


def start_run(
    path: Path, *options: str, command: Sequence[str] = COMMAND, **more: Any
) -> subprocess.Popen[str]:
    """Start ``odradek pipeline run`` in a process group of its own."""
    return subprocess.Popen(
        [*command, "run", str(path), *options],
        env=environment(),
        text=True,
        start_new_session=True,
        **more,
    )


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill Python and Spark's JVM; the workers see it when they next talk to the JVM."""
    if process.poll() is None:  # else the number may be somebody else's by now
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def bounded(process: subprocess.Popen[str], deadline: float) -> Iterator[None]:
    """Kill a run that takes too long, so that whoever reads what it tells comes to the end.

    ``deadline`` is by ``time.monotonic``, for all that a test does.
    """
    timer = Timer(max(0.0, deadline - time.monotonic()), kill_group, (process,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        kill_group(process)


def send(
    servers: str, topic: str, values: Iterable[bytes], timestamp_ms: int | None = None
) -> None:
    with BlockingProducer(bootstrap_servers=servers) as producer:
        sent = [producer.send(topic, value, timestamp=timestamp_ms) for value in values]
        producer.flush()
        for each in sent:
            each.result()


def consume(servers: str, topic: str, partitions: int = 1) -> list[tuple[bytes, dict[str, bytes]]]:
    """Return value and headers of all that was committed."""
    found: list[tuple[bytes, dict[str, bytes]]] = []
    with BlockingConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        all_of_it = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(all_of_it)
        consumer.seek_to_beginning(all_of_it)
        ends = consumer.end_offsets(all_of_it)
        while any(consumer.position(each) < ends[each] for each in all_of_it):
            for records in consumer.poll(1.0).values():
                for record in records:
                    headers = {key: value or b"" for key, value in record.headers}
                    found.append((record.value or b"", headers))
    return found
