"""Patience with Spark, which has none: it gives a process of Python ten seconds to come up.

No setting changes that, and a busy machine may need more. What is done here may be done twice: what
was written the first time is not written again.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS_MAX = 10
TOO_SLOW = "Python worker failed to connect back"
INITIALIZING = "Initializing "
POLL_SECONDS = 0.05

T = TypeVar("T")


def patiently(work: Callable[[], T]) -> T:
    """Do it until Spark was quick enough for itself."""
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return work()
        except Exception as error:
            if TOO_SLOW not in str(error):
                raise
    return work()


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a query until its source is there, or has failed for a reason of its own."""
    for _ in range(ATTEMPTS_MAX - 1):
        query = start()
        while query.isActive and query.status["message"].startswith(INITIALIZING):
            time.sleep(POLL_SECONDS)
        failure = query.exception()
        if failure is None or TOO_SLOW not in str(failure):
            return query
    return start()
