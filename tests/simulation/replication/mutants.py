"""Changes one comparison, constant or operator of ``replication/`` at a time: does a test notice?

``python -m tests.simulation.replication.mutants [MODULE …] [--seeds N]`` is run by hand. Each
mutant gets a process of its own, in which the unit tests and the stories run, and then some seeds.
What survives is printed with its line.
"""

import argparse
import ast
import contextlib
import copy
import io
import os
import signal
import sys
import time
import types
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[3]
PACKAGE: Final = ROOT / "src/odradek/replication"
MODULES: Final = ("follower_state", "following", "isr", "lag_rounds", "leadership", "truncation")
SECONDS_MAX: Final = 120
TESTS: Final = (
    "tests/unit/replication",
    "tests/simulation/replication/test_replication_stories.py",
)
SWAPS: Final[dict[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
}
CHANGED: Final = (ast.Compare, ast.BoolOp, ast.BinOp, ast.Name, ast.Constant, ast.UnaryOp)
NAMES: Final = {"min": "max", "max": "min"}


class Mutant(NamedTuple):
    module: str
    line: int
    what: str
    tree: ast.Module


def mutants_of(module: str) -> Iterator[Mutant]:
    source = (PACKAGE / f"{module}.py").read_text()
    count = len(list(ast.walk(ast.parse(source))))
    for number in range(count):
        tree = ast.parse(source)
        node = list(ast.walk(tree))[number]
        if not isinstance(node, CHANGED) or is_left_out(tree, node):
            continue
        before = ast.unparse(node)
        for what in changes_of(node):
            text = f"{what}: {before} -> {ast.unparse(node)}"
            yield Mutant(module, node.lineno, text, copy.deepcopy(tree))


def is_left_out(tree: ast.Module, node: ast.AST) -> bool:
    """Whether a node is part of a type, an assertion or a check of invariants."""
    for parent in ast.walk(tree):
        is_checking = isinstance(parent, ast.Assert) or (
            isinstance(parent, ast.FunctionDef) and parent.name == "check_invariants"
        )
        if is_checking and any(each is node for each in ast.walk(parent)):
            return True
        decorators = getattr(parent, "decorator_list", [])
        if any(each is node for every in decorators for each in ast.walk(every)):
            return True
        notes = [getattr(parent, name, None) for name in ("annotation", "returns")]
        if any(note and any(each is node for each in ast.walk(note)) for note in notes):
            return True
        is_union = isinstance(parent, ast.Assign) and isinstance(parent.value, ast.BinOp)
        if is_union and any(each is node for each in ast.walk(parent)):
            return True
    return False


def changes_of(node: ast.AST) -> Iterator[str]:
    """Change a node in place, in one way after the other."""
    match node:
        case ast.Compare(ops=ops):
            for at, old in enumerate(ops):
                ops[at] = SWAPS[type(old)]()  # type: ignore[call-overload]
                yield "comparison"
                ops[at] = old
        case ast.BoolOp(op=op) | ast.BinOp(op=op) if type(op) in SWAPS:
            node.op = SWAPS[type(op)]()  # type: ignore[assignment]
            yield "operator"
        case ast.Name(id=name) if name in NAMES:
            node.id = NAMES[name]
            yield "function"
        case ast.Constant(value=bool(value)):
            node.value = not value
            yield "constant"
        case ast.Constant(value=int(value)):
            node.value = value + 1
            yield "constant"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            node.op, node.operand = ast.Not(), ast.UnaryOp(ast.Not(), operand)
            yield "not"


def killed_by(mutant: Mutant, seeds: int) -> str | None:
    """Try a mutant in a process of its own; return what noticed it."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(SECONDS_MAX)
        answer = b"an exception"
        with contextlib.suppress(BaseException):
            answer = _try(mutant, seeds).encode()
        os.write(write_end, answer)
        os._exit(0)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        noticed = pipe.read().decode()
    os.waitpid(child, 0)
    return None if noticed == "nothing" else noticed or "time"


def _try(mutant: Mutant, seeds: int) -> str:
    name = f"odradek.replication.{mutant.module}"
    module = types.ModuleType(name)
    module.__file__ = str(PACKAGE / f"{mutant.module}.py")
    sys.modules[name] = module
    code = compile(ast.fix_missing_locations(mutant.tree), module.__file__, "exec")
    exec(code, module.__dict__)
    setattr(sys.modules["odradek.replication"], mutant.module, module)
    import pytest

    options = ["-q", "-x", "-W", "ignore", "-p", "no:cacheprovider"]
    with contextlib.redirect_stdout(io.StringIO()):
        if pytest.main([*options, *(str(ROOT / each) for each in TESTS)]):
            return "tests"
    from tests.simulation.replication.story import tell

    for seed in range(seeds):
        if tell(seed).failure is not None:
            return "simulation"
    return "nothing"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("modules", nargs="*", default=MODULES)
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--every", type=int, default=1, help="try only every such mutant")
    options = parser.parse_args()
    import odradek.replication  # noqa: F401, the package without its modules

    begun, by = time.perf_counter(), Counter[str]()
    for module in options.modules:
        for mutant in islice(mutants_of(module), 0, None, options.every):
            found = killed_by(mutant, options.seeds)
            by[found or "nothing"] += 1
            if found is None:
                print(f"survived: {mutant.module}.py:{mutant.line} {mutant.what}", flush=True)
    count = by.total()
    share = 100 * (count - by["nothing"]) / max(count, 1)
    print(
        f"{count} mutants, {share:.0f} % noticed: {dict(by)}, {time.perf_counter() - begun:.0f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
