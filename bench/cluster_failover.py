"""How long a partition of a cluster takes no records when its leader goes, ours and Kafka's.

A producer (ours, and librdkafka's) writes one record after the other with acks=all to a partition
with three replicas; its retries are its own. A leader is killed, at the default session timeout and
with ``broker.session.timeout.ms=2000``, and stopped cleanly; it may be the active controller as
well. What counts is the longest time between two acknowledgements from then on.
``python -m bench cluster_failover``.
"""

import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

import confluent_kafka

from bench.clusters import create_topic, flavours, leader_of, made, wait_until_in_sync
from bench.timing import Row
from odradek.client import BlockingProducer
from tests.cluster.processes import Cluster, ClusterNode, wait_until

TOPIC: Final = "failover"
ROUNDS: Final = 3
STOPS: Final = 5
ACKS_BEFORE: Final = 50
ACKS_AFTER: Final = 50
SEND_SECONDS_MAX: Final = 60
PAUSE_SECONDS: Final = 0.002
SHORT_SESSION: Final = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",  # the default is as long as that session
}

Send = Callable[[], None]


class AckClock(threading.Thread):
    """Writes one record after the other, and notes when each was acknowledged."""

    def __init__(self, send: Send) -> None:
        super().__init__(daemon=True)
        self.acks: list[float] = []
        self._send = send
        self._is_ending = threading.Event()

    def run(self) -> None:
        while not self._is_ending.wait(PAUSE_SECONDS):
            self._send()
            self.acks.append(time.perf_counter())

    def end(self) -> None:
        self._is_ending.set()
        self.join(SEND_SECONDS_MAX)

    def wait_for_more(self, count: int) -> None:
        goal = len(self.acks) + count
        wait_until(lambda: len(self.acks) >= goal or not self.is_alive(), "records get through")
        assert self.is_alive(), "the producer gave up"


@contextmanager
def our_producer(servers: str) -> Iterator[Send]:
    with BlockingProducer(bootstrap_servers=servers, acks="all", linger_ms=0) as producer:

        def send() -> None:
            producer.send(TOPIC, b"x" * 100, partition=0).result(SEND_SECONDS_MAX)

        yield send


@contextmanager
def librdkafka_producer(servers: str) -> Iterator[Send]:
    config = {"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "log_level": 0}
    producer = confluent_kafka.Producer({**config, "enable.idempotence": True})

    def send() -> None:
        producer.produce(TOPIC, b"x" * 100, partition=0)
        assert producer.flush(SEND_SECONDS_MAX) == 0

    yield send


PRODUCERS: Final = {"our producer": our_producer, "librdkafka": librdkafka_producer}


def run() -> Iterator[Row]:
    rows: list[Row] = []
    for flavour in flavours():
        for what, configs in (("default session", {}), ("session of 2 s", SHORT_SESSION)):
            with made(flavour, configs) as cluster:
                cluster.start()
                create_topic(cluster, TOPIC, 1)
                for name, make in PRODUCERS.items():
                    if configs:
                        gaps = [_longest_gap(cluster, make, _stop) for _ in range(STOPS)]
                        rows += _rows(f"clean stop, {name}", flavour.name, gaps)
                    gaps = [_longest_gap(cluster, make, _kill) for _ in range(ROUNDS)]
                    rows += _rows(f"kill -9, {what}, {name}", flavour.name, gaps)
    yield from sorted(rows, key=lambda row: row.operation)


def _rows(what: str, name: str, gaps: list[float]) -> Iterator[Row]:
    print(name, what, *(f"{gap:.0f}" for gap in gaps), "ms", file=sys.stderr, flush=True)
    yield Row(f"{what}: longest gap between acks, median", name, statistics.median(gaps), "ms")
    yield Row(f"{what}: longest gap between acks, worst", name, max(gaps), "ms")


def _kill(node: ClusterNode) -> None:
    node.kill()


def _stop(node: ClusterNode) -> None:
    node.stop()


def _longest_gap(
    cluster: Cluster, make: Callable[[str], object], go: Callable[[ClusterNode], None]
) -> float:
    """Return the ms of the longest gap around the end of a leader, which then comes back."""
    victim = leader_of(cluster, TOPIC)
    with make(cluster.bootstrap_servers) as send:  # type: ignore[attr-defined]
        clock = AckClock(send)
        clock.start()
        clock.wait_for_more(ACKS_BEFORE)
        began = time.perf_counter()
        go(victim)
        clock.wait_for_more(ACKS_AFTER)
        clock.end()
    gaps = [later - earlier for earlier, later in pairwise(clock.acks) if later >= began]
    victim.restart()
    wait_until_in_sync(cluster, TOPIC, 1)
    return max(gaps) * 1000
