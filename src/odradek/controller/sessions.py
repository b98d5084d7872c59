"""Which brokers have been heard of lately: soft state, gone with the controller."""

from typing import NamedTuple


class Session(NamedTuple):
    epoch: int
    deadline_ms: int


class BrokerSessions:
    """A session is renewed by each heartbeat and ends ``timeout_ms`` after the last."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._by_broker: dict[int, Session] = {}

    def renew(self, broker_id: int, epoch: int, now_ms: int) -> None:
        self._by_broker[broker_id] = Session(epoch, now_ms + self.timeout_ms)

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Renew a session if there is one of that epoch: before it is known what else is to do."""
        session = self._by_broker.get(broker_id)
        if session is not None and session.epoch == epoch:
            self.renew(broker_id, epoch, now_ms)

    def forget(self, broker_id: int) -> None:
        self._by_broker.pop(broker_id, None)

    def is_valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        session = self._by_broker.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms < session.deadline_ms

    def expired(self, now_ms: int) -> list[int]:
        """Return the brokers whose session is over, the one longest over first."""
        over = [
            (session.deadline_ms, broker_id)
            for broker_id, session in self._by_broker.items()
            if session.deadline_ms <= now_ms
        ]
        return [broker_id for _, broker_id in sorted(over)]

    def next_deadline_ms(self) -> int | None:
        return min((session.deadline_ms for session in self._by_broker.values()), default=None)
