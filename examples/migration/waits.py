"""How long clients waited for acknowledgements, step by step."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from odradek.testing.anomalies import Event, Operation, Outcome, Send


class Step(NamedTuple):
    """Times are the recorder's, in microseconds."""

    name: str
    began_at: int
    ended_at: int


class Wait(NamedTuple):
    step: str
    acknowledged: int
    slowest_seconds: float

    def __str__(self) -> str:
        return f"{self.slowest_seconds:5.1f} s at most for {self.acknowledged} records: {self.step}"


def waits(history: Iterable[Event], steps: Sequence[Step]) -> list[Wait]:
    """Return for each step what was acknowledged in it outside of transactions, and how fast."""
    found: list[list[int]] = [[] for _ in steps]
    for event in history:
        if not isinstance(event, Operation) or event.is_transaction:
            continue
        if event.outcome is not Outcome.OK or not _is_send(event):
            continue
        for step, times in zip(steps, found, strict=True):
            if step.began_at <= event.completed_at < step.ended_at:
                times.append(event.completed_at - event.invoked_at)
    return [
        Wait(step.name, len(times), max(times) / 1_000_000)
        for step, times in zip(steps, found, strict=True)
        if times
    ]


def _is_send(operation: Operation) -> bool:
    """Tell it from a poll, which may have seen nothing but a rebalance."""
    return len(operation.actions) == 1 and isinstance(operation.actions[0], Send)
