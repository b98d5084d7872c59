"""House rules that no linter offers, checked on every module we write by hand."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
VAGUE_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "manager", "impl"}
MODULES = sorted(
    path
    for folder in ("src", "tests", "tools", "bench", "fuzz", "examples")
    for path in (ROOT / folder).rglob("*.py")
    if "generated" not in path.parts
)


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_module_is_tidy(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), "every module says what it is for"
    assert len(text.splitlines()) <= MODULE_LINES_MAX
    assert path.stem not in VAGUE_NAMES, "name the thing it owns"
    for function in functions(tree):
        assert function.end_lineno is not None
        length = function.end_lineno - function.lineno + 1
        assert length <= FUNCTION_LINES_MAX, f"{function.name} is {length} lines"


def test_no_two_modules_of_tests_have_one_name() -> None:
    """Pytest can import only one of them where a folder is no package."""
    names = [path.name for path in MODULES if path.name.startswith("test_")]
    assert sorted(names) == sorted(set(names))
