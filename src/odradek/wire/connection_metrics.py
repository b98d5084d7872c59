"""What a connection reports about itself; clients keep Kafka's figures of it."""

from typing import Protocol


class ConnectionMetrics(Protocol):
    def clock(self) -> float:
        """Return milliseconds since some fixed point."""
        ...

    def on_request(self, size: int, now_ms: float) -> None: ...

    def on_response(self, api: str, size: int, sent_ms: float) -> None: ...

    def on_connected(self) -> None: ...

    def on_closed(self) -> None: ...

    def on_login(self, *, is_good: bool) -> None: ...


class NoMetrics:
    """For connections whose figures are not kept."""

    def clock(self) -> float:
        return 0.0

    def on_request(self, size: int, now_ms: float) -> None:
        pass

    def on_response(self, api: str, size: int, sent_ms: float) -> None:
        pass

    def on_connected(self) -> None:
        pass

    def on_closed(self) -> None:
        pass

    def on_login(self, *, is_good: bool) -> None:
        pass


NO_METRICS = NoMetrics()
