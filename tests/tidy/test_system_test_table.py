"""docs/system-tests.md names a test that exists for each scenario that the design names."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = ROOT / "docs" / "system-tests.md"
SCENARIOS: Final = (
    "replication_test",
    "replication_replica_failure_test",
    "reassign_partitions_test",
    "throttling_test",
    "round_trip_fault_test",
    "quorum_reconfiguration_test",
    "eligible_leader_replicas_test",
    "truncation_test",
    "fetch_from_follower_test",
    "snapshot_test",
    "replica_scale_test",
    "log_dir_failure_test",
    "transactions_test",
    "consumer_test",
    "upgrade_test",
    "network_degrade_test",
)
PLAYED, NOT_PLAYED = DOCUMENT.read_text().split("Not played:")
ROWS: Final = re.findall(
    r"^\| (?!Kafka's scenario)(.+?) \| (.+?) \| (.+) \|$", PLAYED, re.MULTILINE
)
NAMED: Final = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PLAYED)))


def test_every_scenario_of_the_design_is_in_the_table() -> None:
    found = {name for row in ROWS for name in re.findall(r"/(\w+_test)\b", row[0])}
    assert found >= set(SCENARIOS)


def test_every_row_names_a_test() -> None:
    assert [row[0] for row in ROWS if "::test_" not in row[2]] == []


def test_what_is_not_played_has_a_reason() -> None:
    rows = re.findall(r"^\| (.*_test) \| (.+) \|$", NOT_PLAYED, re.MULTILINE)
    assert len(rows) == NOT_PLAYED.count("\n| core/")
    assert not {each for row in rows for each in row[0].split(", ")} & {row[0] for row in ROWS}


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_it_exists(file: str, name: str) -> None:
    tree = ast.parse((ROOT / file).read_text())
    assert name in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}
