"""From what Spark throws to the one line that says why."""

import re
from pathlib import PurePath
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, ParseException, PySparkException

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What Spark says of things that cannot be; the second where PySpark knows no better."""
_RAISED: Final = re.compile(r"\[USER_RAISED_EXCEPTION\]\s*(.*?)\s*(?:SQLSTATE|\n|$)", re.DOTALL)
_OURS: Final = re.compile(r"(?:Caused by: )?odradek\.[\w.]+: (.+)")
_TERMINATED: Final = re.compile(r"terminated with exception: (.*?)\s*(?:SQLSTATE|\n|$)", re.DOTALL)
# The frames of a traceback are indented, and what was raised is not.
_TRACEBACK: Final = re.compile(
    r"Traceback \(most recent call last\):\n((?:[ \t].*\n|\s*\n)*)(\S[^\n]*)"
)
_WRONG_STORE: Final = re.compile(r"STORE_BACKEND_NOT_SUPPORTED_FOR_TWS\].*?([A-Za-z]+Provider)\b")
_FRAME: Final = re.compile(r'File "([^"]+)", line (\d+)')


def first_words(error: Exception) -> str:
    """Return what Spark says of a plan, without the plan and the stack that it says it with."""
    java = getattr(error, "java_exception", None)
    text = str(error) if java is None else str(java.getMessage())
    if isinstance(error, ParseException):
        return " ".join(text.split("==", 1)[0].split())
    if java is not None or isinstance(error, AnalysisException):
        return text.split(";\n", 1)[0].split(" SQLSTATE", 1)[0].strip()
    return _from_traceback(text) or next(
        (line.strip() for line in text.splitlines() if line.strip()), type(error).__name__
    )


def cause(text: str) -> str:
    """Return why a query failed, from all that Spark says of it."""
    raised = _RAISED.search(text)
    if raised is not None:
        return raised[1]
    store = _WRONG_STORE.search(text)
    if store is not None:  # Spark says to set what may be set already
        return (
            f"transformWithState needs RocksDB, but state is kept by {store[1]}: the checkpoint "
            "was begun with that and keeps it ('odradek pipeline reset' begins a new one), or "
            "spark.sql.streaming.stateStore.providerClass says so"
        )
    ours = [match[1] for line in text.splitlines() if (match := _OURS.fullmatch(line.strip()))]
    if ours:
        return ours[-1]
    told = _from_traceback(text)
    if told is not None:
        return told
    terminated = _TERMINATED.search(text)
    return text.strip().split("\n", 1)[0] if terminated is None else terminated[1].strip()


def _from_traceback(text: str) -> str | None:
    """Return what was raised last in another process, and where."""
    found = _TRACEBACK.findall(text)
    if not found:
        return None
    frames, raised = found[-1]
    places = _FRAME.findall(frames)
    where = f" ({PurePath(places[-1][0]).name}:{places[-1][1]})" if places else ""
    return f"{raised.split(' SQLSTATE', 1)[0].strip()}{where}"
