"""One run of clients, and what they all are."""

import random
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from odradek.broker.clock import SystemClock
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Recorder
from tests.interop.histories.reading import END_SECONDS_MAX, read_to_end, record_polls

INPUTS: Final = tuple(TopicPartition("in", number) for number in range(3))
OUTPUTS: Final = tuple(TopicPartition("out", number) for number in range(2))
KEYS: Final = (*INPUTS, *OUTPUTS)


class Load:
    """All clients of one run; errors that no client should see are in ``problems``."""

    def __init__(
        self, servers: str, seed: int, starts: Mapping[TopicPartition, int] | None = None
    ) -> None:
        """``starts``: partitions that clients read and write, from these offsets; None is ``KEYS``.

        What is before these offsets is not part of the history.
        """
        self.servers = servers
        self.starts = dict.fromkeys(KEYS, 0) if starts is None else dict(starts)
        self.inputs = INPUTS if starts is None else tuple(starts)
        """Where plain producers write."""
        self.recorder = Recorder(SystemClock())
        self.stopped = threading.Event()
        self.problems: list[str] = []
        self.seed = seed
        self._lock = threading.Lock()
        self.sent = 0
        self.abandoned = 0
        """Calls of clients that did not come back: see ``abandoned``."""

    def value(self, process: int) -> str:
        with self._lock:
            self.sent += 1
            return f"{process}.{self.sent}"

    def config(self, **settings: Any) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.servers,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            # With "rebootstrap", its default, librdkafka forgets a TxnOffsetCommit that waits for
            # its coordinator while the broker is down, and the call does not come back. Kafka
            # itself has no other experience with it. See also `abandoned`.
            "metadata.recovery.strategy": "none",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    @contextmanager
    def running(self, clients: Sequence["Client"]) -> Iterator[None]:
        for client in clients:
            client.start()
        try:
            yield
        finally:
            self.stopped.set()
            deadline = time.monotonic() + END_SECONDS_MAX
            for client in clients:
                client.join(max(deadline - time.monotonic(), 0))
            stuck = [client.where() for client in clients if client.is_alive()]
            assert not stuck, "did not come to an end: " + "\n".join(stuck)

    def drain(self) -> None:
        """Read everything from where it starts to the end, with read_committed.

        Raises:
            AssertionError: The end cannot be reached: a transaction stays open.
        """
        process = self.recorder.new_process()
        for key, offset in self.starts.items():
            self.recorder.sought(process, key, offset)
        batches = read_to_end(self.config(), self.starts)
        while True:
            with self.recorder.operation(process) as polled:
                messages = next(batches, None)
                if messages is None:
                    return
                record_polls(polled, messages, Isolation.READ_COMMITTED)


class Client(threading.Thread):
    def __init__(self, load: Load, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.load = load
        self.recorder = load.recorder
        self.chance = random.Random(f"{load.seed} {name}")
        self.process = self.recorder.new_process()

    def run(self) -> None:
        try:
            self.work()
        except Exception as error:  # a thread has nobody to raise to
            self.load.problems.append(f"{self.name}: {error!r}")

    def work(self) -> None:
        raise NotImplementedError

    def where(self) -> str:
        """What it is doing, for a message about why it does not end."""
        frame = sys._current_frames().get(self.ident or 0)
        return f"{self.name}\n{''.join(traceback.format_stack(frame)[-4:])}"

    def rest(self, seconds: float) -> None:
        """Leave some of the machine to the others."""
        self.load.stopped.wait(seconds)
