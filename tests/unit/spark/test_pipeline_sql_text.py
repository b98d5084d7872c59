"""What is said of SQL without Spark: nothing that is not so."""

import pytest

from odradek.spark.pipeline.sql_text import find_problem, tables_read
from tests.spark_queries import QUERIES


@pytest.mark.parametrize("sql", QUERIES)
def test_nothing_is_said_of_what_spark_takes(sql: str) -> None:
    assert find_problem(sql) is None
    assert {name.lower() for name in tables_read(sql)} <= {"source", "customers"}


@pytest.mark.parametrize(
    ("sql", "tables"),
    [
        ("SELECT * FROM a JOIN b USING (x) LEFT JOIN `c` ON true", ["a", "b", "c"]),
        ("SELECT (SELECT max(x) FROM a) FROM b WHERE y IN (SELECT y FROM c)", ["a", "b", "c"]),
        ("WITH a AS (SELECT * FROM b) SELECT * FROM a JOIN c", ["b", "c"]),
        ("SELECT extract(DAY FROM x) FROM a", ["a"]),
        ("SELECT trim((SELECT y FROM a) FROM z) FROM b", ["a", "b"]),
        ("FROM a |> JOIN b ON true", ["a", "b"]),
        ("SELECT 'FROM a' /* FROM b */ -- FROM c\nFROM d", ["d"]),
    ],
)
def test_tables_are_found(sql: str, tables: list[str]) -> None:
    assert list(tables_read(sql)) == tables


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELECT 'a", "a ' is not closed"),
        ('SELECT "a', 'a " is not closed'),
        ("SELECT `a", "a ` is not closed"),
        ("SELECT /* /* */ 1", "a /* is not closed"),
        ("SELECT (1", "a '(' is not closed"),
        ("SELECT 1)", "a ')' closes nothing"),
        ("SELECT a[(1])", "a ']' closes nothing"),
        ("SELECT 1; SELECT 2", "has more than one statement"),
        ("INSERT INTO a SELECT 1", "must be a query: SELECT …"),
        ("-- nothing", "must be a query: SELECT …"),
    ],
)
def test_what_is_wrong_for_certain_is_told(sql: str, problem: str) -> None:
    assert find_problem(sql) == problem
