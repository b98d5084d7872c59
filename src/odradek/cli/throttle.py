"""Keeps a tool that sends from sending more than so many records a second, about."""

import asyncio
import time
from typing import Final

_SLEEP_SECONDS_MIN: Final = 0.002
"""Shorter naps are not kept to; records that are ahead of time wait together."""


class Throttle:
    """``await throttle.wait(sent)`` between records; without a rate it never waits."""

    def __init__(self, records_per_second: float) -> None:
        """Begin now. A negative rate is none at all; with a rate of 0 only one record goes out."""
        self._rate = records_per_second
        self._start = time.monotonic()

    async def wait(self, sent: int) -> None:
        """Return when it is time for the record after so many."""
        if self._rate < 0:
            return
        if self._rate == 0:
            await asyncio.get_running_loop().create_future()
        ahead_seconds = sent / self._rate - (time.monotonic() - self._start)
        if ahead_seconds >= _SLEEP_SECONDS_MIN:
            await asyncio.sleep(ahead_seconds)
