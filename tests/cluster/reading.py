"""What consumers read of a partition: once from its start, or all the time that a test takes."""

import threading
from types import TracebackType
from typing import Self

from odradek.client import BlockingConsumer
from odradek.core.ids import TopicPartition
from tests.cluster.processes import wait_until

POLL_SECONDS = 0.2
JOIN_SECONDS_MAX = 120


def read_all(servers: str, at: TopicPartition, count: int) -> list[bytes | None]:
    """Read from the start of a partition until there are so many values."""
    values: list[bytes | None] = []
    with BlockingConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([at])
        consumer.seek_to_beginning()

        def has_all() -> bool:
            for records in consumer.poll(POLL_SECONDS).values():
                values.extend(each.value for each in records)
            return len(values) >= count

        wait_until(has_all, f"{count} records are read")
    return values


class Reader:
    """Reads a partition from its start on, in a thread, from ``with`` on until its end."""

    def __init__(self, servers: str, at: TopicPartition) -> None:
        self.values: list[bytes | None] = []
        self.failures: list[str] = []
        self._consumer = BlockingConsumer(
            bootstrap_servers=servers, auto_offset_reset="earliest", enable_auto_commit=False
        )
        self._consumer.assign([at])
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

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
        assert not self._thread.is_alive(), "the reader hangs"
        self._consumer.close()

    def wait_for(self, count: int) -> list[bytes | None]:
        wait_until(lambda: len(self.values) >= count, f"{count} records are read")
        return self.values

    def _run(self) -> None:
        while not self._is_ending.is_set():
            try:
                for records in self._consumer.poll(POLL_SECONDS).values():
                    self.values.extend(each.value for each in records)
            except Exception as error:  # whatever it is, the test is to see it
                self.failures.append(repr(error))
