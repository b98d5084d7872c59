"""Which tests name which rows of ``tests/seed_rows.py``, read from their source.

A test says so itself: ``@pytest.mark.seed_row("3.2", "3.7")`` on a function, or on a class for all
of its tests. Nothing is imported: collecting 16,000 tests takes half a minute.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, TypeGuard

MARK: Final = "seed_row"


class MarkError(ValueError):
    """A mark that is not where it would count, or names rows in a way that cannot be read."""


class SeedMark(NamedTuple):
    """One row that one test, or one class of tests, names."""

    row: str
    path: Path
    test: str
    """A function, a class, or a function of a class as ``Class::function``."""


def read_marks(folder: Path) -> list[SeedMark]:
    """Return the marks of all modules of tests below ``folder``, in the order of their paths."""
    return [
        mark
        for path in sorted(folder.rglob("test_*.py"))
        for mark in marks_in(path, path.read_text())
    ]


def marks_in(path: Path, source: str) -> list[SeedMark]:
    """Return the marks of one module.

    Raises:
        MarkError: With the place of what is wrong.
    """
    if MARK not in source:
        return []
    tree = ast.parse(source)
    calls = [
        (call, test) for test, decorators in _tests(tree.body) for call in _mark_calls(decorators)
    ]
    counted = {id(call.func) for call, _ in calls}
    for node in ast.walk(tree):
        if _is_mark(node) and id(node) not in counted:
            raise MarkError(f"{path}:{node.lineno}: {MARK} is no decorator of a test, with rows")
    return [SeedMark(row, path, test) for call, test in calls for row in _rows(path, call)]


def _tests(body: list[ast.stmt], prefix: str = "") -> Iterator[tuple[str, list[ast.expr]]]:
    """Give what pytest collects by its name, with its decorators."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if node.name.startswith("test"):
                yield prefix + node.name, node.decorator_list
            case ast.ClassDef() if node.name.startswith("Test"):
                yield prefix + node.name, node.decorator_list
                yield from _tests(node.body, f"{prefix}{node.name}::")


def _mark_calls(decorators: list[ast.expr]) -> Iterator[ast.Call]:
    return (each for each in decorators if isinstance(each, ast.Call) and _is_mark(each.func))


def _is_mark(node: ast.AST) -> TypeGuard[ast.Attribute]:
    return isinstance(node, ast.Attribute) and node.attr == MARK


def _rows(path: Path, call: ast.Call) -> list[str]:
    rows = [each.value for each in call.args if isinstance(each, ast.Constant)]
    if not rows or len(rows) != len(call.args) or not all(isinstance(row, str) for row in rows):
        raise MarkError(f"{path}:{call.lineno}: {MARK} takes numbers of rows, each as a text")
    return [str(row) for row in rows]
