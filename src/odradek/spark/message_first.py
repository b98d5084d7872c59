"""What is wrong with options, said before the traceback that Spark shows with it.

Spark runs a Python source in a process of its own and shows what is raised there as text: a
traceback, whose last line says what is wrong. But a traceback begins with the cause of an
exception, and one that was never raised has no frames: it is its message.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from odradek.spark.options import OptionError

P = ParamSpec("P")
T = TypeVar("T")


class RefusedError(OptionError):
    """An option error whose text, with traceback and all, begins with the message."""

    @property
    def __cause__(self) -> Exception:
        said: type[Exception] = type("OptionError", (Exception,), {"__module__": "builtins"})
        return said(str(self))

    @__cause__.setter
    def __cause__(self, _: BaseException | None) -> None:
        """Stay: PySpark takes causes away where it makes tracebacks shorter."""


def message_first(method: Callable[P, T]) -> Callable[P, T]:
    """Have a method that Spark calls raise RefusedError for OptionError."""

    @wraps(method)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except OptionError as error:
            raise RefusedError(str(error)) from error

    return called
