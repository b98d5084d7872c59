"""Finds what no log may do in a history of what clients sent to it and read from it.

Record what your clients do (``Recorder``, or build the values of ``history`` yourself), then ask:

    recorder = Recorder(SystemClock())
    with recorder.transaction(process=1) as transaction:
        transaction.sent(key, "a", offset=0)
        transaction.commits()
        producer.commit_transaction()
    ...
    report = check(recorder.history(), drained={key})
    assert not report.bad, report

The anomalies are those of Jepsen's workload for Kafka, and a few that groups and clocks add; each
is explained in ``anomaly``. Nothing here talks to a broker, so any client of any broker will do.
"""

from odradek.testing.anomalies.anomaly import (
    ALLOWED,
    ALLOWED_WHEN_SUBSCRIBED,
    Anomaly,
    Kind,
    Report,
)
from odradek.testing.anomalies.checker import check
from odradek.testing.anomalies.history import (
    Action,
    Assignment,
    CommitOffset,
    Event,
    FetchOffset,
    Isolation,
    Operation,
    Outcome,
    Poll,
    Record,
    Seek,
    Send,
    Source,
)
from odradek.testing.anomalies.recorder import Recorder

__all__ = [
    "ALLOWED",
    "ALLOWED_WHEN_SUBSCRIBED",
    "Action",
    "Anomaly",
    "Assignment",
    "CommitOffset",
    "Event",
    "FetchOffset",
    "Isolation",
    "Kind",
    "Operation",
    "Outcome",
    "Poll",
    "Record",
    "Recorder",
    "Report",
    "Seek",
    "Send",
    "Source",
    "check",
]
