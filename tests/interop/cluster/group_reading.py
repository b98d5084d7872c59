"""A group that reads while a cluster is disturbed: its members go on, and so do its commits."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import confluent_kafka

from odradek.client import BlockingConsumer
from odradek.core.errors import OdradekError
from odradek.core.ids import TopicPartition
from tests.cluster.processes import wait_until

END_SECONDS_MAX: Final = 300


class GroupReading:
    """Two members, of librdkafka and of ours, that read a topic and commit what they have read."""

    def __init__(self, servers: str, group: str, topic: str) -> None:
        self._servers = servers
        self._group = group
        self._topic = topic
        self.values: set[bytes] = set()
        self.commits = 0
        self._stop = threading.Event()
        self._problems: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        runs = (self._librdkafka, self._odradek)
        threads = [threading.Thread(target=self._run, args=(run,), daemon=True) for run in runs]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(END_SECONDS_MAX)
        assert not any(thread.is_alive() for thread in threads), "a member does not end"
        assert self._problems == []

    def wait_for_progress(self) -> None:
        """Wait until both records are read and offsets are committed."""
        read, commits = len(self.values), self.commits
        wait_until(lambda: len(self.values) > read, f"{self._group} reads on")
        wait_until(lambda: self.commits > commits + 1, f"{self._group} commits on")

    def _run(self, run: object) -> None:
        assert callable(run)
        try:
            run()
        except Exception as error:  # a thread has no caller to raise to
            self._problems.append(repr(error))

    def _librdkafka(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": self._group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            messages = consumer.consume(500, 0.2)
            found = [each for each in messages if each.error() is None]
            self.values.update(each.value() or b"" for each in found)
            # The coordinator may move; the next commit has the same offsets, or later ones.
            with suppress(confluent_kafka.KafkaException):
                if found:
                    consumer.commit(asynchronous=False)
                    self.commits += 1
        consumer.close()

    def _odradek(self) -> None:
        with BlockingConsumer(
            self._topic,
            bootstrap_servers=self._servers,
            group_id=self._group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=45_000,
            request_timeout_ms=10_000,
        ) as consumer:
            while not self._stop.is_set():
                polled = consumer.poll(0.2)
                for records in polled.values():
                    self.values.update(each.value or b"" for each in records)
                with suppress(OdradekError):  # as above, or the group is just joining
                    if polled:
                        consumer.commit()
                        self.commits += 1

    def committed(self, *partitions: TopicPartition) -> list[int]:
        """Return the offsets that the group has committed."""
        with BlockingConsumer(bootstrap_servers=self._servers, group_id=self._group) as consumer:
            found = consumer.committed(partitions)
        return [-1 if (at := found.get(each)) is None else at.offset for each in partitions]
