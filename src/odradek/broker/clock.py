"""The real clock."""

import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def monotonic_us(self) -> int:
        return time.monotonic_ns() // 1_000


def thread_cpu_us() -> int:
    """Microseconds that the calling thread has had a core."""
    return time.thread_time_ns() // 1_000
