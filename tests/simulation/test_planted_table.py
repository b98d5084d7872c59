"""The table of planted bugs says what the tests do, and the documentation says the same."""

from pathlib import Path
from typing import Final

import pytest

from tests.simulation.cluster.planted import BUGS
from tests.simulation.cluster.planted_data import DATA_BUGS
from tests.simulation.cluster.planted_moves import MOVE_BUGS
from tests.simulation.cluster.planted_operations import OPERATION_BUGS
from tests.simulation.planted_table import TABLE, Row, Where
from tests.simulation.replication import planted_bugs, test_replication_stories
from tests.simulation.transactions import test_transaction_planted_faults, transaction_planted

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "simulation.md"
STORM: Final = {bug.number: bug for bug in (*BUGS, *DATA_BUGS, *MOVE_BUGS, *OPERATION_BUGS)}
REPLICATION: Final = {bug.name: bug for bug in planted_bugs.BUGS}
STORIES: Final = {story.__name__ for story, _ in test_replication_stories.STORIES}


def test_every_bug_of_the_design_is_in_the_table() -> None:
    assert {row.number for row in TABLE} == set(range(1, 37))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_a_row_is_what_a_test_does(row: Row) -> None:
    match row.where:
        case (
            Where.QUORUM | Where.VOTERS | Where.NODES | Where.DATA | Where.MOVES | Where.OPERATIONS
        ):
            bug = STORM[row.name]
            assert (bug.level, bug.seeds_max) == (row.where.name.lower(), row.seeds_max)
        case Where.REPLICATION:
            assert REPLICATION[row.name].seeds_max == row.seeds_max
        case Where.TRANSACTIONS:
            assert hasattr(transaction_planted, row.name)
            assert test_transaction_planted_faults.SEEDS_MAX == row.seeds_max
        case Where.STORY:
            assert row.name.split("::")[1] in STORIES


def test_the_documentation_has_the_table() -> None:
    lines = DOCUMENT.read_text().splitlines()
    start = lines.index("| bug | | found by | seeds |") + 2
    assert lines[start : start + len(TABLE)] == [str(row) for row in TABLE]
    assert not lines[start + len(TABLE)].startswith("|")
