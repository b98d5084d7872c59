"""The future of a record that a thread sent: one of ``concurrent.futures``, made for many.

Hot path (``bench/client_producer.py``): one is made, and done, per record. A future of the standard
library comes with a lock, a condition and two lists, which cost more than the rest of a record.
Here they are made when somebody first asks for them, to wait, or to leave a callback.

Who waits shows the condition first and then looks at the state; who sets the state does so first
and then looks for a condition. So one of the two sees the other.
"""

import threading
from concurrent.futures import Future
from typing import Any, Final

from odradek.client.producer.batch import RecordMetadata

_RUNNING: Final = "RUNNING"
_FINISHED: Final = "FINISHED"


class RecordFuture(Future[RecordMetadata]):
    """Cannot be cancelled: the record is in its batch, or will be at once.

    The names are those of the base, because ``wait``, ``as_completed`` and asyncio's
    ``wrap_future`` look at them.
    """

    _state = _RUNNING
    _result: RecordMetadata | None = None
    _exception: BaseException | None = None

    def __init__(self) -> None:  # the base would make all that this is to save
        return

    def __getattr__(self, name: str) -> Any:
        if name == "_condition":
            return self.__dict__.setdefault(name, threading.Condition())
        if name in ("_waiters", "_done_callbacks"):
            return self.__dict__.setdefault(name, [])
        raise AttributeError(name)

    def done(self) -> bool:
        return self._state == _FINISHED

    def result(self, timeout: float | None = None) -> RecordMetadata:
        if self._state != _FINISHED:
            return super().result(timeout)
        if self._exception is not None:
            raise self._exception
        assert self._result is not None
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        return self._exception if self._state == _FINISHED else super().exception(timeout)

    def set_result(self, result: RecordMetadata) -> None:
        self._result = result
        self._state = _FINISHED
        if "_condition" in self.__dict__:
            self._tell()

    def set_exception(self, exception: BaseException | None) -> None:
        self._exception = exception
        self._state = _FINISHED
        if "_condition" in self.__dict__:
            self._tell()

    def _tell(self) -> None:
        with self._condition:
            for waiter in self._waiters:
                if self._exception is None:
                    waiter.add_result(self)
                else:
                    waiter.add_exception(self)
            self._condition.notify_all()
        self._invoke_callbacks()
