"""Nodes are killed, paused, cut off and starved under load: nothing is lost, nothing is doubled.

A small part of what ``python -m tests.cluster.kills`` does for as long as one likes; ``make soak``
has more. Clients: librdkafka, aiokafka, our own, and Java's where Kafka's jars are.
"""

from pathlib import Path

import pytest

from odradek.testing.anomalies import Kind
from tests.cluster.kills import PlantedOdradek, run

pytestmark = pytest.mark.slow

SEED = 14
VALUES_MIN = 100  # fewer say nothing
TRIES_MAX = 10  # which kill loses something, chance and the machine decide


@pytest.mark.seed_row("0.7")
def test_no_anomaly_while_leaders_are_killed_paused_cut_off_and_starved(tmp_path: Path) -> None:
    plan = ["kill", "cut", "busy", "pause"]
    report, load = run(tmp_path, plan, seed=SEED, is_transactional=True, values_min=2 * VALUES_MIN)
    assert load.problems == []
    assert report.records_sent >= VALUES_MIN
    assert not report.bad, report


def test_no_anomaly_while_the_disk_of_a_leader_is_full(tmp_path: Path) -> None:
    report, load = run(tmp_path, ["full"], seed=SEED, values_min=2 * VALUES_MIN)
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
