"""Every row of the notes is shown by a test, and no test names a row that there is not."""

import textwrap
from pathlib import Path

import pytest

from tests.seed_rows import NOTES, SEED_ROWS, SeedRow
from tools.seed_marks import MarkError, SeedMark, marks_in, read_marks

pytest_plugins = ["pytester"]

TESTS = Path(__file__).parents[1]
MARKS = read_marks(TESTS)
HERE = Path("test_it.py")
SEVERAL_NODES = ("cluster", "simulation/cluster", "simulation/replicas", "simulation/replication")


def runs_several_nodes(mark: SeedMark) -> bool:
    folder = mark.path.parent.relative_to(TESTS).as_posix()
    return folder in SEVERAL_NODES or "Cluster(nodes=" in mark.path.read_text()


@pytest.mark.parametrize("row", SEED_ROWS, ids=lambda row: row.number)
def test_a_test_shows_it(row: SeedRow) -> None:
    shown = [mark for mark in MARKS if mark.row == row.number]
    assert shown, f'no test is marked with seed_row("{row.number}"): {row.description}'
    if row.needs_cluster:
        assert any(map(runs_several_nodes, shown)), "no test of several nodes shows it"


def test_no_test_names_a_row_that_there_is_not() -> None:
    numbers = {row.number for row in SEED_ROWS}
    assert [mark for mark in MARKS if mark.row not in numbers] == []


def test_no_test_names_a_row_twice() -> None:
    assert len(MARKS) == len(set(MARKS))


def test_rows_are_numbered_within_their_notes() -> None:
    for note in NOTES:
        numbers = [row.number for row in SEED_ROWS if row.number.startswith(f"{note}.")]
        assert numbers == [f"{note}.{each + 1}" for each in range(len(numbers))]
    assert {row.number.split(".")[0] for row in SEED_ROWS} == set(NOTES)


def read(source: str) -> list[tuple[str, str]]:
    return [(mark.row, mark.test) for mark in marks_in(HERE, textwrap.dedent(source))]


def test_marks_count_on_functions_classes_and_methods() -> None:
    source = """
        @pytest.mark.seed_row("1.1")
        def test_plain(): ...

        @pytest.mark.slow
        @pytest.mark.seed_row("1.2", "1.3")
        @pytest.mark.parametrize("number", [1, 2])
        @pytest.mark.seed_row("1.4")
        async def test_parametrized(number): ...

        @pytest.mark.seed_row("2.1")
        class TestAll:
            @pytest.mark.seed_row("2.2")
            def test_one(self): ...
    """
    assert read(source) == [
        ("1.1", "test_plain"),
        ("1.2", "test_parametrized"),
        ("1.3", "test_parametrized"),
        ("1.4", "test_parametrized"),
        ("2.1", "TestAll"),
        ("2.2", "TestAll::test_one"),
    ]


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.seed_row("1.1")\ndef check_it(): ...',
        '@pytest.mark.seed_row("1.1")\nclass Helper: ...',
        'pytestmark = pytest.mark.seed_row("1.1")',
        'CASES = [pytest.param(1, marks=pytest.mark.seed_row("1.1"))]',
        "@pytest.mark.seed_row\ndef test_it(): ...",
        "@pytest.mark.seed_row()\ndef test_it(): ...",
        "@pytest.mark.seed_row(1.1)\ndef test_it(): ...",
        "@pytest.mark.seed_row(*ROWS)\ndef test_it(): ...",
    ],
)
def test_a_mark_that_would_not_count_is_refused_with_its_place(source: str) -> None:
    with pytest.raises(MarkError, match=r"test_it\.py:[12]: seed_row "):
        read(source)


def test_pytest_sees_the_marks_that_are_read(pytester: pytest.Pytester) -> None:
    """On every case of a parametrized test, and on the tests of a class."""
    source = """
        import pytest

        @pytest.mark.seed_row("1.1")
        @pytest.mark.parametrize("number", [1, 2])
        def test_parametrized(number): ...

        @pytest.mark.seed_row("1.2")
        class TestAll:
            def test_one(self): ...
    """
    pytester.makeini("[pytest]\nmarkers = seed_row")
    items, _ = pytester.inline_genitems(pytester.makepyfile(source))
    assert [[mark.args for mark in item.iter_markers("seed_row")] for item in items] == [
        [("1.1",)],
        [("1.1",)],
        [("1.2",)],
    ]
    assert read(source) == [("1.1", "test_parametrized"), ("1.2", "TestAll")]
