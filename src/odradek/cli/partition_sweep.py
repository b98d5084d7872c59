"""Throughput by number of partitions: the same load again and again, on topics of all widths.

Each topic is made for this, written to, read from its beginning, and deleted.
"""

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import NamedTuple

from odradek.cli.payloads import random_letters
from odradek.cli.producer_perf_test import Load, run_load
from odradek.cli.producer_stats import MIB
from odradek.cli.progress import Progress
from odradek.cli.tool_options import ToolError
from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.client.consumer import Consumer, TopicPartition
from odradek.client.settings import as_settings


class Sweep(NamedTuple):
    partitions: Sequence[int]
    records: int
    record_size: int
    replication_factor: int
    topic_prefix: str
    keeps_topics: bool
    read_timeout_seconds: float

    @property
    def records_in_all(self) -> int:
        """How many there are to send and to read."""
        return 2 * self.records * len(self.partitions)


class ClientSettings(NamedTuple):
    admin: Mapping[str, str]
    producer: Mapping[str, str]
    consumer: Mapping[str, str]


class Measured(NamedTuple):
    """Mebibytes and records a second, with so many partitions."""

    partitions: int
    producer_mb_sec: float
    producer_records_sec: float
    consumer_mb_sec: float
    consumer_records_sec: float


async def run_sweep(sweep: Sweep, settings: ClientSettings, progress: Progress) -> list[Measured]:
    """Measure one number of partitions after the other.

    Raises:
        KafkaError: The cluster does not take it.
        ToolError: Records got lost.
    """
    measured = []
    async with Admin(as_settings(settings.admin)) as admin:
        for number in sweep.partitions:
            topic = f"{sweep.topic_prefix}-{number}"
            new = NewTopic(topic, number, sweep.replication_factor)
            (await admin.create_topics([new])).unwrap()
            progress.label = f"{number} partitions"
            try:
                measured.append(await _measure(topic, number, sweep, settings, progress))
            finally:
                if not sweep.keeps_topics:
                    (await admin.delete_topics([topic])).unwrap()
            progress.say(_line(measured[-1]), err=True)
    return measured


def _line(found: Measured) -> str:
    return (
        f"{found.partitions} partitions: producer {found.producer_mb_sec:.2f} MB/sec,"
        f" consumer {found.consumer_mb_sec:.2f} MB/sec"
    )


async def _measure(
    topic: str, number: int, sweep: Sweep, settings: ClientSettings, progress: Progress
) -> Measured:
    random = Random(0)  # noqa: S311  # the same load every time
    payload = random_letters(sweep.record_size, random)
    load = Load(topic, sweep.records, payload, lambda _: None, -1)
    start = time.monotonic()
    await run_load(dict(settings.producer), load, lambda _: None, progress)
    writing = max(time.monotonic() - start, 1e-3)
    start = time.monotonic()
    await _read(topic, number, sweep, settings.consumer, progress)
    reading = max(time.monotonic() - start, 1e-3)
    mebibytes = sweep.records * sweep.record_size / MIB
    return Measured(
        number,
        mebibytes / writing,
        sweep.records / writing,
        mebibytes / reading,
        sweep.records / reading,
    )


async def _read(
    topic: str, number: int, sweep: Sweep, settings: Mapping[str, str], progress: Progress
) -> None:
    count = 0
    async with Consumer(settings=as_settings(settings)) as consumer:
        consumer.assign([TopicPartition(topic, each) for each in range(number)])
        consumer.seek_to_beginning()
        while count < sweep.records:
            polled = await consumer.poll(sweep.read_timeout_seconds)
            if not polled:
                raise ToolError(f"{topic}: {count} of {sweep.records} records could be read")
            share = sum(map(len, polled.values()))
            count += share
            progress.done += share
