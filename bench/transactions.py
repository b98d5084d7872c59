"""Transactions per second: ours beside real Apache Kafka, by the same client.

Each transaction has 100 records of 100 bytes over three partitions; the client, confluent-kafka in
this process, begins the next when the last is committed. Brokers take turns, round by round, after
one round that is not counted, and the median counts. ``linger.ms`` is 0: a commit flushes at once.
"""

import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import brokers
from bench.brokers import Target
from bench.timing import Row

ROUNDS = 5
TRANSACTIONS = 100
RECORDS = 100
PARTITIONS = 3
TOPIC = "transactions"
TIMEOUT_SECONDS = 60
_VALUE = b"x" * 100


class Figures:
    """What one broker did, round by round."""

    def __init__(self, target: Target) -> None:
        self.name = target.name
        self.per_second: list[float] = []
        self.cpu_seconds: list[float] = []
        self._target = target
        self._producer = _make_producer(target)

    def measure(self, *, is_counted: bool) -> None:
        cpu_seconds = self._target.cpu_seconds()
        began = time.perf_counter()
        for _ in range(TRANSACTIONS):
            _commit_one(self._producer)
        seconds = time.perf_counter() - began
        if is_counted:
            self.per_second.append(TRANSACTIONS / seconds)
            self.cpu_seconds.append(self._target.cpu_seconds() - cpu_seconds)


def run() -> Iterator[Row]:
    with ExitStack() as stack:
        figures = [Figures(target) for target in brokers.start(stack)]
        for number in range(ROUNDS + 1):
            for each in figures:
                each.measure(is_counted=number > 0)
    what = f"transactions of {RECORDS} x 100 B over {PARTITIONS} partitions"
    for each in figures:
        yield Row(what, each.name, statistics.median(each.per_second), "transactions/s")
    for each in figures:
        cpu_ms = statistics.median(each.cpu_seconds) * 1000 / TRANSACTIONS
        yield Row(f"{what}, CPU of the broker", each.name, cpu_ms, "ms each")


def _make_producer(target: Target) -> Producer:
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=1)
    admin.create_topics([topic])[TOPIC].result(TIMEOUT_SECONDS)
    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "transactional.id": "bench",
            "linger.ms": 0,
            "log_level": 0,  # it outlives its broker, and would say so
        }
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


def _commit_one(producer: Producer) -> None:
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(TOPIC, _VALUE, partition=number % PARTITIONS)
    producer.commit_transaction(TIMEOUT_SECONDS)
