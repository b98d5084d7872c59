"""The future of a record that a thread sent: one of ``concurrent.futures``, made for many.

Hot path (``bench/client_producer.py``): one is made, and done, per record. A future of the standard
library comes with a lock, a condition and two lists, which cost more than the rest of a record. So
the base is made only when somebody asks for what it has: to wait, or to leave a callback. Until
then there is what was told, and nothing else.

Who tells says it first and then looks whether there is a base to be told as well; who makes a base
makes it first and then looks whether something was told. So one of the two sees the other, and a
lock sees to it that only one of them goes on. Callbacks are called without it.
"""

import os
import threading
from concurrent.futures import Future
from typing import Any

from odradek.client.producer.batch import RecordMetadata

_lock = threading.Lock()
"""Of all futures: it is held for moments, and only by those that somebody waits for."""


class RecordFuture(Future[RecordMetadata]):
    """Cannot be cancelled: the record is in its batch, or will be at once."""

    _metadata: RecordMetadata | None = None
    _error: BaseException | None = None
    _has_base = False
    _is_base_told = False

    def __init__(self) -> None:  # the base would make all that this is to save
        return

    def __getattr__(self, name: str) -> Any:
        """Make the base: this is called for what it has and we have not."""
        if name.startswith("__"):
            raise AttributeError(name)
        with _lock:
            if not self._has_base:
                super().__init__()
                self.set_running_or_notify_cancel()
                self._has_base = True
        self._tell_base()
        return object.__getattribute__(self, name)

    def cancel(self) -> bool:
        return False

    def done(self) -> bool:
        return self._metadata is not None or self._error is not None

    def result(self, timeout: float | None = None) -> RecordMetadata:
        if self._metadata is not None:
            return self._metadata
        if self._error is not None:
            raise self._error
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._error if self.done() else super().exception(timeout)

    def set_result(self, result: RecordMetadata) -> None:
        self._metadata = result
        if self._has_base:
            self._tell_base()

    def set_exception(self, exception: BaseException | None) -> None:
        self._error = exception
        if self._has_base:
            self._tell_base()

    def _tell_base(self) -> None:
        if not self.done():
            return
        with _lock:
            if self._is_base_told:
                return
            self._is_base_told = True
        if self._error is None:
            assert self._metadata is not None
            super().set_result(self._metadata)
        else:
            super().set_exception(self._error)


def _after_fork_in_child() -> None:
    """Let go of a lock that a thread held which the child has not."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork_in_child)
