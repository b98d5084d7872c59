"""Commits that are held back, as when the followers of a partition lag behind.

What is produced is written, but not committed, until the hold is cleared: producers with acks=all
wait for their answer, and neither consumers nor readers of groups and transactions see it.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Self

from odradek.core.ids import TopicPartition


class CommitHold:
    """Holds the high watermark of partitions where it is; a context manager, or has ``clear``."""

    def __init__(self, topic: str | None, partition: int | None) -> None:
        self.topic = topic
        self.partition = partition
        self.is_cleared = False
        self._on_clear: Callable[[CommitHold], None] | None = None

    def holds(self, key: TopicPartition) -> bool:
        """Whether a partition is meant: this one, those of a topic, or all there are."""
        return self.topic in (None, key.topic) and self.partition in (None, key.partition)

    def bind(self, on_clear: "Callable[[CommitHold], None]") -> None:
        self._on_clear = on_clear

    def clear(self) -> None:
        """Let everything be committed that was written meanwhile, unless another hold stands."""
        if not self.is_cleared and self._on_clear is not None:
            self.is_cleared = True
            self._on_clear(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        of = "all partitions" if self.topic is None else self.topic
        number = "" if self.partition is None else f"-{self.partition}"
        return f"<CommitHold of {of}{number}{', cleared' if self.is_cleared else ''}>"
