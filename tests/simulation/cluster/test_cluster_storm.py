"""Clusters of whole nodes, and the metadata quorum alone, through storms of faults."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from odradek.testing.simulation import World
from tests.long_searches import in_soak
from tests.simulation.cluster.cluster import Cluster
from tests.simulation.cluster.faults import parse_schedule, to_text
from tests.simulation.cluster.story import Outcome, tell

ROOT = Path(__file__).parents[3]
DIGEST = (
    "from tests.simulation.cluster.story import tell; print(tell({seed}, level='{level}').digest)"
)


def check(outcome: Outcome) -> None:
    assert outcome.failure is None, outcome.describe(with_lines=True)


# 119: a leader with a slow disk acts on what the others committed, and then loses its power.
@pytest.mark.parametrize("seed", [*range(6), 119])
def test_a_cluster_keeps_its_promises_through_a_storm(seed: int) -> None:
    check(tell(seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_node_by_itself_keeps_its_promises_through_a_storm(seed: int) -> None:
    check(tell(seed, shape="1 combined"))


@pytest.mark.parametrize("seed", [0, 1, 10])  # 10: restarts with more than it may keep
def test_the_quorum_alone_agrees_through_a_storm(seed: int) -> None:
    check(tell(seed, level="quorum"))


@pytest.mark.seed_row("0.8")
@pytest.mark.parametrize("seed", range(5))
def test_replicated_data_survives_a_storm(seed: int) -> None:
    check(tell(seed, level="data"))


@pytest.mark.parametrize("seed", range(2))
def test_partitions_move_through_a_storm(seed: int) -> None:
    check(tell(seed, level="moves"))


def test_operators_work_through_a_storm() -> None:
    outcome = tell(2, level="operations")
    check(outcome)
    assert sum(count for what, count in outcome.reached.items() if "operator:" in what) > 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_operators_work_through_a_long_row_of_storms(seed: int) -> None:
    check(tell(seed, level="operations"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, in_soak(1006, soak=1010)))
def test_a_long_row_of_clusters_whose_partitions_move(seed: int) -> None:
    check(tell(seed, level="moves"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, in_soak(1030, soak=1055)))
def test_a_long_row_of_clusters_with_data(seed: int) -> None:
    check(tell(seed, level="data"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, in_soak(1012, soak=1020)))
def test_a_long_row_of_clusters(seed: int) -> None:
    check(tell(seed))


@pytest.mark.parametrize("seed", [0, 1, 2])  # 2: five static voters are upgraded
def test_voters_come_go_and_lose_their_disks_in_a_storm(seed: int) -> None:
    outcome = tell(seed, level="voters")
    check(outcome)
    reached = outcome.reached.items()
    assert sum(count for what, count in reached if what.endswith(", known")) > 3, "are carried out"
    assert sum(count for what, count in reached if what.startswith("struck at")) > 3


@pytest.mark.slow
def test_nodes_crash_at_every_step_of_every_change_of_voters() -> None:
    reached = Counter[str]()
    for seed in range(1000, 1016):
        outcome = tell(seed, level="voters")
        check(outcome)
        reached.update(outcome.reached)
    struck = [each.removeprefix("struck at ").split(", ") for each in reached if "struck" in each]
    assert {change for change, _ in struck} == {
        *("add", "join", "replace", "update", "upgrade"),
        *("remove", "remove leader", "remove wiped"),
    }
    assert {step for _, step in struck} == {
        *("asked", "appended", "flushed", "copied", "taken over", "committed", "known")
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1008))
def test_a_long_row_of_quorums(seed: int) -> None:
    check(tell(seed, level="quorum"))


def test_a_schedule_is_the_same_when_it_was_written_down_and_read() -> None:
    with World(7) as world:
        schedule = Cluster(world).nemesis.schedule
    assert parse_schedule(to_text(schedule)) == schedule
    assert len(schedule) > 5


@pytest.mark.parametrize(("seed", "level"), [(3, "nodes"), (2, "data")])
def test_a_cluster_tells_one_story_from_one_seed_in_every_process(seed: int, level: str) -> None:
    digests = {
        subprocess.run(
            [sys.executable, "-c", DIGEST.format(seed=seed, level=level)],
            cwd=ROOT,
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            check=True,
            timeout=300,
            capture_output=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1
