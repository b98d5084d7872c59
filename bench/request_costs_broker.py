"""The broker of ``bench.request_costs``: run by the Python of the version that is measured.

Knows nothing but what every version has. It prints its port, and for each line on standard input a
line of JSON with what was counted since the line before: by function, ``[bytecodes, calls]``; or,
if it does not count, the nanoseconds of CPU that the process took.
"""

import json
import sys
import threading
import time
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import odradek
from odradek.testing.broker import Broker

TOPICS = {"t": 3}
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
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


class CpuClock:
    """Stands where the counter does; what it watches runs at full speed."""

    def __init__(self) -> None:
        self._since = time.process_time_ns()

    def take(self) -> dict[str, list[int]]:
        since, self._since = self._since, time.process_time_ns()
        return {"process": [self._since - since, 0]}


def main(*, is_counting: bool) -> None:
    counter = Counter() if is_counting else CpuClock()
    broker = Broker(topics=TOPICS, config=CONFIG)
    if isinstance(counter, Counter):
        threading.settrace(counter.trace)
    with broker:
        threading.settrace(None)
        print(broker.port, flush=True)
        for _ in sys.stdin:
            print(json.dumps(counter.take()), flush=True)


if __name__ == "__main__":
    main(is_counting="--count" in sys.argv)
