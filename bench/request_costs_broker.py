"""The broker of ``bench.request_costs``: run by the Python of the version that is measured.

Uses nothing but what every version has. It prints its port, and answers lines on standard input
with lines of JSON:

    take          what was counted since the last line: by function, ``[bytecodes, calls]``
    feed N FRAME  the nanoseconds of CPU that N requests take, in hexadecimal digits, which come
                  from a client without a socket in one turn of the loop
"""

import json
import sys
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from types import CodeType, FrameType
from typing import Any

import odradek
from odradek.net.connection import Connection
from odradek.net.settings import ConnectionInfo
from odradek.testing.broker import Broker

TOPICS = {"t": 3}
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
SECONDS_MAX = 600
_OURS = str(Path(odradek.__file__).parent)


class Counter:
    """Counts in all threads that start while it is installed."""

    def __init__(self) -> None:
        self._counts: dict[CodeType, list[int]] = {}

    def trace(self, frame: FrameType, _event: str, _argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_OURS):
            return None
        counts = self._counts.get(code)
        if counts is None:
            counts = self._counts[code] = [0, 0]
        counts[1] += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False

        def local(_frame: FrameType, event: str, _argument: object) -> Any:
            if event == "opcode":
                counts[0] += 1
            return local

        return local

    def take(self) -> dict[str, list[int]]:
        """Return what was counted since the last time."""
        taken: dict[str, list[int]] = {}
        for code, counts in list(self._counts.items()):
            if counts[1]:
                file = str(Path(code.co_filename).relative_to(_OURS))
                total = taken.setdefault(f"{file}:{code.co_qualname}", [0, 0])
                total[0], total[1] = total[0] + counts[0], total[1] + counts[1]
                counts[0] = counts[1] = 0
        return taken


class Transport:
    """A client that takes what it is sent, and says nothing."""

    def __init__(self) -> None:
        self.sent = 0

    def write(self, data: bytes) -> None:
        self.sent += len(data)

    def writelines(self, parts: list[bytes]) -> None:
        self.sent += sum(map(len, parts))

    def set_write_buffer_limits(self, **_limits: int) -> None: ...
    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class Client:
    """A connection of the broker that gets its bytes from here."""

    def __init__(self, broker: Broker) -> None:
        self._loop: Any = broker._loop
        self._hub: Any = broker.node.server._hub
        self._connection: Any = None
        self._transport: Any = Transport()

    def feed(self, count: int, frame: bytes) -> int:
        """Return how many nanoseconds of CPU the loop's thread takes for so many requests."""
        spent: SimpleQueue[int] = SimpleQueue()
        self._loop.call_soon_threadsafe(self._feed, count, frame, spent)
        return spent.get(timeout=SECONDS_MAX)

    def _feed(self, count: int, frame: bytes, spent: "SimpleQueue[int]") -> None:
        if self._connection is None:
            info = ConnectionInfo("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "fed")
            self._connection = Connection(self._hub, info)
            self._hub.admit(self._connection)
            self._connection.connection_made(self._transport)
        connection, size = self._connection, len(frame)
        self._send(frame)  # the buffer grows with it
        sent = self._transport.sent
        began = time.thread_time_ns()
        for _ in range(count):
            connection.get_buffer(-1)[:size] = frame
            connection.buffer_updated(size)
        spent.put(time.thread_time_ns() - began)
        assert self._transport.sent >= sent + count, "not all were answered at once"

    def _send(self, frame: bytes) -> None:
        while frame:
            space = self._connection.get_buffer(-1)
            part, frame = frame[: len(space)], frame[len(space) :]
            space[: len(part)] = part
            self._connection.buffer_updated(len(part))


def main(*, is_counting: bool) -> None:
    counter = Counter()
    broker = Broker(topics=TOPICS, config=CONFIG)
    if is_counting:
        threading.settrace(counter.trace)
    with broker:
        threading.settrace(None)
        client = Client(broker)
        print(broker.port, flush=True)
        for line in sys.stdin:
            match line.split():
                case ["feed", count, frame]:
                    spent = client.feed(int(count), bytes.fromhex(frame))
                    print(json.dumps({"thread": [spent, 0]}), flush=True)
                case _:
                    print(json.dumps(counter.take()), flush=True)


if __name__ == "__main__":
    main(is_counting="--count" in sys.argv)
