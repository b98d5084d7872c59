"""A move under a throttle, cancelled midway and begun again, while clients write and read.

A small part of ``python -m tests.cluster.throttled_move``, which also wants the rate to be reached:
that is a matter of the machine, and ``make soak`` does it.
"""

from pathlib import Path

import pytest

from tests.cluster.throttled_move import run

pytestmark = pytest.mark.slow

MEGABYTES, RATE = 30, 4_000_000
MOST = 1.5  # one answer may exceed the bound; without a throttle it is ten times as fast
VALUES_MIN = 100  # fewer say nothing


@pytest.mark.seed_row("1.8")
def test_a_cancelled_and_repeated_move_loses_nothing_and_keeps_to_its_throttle(
    tmp_path: Path,
) -> None:
    outcome = run(tmp_path, megabytes=MEGABYTES, rate=RATE)
    assert outcome.cancelled <= MOST
    assert outcome.completed <= MOST
    assert outcome.smallest_isr == 2
    assert outcome.has_equal_replicas
    assert outcome.load.problems == []
    assert outcome.report.records_sent >= VALUES_MIN
    assert not outcome.report.bad, outcome.report
