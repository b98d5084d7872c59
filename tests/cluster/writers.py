"""Producers that write while a cluster is disturbed, one record at a time.

They never retry unless a test lets them: a refused or lost record is then a failure of the test's
subject, not something that a client hides.
"""

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from odradek.client import BlockingProducer

ACK_SECONDS_MAX = 60
PAUSE_SECONDS = 0.01
JOIN_SECONDS_MAX = 120
RETRIES_MANY = 2**31 - 1


class Writer:
    """Writes to one partition from ``with`` on, until its end."""

    def __init__(self, name: str, send: Callable[[bytes], None], close: Callable[[], None]) -> None:
        self.name = name
        self.acknowledged = 0
        self.slowest_seconds = 0.0
        self.failures: list[str] = []
        self._send = send
        self._close = close
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_ending.set()
        self._thread.join(JOIN_SECONDS_MAX)
        assert not self._thread.is_alive(), f"{self.name} hangs"
        self._close()

    def _run(self) -> None:
        while not self._is_ending.wait(PAUSE_SECONDS):
            begun = time.monotonic()
            try:
                self._send(b"%d" % self.acknowledged)
            except Exception as error:  # whatever it is, the test is to see it
                self.failures.append(f"{self.name}: {error!r}")
            else:
                self.acknowledged += 1
                self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - begun)


def confluent_writer(
    servers: str, topic: str, partition: int, *, retries: int | None = 0
) -> Writer:
    """``retries``: None for the client's own, of an idempotent producer."""
    config: dict[str, Any] = {
        "bootstrap.servers": servers,
        "acks": "all",
        "linger.ms": 0,
        "socket.timeout.ms": ACK_SECONDS_MAX * 1000,
        "log_level": 4,
    }
    if retries is None:
        config["enable.idempotence"] = True
    else:
        config["message.send.max.retries"] = retries
    producer = confluent_kafka.Producer(config)

    def send(value: bytes) -> None:
        errors: list[Any] = []
        producer.produce(
            topic, value, partition=partition, on_delivery=lambda error, _: errors.append(error)
        )
        left = producer.flush(ACK_SECONDS_MAX)
        assert left == 0, "no answer"
        if errors != [None]:
            raise confluent_kafka.KafkaException(*errors)

    return Writer(f"confluent-kafka to {topic}-{partition}", send, lambda: None)


def odradek_writer(servers: str, topic: str, partition: int, *, retries: int | None = 0) -> Writer:
    """``retries``: None for the client's own, of an idempotent producer."""
    is_idempotent = retries is None
    producer = BlockingProducer(
        bootstrap_servers=servers,
        acks="all",
        enable_idempotence=is_idempotent,
        retries=RETRIES_MANY if retries is None else retries,
        linger_ms=0,
        request_timeout_ms=ACK_SECONDS_MAX * 1000,
        delivery_timeout_ms=ACK_SECONDS_MAX * 1000,
    )

    def send(value: bytes) -> None:
        producer.send(topic, value, partition=partition).result(ACK_SECONDS_MAX)

    return Writer(f"odradek to {topic}-{partition}", send, producer.close)
