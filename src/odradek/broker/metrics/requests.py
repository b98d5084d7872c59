"""What is counted of every request. Hot path, called by ``dispatch``.

Most requests are answered at once: for them all of the time is local and none is remote, so one
histogram holds what Kafka keeps in three. Only requests that had to wait have the other ones.
"""

from bisect import bisect_left
from operator import add

from odradek.broker.metrics.histogram import BOUNDS_US, Histogram
from odradek.broker.metrics.response_errors import Errors, error_counter
from odradek.protocol.apis import Api
from odradek.protocol.message import Message


class RequestStats:
    """The counts of one API."""

    __slots__ = (
        "_count_errors",
        "api",
        "at_once",
        "errors",
        "versions",
        "waited_local",
        "waited_remote",
        "waited_total",
    )

    def __init__(self, api: Api) -> None:
        self.api = api
        self.versions = [0] * (api.version_max + 1)
        self.errors: Errors = {}
        self.at_once = Histogram()
        self.waited_local = Histogram()
        self.waited_remote = Histogram()
        self.waited_total = Histogram()
        self._count_errors = error_counter(api.response())

    def on_answered(
        self, message: Message | None, version: int, total_us: int, local_us: int
    ) -> None:
        """Count a request; ``message`` is None if the client wants no answer.

        ``local_us`` is how long the handler took if it left the answer to others, else -1.
        """
        self.versions[version] += 1
        if local_us < 0:
            # As Histogram.record does it: a call is a good part of what all of this costs.
            histogram = self.at_once
            histogram.counts[bisect_left(BOUNDS_US, total_us)] += 1
            histogram.sum_us += total_us
        else:
            self.waited_total.record(total_us)
            self.waited_local.record(local_us)
            self.waited_remote.record(total_us - local_us)
        if message is not None:
            self._count_errors(message, self.errors)

    def add(self, other: "RequestStats") -> None:
        """Count what was counted there as well: requests of the same API."""
        self.versions = list(map(add, self.versions, other.versions))
        for code, count in other.errors.items():
            self.errors[code] = self.errors.get(code, 0) + count
        self.at_once.add(other.at_once)
        self.waited_local.add(other.waited_local)
        self.waited_remote.add(other.waited_remote)
        self.waited_total.add(other.waited_total)

    @property
    def local_sum_us(self) -> int:
        """How long the event loop was busy with such requests."""
        return self.at_once.sum_us + self.waited_local.sum_us
