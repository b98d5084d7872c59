"""The sections ``tables`` and ``steps``: what can be read, and what is made of it."""

import re
from collections.abc import Callable
from typing import Final

from odradek.spark.pipeline.definition import Place, PythonStep, SqlStep, Step, Table, Watermark
from odradek.spark.pipeline.sections.names import Names
from odradek.spark.pipeline.sections.source import read_watermark
from odradek.spark.pipeline.sql_text import find_problem, tables_read
from odradek.spark.pipeline.yaml_positions import Section

STEPS_MAX: Final = 500
TABLES_MAX: Final = 100
_FUNCTION: Final = re.compile(r"([A-Za-z_][\w.]*):([A-Za-z_]\w*)")


def read_tables(root: Section, names: Names, path_of: Callable[[str], str]) -> tuple[Table, ...]:
    tables = []
    for name, section in root.named_sections("tables", count_max=TABLES_MAX).items():
        names.learn(name, section.problem_of_all, is_table=True)
        path = section.text("path")
        tables.append(
            Table(
                name=name,
                place=Place(section.line, section.field),
                format=section.text("format", required=True) or "",
                path=None if path is None else path_of(path),
                schema=section.text("schema"),
                options=section.options("options"),
            )
        )
        section.finish()
    return tuple(tables)


def read_steps(root: Section, names: Names) -> tuple[Step, ...]:
    steps = [_step(section, names) for section in root.sections("steps", count_max=STEPS_MAX)]
    return tuple(step for step in steps if step is not None)


def _step(section: Section, names: Names) -> Step | None:
    name = section.text("name", required=True) or ""
    sql, python = section.text("sql", is_raw=True), section.text("python")
    inputs = section.texts("input")
    watermark = read_watermark(section)
    section.finish()
    step: Step | None = None
    if (sql is None) == (python is None):
        found = "both" if sql is not None else "neither"
        section.problem("sql", f"a step is either sql or python (module:function), not {found}")
    elif sql is not None:
        _check_sql(section, names, sql, has_input=bool(inputs))
        step = SqlStep(name, Place(section.line_of("sql"), section.path("sql")), sql, watermark)
    elif python is not None:
        step = _python_step(section, names, name, python, inputs, watermark)
    if name:
        names.learn(name, lambda message: section.problem("name", message))
    return step


def _python_step(
    section: Section,
    names: Names,
    name: str,
    python: str,
    inputs: tuple[str, ...],
    watermark: Watermark | None,
) -> PythonStep | None:
    place = Place(section.line_of("python"), section.path("python"))
    for each in inputs:
        names.check(section, "input", each)
    match = _FUNCTION.fullmatch(python)
    if match is None:
        section.problem("python", f"must be module:function, not {python!r}")
        return None
    return PythonStep(name, place, match[1], match[2], inputs or (names.last_step,), watermark)


def _check_sql(section: Section, names: Names, sql: str, *, has_input: bool) -> None:
    if has_input:
        section.problem("input", "is for python steps: sql says what it reads")
    problem = find_problem(sql)
    if problem is not None:
        section.problem("sql", problem)
        return
    for each in tables_read(sql):
        names.check(section, "sql", each)
