"""Requests on their way, at most one to each peer.

A request that is neither answered nor reported as failed counts as lost after the request timeout.
A peer that failed is left alone for the retry backoff. One that was silent, because its process is
stopped or the network is cut, is left alone for longer: asking it again at once would cost another
request timeout, while others may know of a new leader.

All are forgotten at each change of role. So a response reaches only the role that asked, and a
pre-vote that comes late cannot be taken for a vote.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class _Slot:
    correlation_id: int | None  # None: backing off
    since_ms: int
    until_ms: int


class Requests:
    __slots__ = ("_next_correlation_id", "_slots", "request_timeout_ms", "retry_backoff_ms")

    def __init__(self, request_timeout_ms: int, retry_backoff_ms: int) -> None:
        self.request_timeout_ms = request_timeout_ms
        self.retry_backoff_ms = retry_backoff_ms
        self._slots: dict[int, _Slot] = {}
        self._next_correlation_id = 0

    def open(self, peer: int, now_ms: int, *, needs_answer_soon: bool = False) -> int:
        """Note a request to ``peer`` and return its correlation id."""
        assert self.may_send(peer, now_ms)
        self._next_correlation_id += 1
        timeout_ms = self._silence_ms if needs_answer_soon else self.request_timeout_ms
        self._slots[peer] = _Slot(self._next_correlation_id, now_ms, now_ms + timeout_ms)
        return self._next_correlation_id

    def close(self, peer: int, correlation_id: int) -> bool:
        """Take the answer to a request; False if none is awaited, so that it must be ignored."""
        slot = self._slots.get(peer)
        if slot is None or slot.correlation_id != correlation_id:
            return False
        del self._slots[peer]
        return True

    def back_off(self, peer: int, now_ms: int) -> None:
        self._slots[peer] = _Slot(None, now_ms, now_ms + self.retry_backoff_ms)

    def fail(self, peer: int, correlation_id: int, now_ms: int) -> None:
        """Note that no answer to a request will come; ignored if none is awaited."""
        slot = self._slots.get(peer)
        if slot is not None and slot.correlation_id == correlation_id:
            if now_ms - slot.since_ms >= self._silence_ms:
                self._leave_alone(peer, now_ms)
            else:
                self.back_off(peer, now_ms)

    def _leave_alone(self, peer: int, now_ms: int) -> None:
        self._slots[peer] = _Slot(None, now_ms, now_ms + self.request_timeout_ms // 2)

    @property
    def _silence_ms(self) -> int:
        """After how long a peer counts as silent, if it has no reason to wait with its answer."""
        return self.request_timeout_ms // 4

    def expire(self, now_ms: int) -> None:
        """Let peers whose request was lost back off, and free those that have."""
        for peer, slot in list(self._slots.items()):
            if slot.until_ms > now_ms:
                continue
            if slot.correlation_id is None:
                del self._slots[peer]
            else:
                self._leave_alone(peer, now_ms)

    def may_send(self, peer: int, now_ms: int) -> bool:
        slot = self._slots.get(peer)
        return slot is None or (slot.correlation_id is None and slot.until_ms <= now_ms)

    def is_in_flight(self) -> bool:
        """Whether an answer is awaited from anybody."""
        return any(slot.correlation_id is not None for slot in self._slots.values())

    def next_deadline_ms(self) -> int | None:
        return min((slot.until_ms for slot in self._slots.values()), default=None)

    def reset(self) -> None:
        self._slots.clear()
