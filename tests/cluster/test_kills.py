"""Leaders are killed and paused under load: nothing acknowledged is lost, nothing is there twice.

A small part of what ``python -m tests.cluster.kills`` does for as long as one likes; ``make soak``
has more.
"""

from pathlib import Path

import pytest

from odradek.testing.anomalies import Kind
from tests.cluster.kills import PlantedOdradek, run

pytestmark = pytest.mark.slow

SEED = 14
VALUES_MIN = 100  # fewer say nothing
TRIES_MAX = 5


def test_no_anomaly_while_leaders_are_killed_and_paused(tmp_path: Path) -> None:
    report, load = run(tmp_path, ["kill", "pause", "kill"], seed=SEED)
    assert load.problems == []
    assert report.records_sent >= VALUES_MIN
    assert not report.bad, report


def test_losses_are_found_where_leaders_acknowledge_early(tmp_path: Path) -> None:
    """The measuring instrument works: a bug of this kind does not go unseen."""
    fault = PlantedOdradek("acknowledge-early")
    lost = {Kind.LOST_WRITE, Kind.UNSEEN, Kind.INCONSISTENT_OFFSETS}
    for number in range(TRIES_MAX):
        report, _ = run(tmp_path / str(number), ["kill"], seed=SEED + number, flavour=fault)
        if lost & report.kinds:
            return
    pytest.fail(f"{TRIES_MAX} kills, and nothing is lost")
