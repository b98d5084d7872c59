"""Why a query failed, in one line, out of what Spark says of it in hundreds."""

import pytest

from odradek.spark.pipeline.failures import cause

HEAD = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
STATE = " SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier: p.out [id = 1, runId = 2]"
PYTHON = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker: \
Traceback (most recent call last):
  File "/home/me/scores.py", line 6, in score
    return 1 // n
           ~~^^~~
ZeroDivisionError: integer division or modulo by zero
"""
OURS = """Job aborted. Traceback (most recent call last):
  File "/somewhere/odradek/spark/planning.py", line 228, in _with_retries
    return attempt()
odradek.client.errors.BrokerError: topic a: UNKNOWN_TOPIC_OR_PARTITION (create the topic)
"""
CHAINED = PYTHON + "\nDuring handling of the above exception, another exception occurred:\n\n"
CHAINED += 'Traceback (most recent call last):\n  File "/home/me/b.py", line 9, in f\n\nKeyError: 1'


STORE = (
    "[UNSUPPORTED_FEATURE.STORE_BACKEND_NOT_SUPPORTED_FOR_TWS] The feature is not supported: Store "
    "backend org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider is not "
    "supported by TransformWithState operator. Please use RocksDBStateStoreProvider."
)
STORE_TOLD = (
    "transformWithState needs RocksDB, but state is kept by HDFSBackedStateStoreProvider: the "
    "checkpoint was begun with that and keeps it ('odradek pipeline reset' begins a new one), or "
    "spark.sql.streaming.stateStore.providerClass says so"
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[CAST_INVALID_INPUT] The value 'x' cannot be cast.", None),
        (PYTHON, "ZeroDivisionError: integer division or modulo by zero (scores.py:6)"),
        (OURS, "topic a: UNKNOWN_TOPIC_OR_PARTITION (create the topic)"),
        (STORE, STORE_TOLD),
        (CHAINED, "KeyError: 1 (b.py:9)"),
        (
            "[USER_RAISED_EXCEPTION] expectation 'e' is not met: n > 0",
            "expectation 'e' is not met: n > 0",
        ),
    ],
)
def test_the_cause_is_told_in_one_line(text: str, told: str | None) -> None:
    assert cause(HEAD + text + STATE) == (told or text)


def test_what_is_unknown_is_told_by_its_first_line() -> None:
    assert cause("something\n  else") == "something"
