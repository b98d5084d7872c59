"""Producers that write while a cluster is disturbed; a check that nothing was lost or doubled.

Both kinds of producer are idempotent and wait for all replicas in sync. They retry by themselves;
what they report as failed is none of the cluster's promises, and is counted.
"""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import confluent_kafka

from odradek.client import BlockingConsumer, BlockingProducer
from odradek.core.ids import TopicPartition
from tests.cluster.processes import wait_until

DELIVERY_MS: Final = 240_000
PAUSE_SECONDS: Final = 0.02
"""Enough to have many in flight while a leader is away; more costs every node and shows no more."""
IN_FLIGHT_MAX: Final = 100
END_SECONDS_MAX: Final = 300
PROGRESS: Final = 30
"""Records that every writer must get acknowledged after a disturbance."""


class Acknowledgements:
    """What one producer has been told, by value."""

    def __init__(self, name: str, at: TopicPartition) -> None:
        self.name = name
        self.at = at
        self.offsets: dict[bytes, int] = {}
        self.failures: list[str] = []
        self.sent = 0

    def next_value(self) -> bytes:
        self.sent += 1
        return f"{self.name} {self.sent}".encode()

    @property
    def pending(self) -> int:
        return self.sent - len(self.offsets) - len(self.failures)


class Load:
    """Writes to partitions with two clients, from ``with load.running()`` on until its end."""

    def __init__(self, servers: str, *partitions: TopicPartition) -> None:
        self._servers = servers
        self.writers = [
            Acknowledgements(f"{client}-{at}", at)
            for at in partitions
            for client in ("librdkafka", "odradek")
        ]
        self._stop = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        threads = []
        for writer in self.writers:
            run = self._librdkafka if writer.name.startswith("librdkafka") else self._odradek
            threads.append(threading.Thread(target=run, args=(writer,), daemon=True))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(END_SECONDS_MAX)
        assert not any(thread.is_alive() for thread in threads), "a producer does not end"
        assert [each.failures for each in self.writers if each.failures] == []
        assert [each.name for each in self.writers if each.pending] == []

    def wait_for_progress(self) -> None:
        """Wait until each writer has something acknowledged that it sent from now on."""
        sent = {each.name: each.sent for each in self.writers}

        def goes_on(writer: Acknowledgements) -> bool:
            assert not writer.failures, writer.failures
            return len(writer.offsets) > sent[writer.name] + PROGRESS

        for writer in self.writers:
            wait_until(lambda writer=writer: goes_on(writer), f"{writer.name} writes on")  # type: ignore[misc]

    def _librdkafka(self, writer: Acknowledgements) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "delivery.timeout.ms": DELIVERY_MS,
                "socket.timeout.ms": 10_000,
                "retry.backoff.max.ms": 200,
                "reconnect.backoff.max.ms": 200,
                "topic.metadata.refresh.interval.ms": 2_000,
                "log_level": 0,
            }
        )

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                writer.offsets[message.value()] = message.offset()
            else:
                writer.failures.append(str(error))

        while not self._stop.wait(PAUSE_SECONDS):
            producer.poll(0)
            if writer.pending < IN_FLIGHT_MAX:
                value = writer.next_value()
                at = writer.at
                producer.produce(at.topic, value, partition=at.partition, on_delivery=delivered)
        producer.flush(DELIVERY_MS / 1000)

    def _odradek(self, writer: Acknowledgements) -> None:
        with BlockingProducer(
            bootstrap_servers=self._servers,
            linger_ms=1,
            delivery_timeout_ms=DELIVERY_MS,
            request_timeout_ms=10_000,
        ) as producer:
            while not self._stop.wait(PAUSE_SECONDS):
                if writer.pending < IN_FLIGHT_MAX:
                    value = writer.next_value()
                    sent = producer.send(writer.at.topic, value, partition=writer.at.partition)
                    sent.add_done_callback(partial(self._done, writer, value))
            producer.flush()

    @staticmethod
    def _done(writer: Acknowledgements, value: bytes, done: Any) -> None:
        error = done.exception()
        if error is None:
            writer.offsets[value] = done.result().offset
        else:
            writer.failures.append(repr(error))

    # Afterwards.

    def check(self) -> None:
        """Read all, and compare with what was acknowledged: once each, at that offset."""
        for at in {writer.at for writer in self.writers}:
            acknowledged: dict[bytes, int] = {}
            for writer in self.writers:
                if writer.at == at:
                    acknowledged.update(writer.offsets)
            found = read_all(self._servers, at)
            times = Counter(value for _, value in found)
            doubled = [value for value, count in times.items() if count > 1]
            read = {value: offset for offset, value in found}
            lost = sorted(acknowledged.items() - read.items())
            assert not lost, f"{len(lost)} of {len(acknowledged)} are lost at {at}: {lost[:5]}"
            assert not doubled, f"doubled at {at}: {doubled[:5]}"
            # All that was sent was acknowledged in the end.
            assert len(read) == len(acknowledged)


def read_all(servers: str, at: TopicPartition) -> list[tuple[int, bytes]]:
    with ExitStack() as stack:
        consumer = stack.enter_context(BlockingConsumer(bootstrap_servers=servers))
        consumer.assign([at])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([at])[at]
        found: list[tuple[int, bytes]] = []

        def has_all() -> bool:
            for records in consumer.poll(1.0).values():
                found.extend((each.offset, each.value or b"") for each in records)
            return consumer.position(at) >= end

        wait_until(has_all, f"{at} is read up to {end}")
        return found
