"""Writes the blocking clients from the asyncio ones: ``python -m tools.blocking_twins``.

Each public method is written out with its signature and docstring, so that people, editors and mypy
see what there is. Coroutines run to their end, plain methods and properties are read on the loop's
thread, context managers and iterators become plain ones. What a base class of the twin has written
by hand is left to it.
"""

import ast
import builtins
import importlib
import inspect
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "src/odradek/client/blocking"
OWN = {"listener": ("outside(listener)", "from odradek.client.blocking.polling import outside")}
"""Arguments that are not passed on as they are."""
ABSTRACT = {"AsyncIterator": "Iterator", "AsyncGenerator": "Iterator"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Kind(NamedTuple):
    """One class to write."""

    module: str
    name: str
    base_module: str
    base: str
    docstring: str

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name.lower()}.py"


KINDS = (
    Kind(
        "odradek.client.admin.admin",
        "Admin",
        "odradek.client.blocking.twin",
        "Twin[Admin]",
        """Looks after a cluster, and blocks; see ``Admin`` for what it can do.

    >>> with BlockingAdmin(bootstrap_servers="localhost:9092") as admin:
    ...     admin.create_topics([NewTopic("orders", partitions=6)]).unwrap()
    """,
    ),
    Kind(
        "odradek.client.producer.producer",
        "Producer",
        "odradek.client.blocking.sending",
        "Sending",
        """Sends records to topics, and blocks; from any thread, and in forked children too.

    >>> with BlockingProducer(bootstrap_servers="localhost:9092") as producer:
    ...     sent = producer.send("greetings", b"hello", key=b"world")
    ...     print(sent.result().offset)

    ``send`` does not wait for delivery, ``flush`` and the end of the block do. Callbacks of futures
    and interceptors run on the client's thread: there, do not call the producer.
    """,
    ),
    Kind(
        "odradek.client.consumer.consumer",
        "Consumer",
        "odradek.client.blocking.polling",
        "Polling[K, V]",
        """Reads records of topics, and blocks; see ``Consumer`` for what it can do.

    >>> with BlockingConsumer("greetings", bootstrap_servers="localhost:9092", group_id="g") as c:
    ...     for record in c:
    ...         print(record.value)

    A record at a time costs a change of threads each: ``poll`` and ``poll_arrow`` are faster.
    Listeners run on a thread of their own while ``poll`` waits, and may call the consumer; other
    callbacks run on the client's thread, and may not.
    """,
    ),
)


class Source:
    """The modules that a class and its bases are written in."""

    def __init__(self, kind: Kind) -> None:
        found = getattr(importlib.import_module(kind.module), kind.name)
        self.imports: dict[str, str] = {}
        self.typing_imports: set[str] = set()
        self.methods: dict[str, Function] = {}
        for each in found.__mro__:
            if each.__module__.startswith("odradek."):
                self._read(each)

    def _read(self, found: type) -> None:
        tree = ast.parse(inspect.getsource(importlib.import_module(found.__module__)))
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for name in node.names:
                    line = f"from {node.module} import {ast.unparse(name)}"
                    self.imports.setdefault(name.asname or name.name, line)
            elif isinstance(node, ast.Import):
                for name in node.names:
                    self.imports.setdefault(name.asname or name.name, ast.unparse(node))
            elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                self.typing_imports |= {
                    name.asname or name.name
                    for each in node.body
                    if isinstance(each, ast.Import | ast.ImportFrom)
                    for name in each.names
                }
        for node in tree.body:
            for defined in _defined(node):
                self.imports.setdefault(defined, f"from {found.__module__} import {defined}")
            if isinstance(node, ast.ClassDef) and node.name == found.__name__:
                for method in node.body:
                    if isinstance(method, Function):
                        self.methods.setdefault(method.name, method)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    if isinstance(node, ast.Assign):
        return [each.id for each in node.targets if isinstance(each, ast.Name)]
    return []


def write(kind: Kind) -> str:
    """Return the module of a twin."""
    source = Source(kind)
    base = getattr(importlib.import_module(kind.base_module), kind.base.partition("[")[0])
    body = [_constructor(kind, source.methods["__init__"])]
    for name, method in source.methods.items():
        is_by_hand = name in vars(base) and name not in ("start", "close")
        if not name.startswith("_") and not is_by_hand and name != "start":
            body.append(_method(method))
    if "__anext__" in source.methods:
        body.append(_iteration(source.methods["__anext__"]))
    text = "\n".join(body)
    lines = _imports(kind, source, _names(ast.parse(f"class _:\n{text}")))
    head = f'"""``{kind.name}`` for programs without an event loop.\n\n'
    head += f'Generated by tools/blocking_twins.py from {kind.module}; do not edit.\n"""\n\n'
    declared = f'class Blocking{kind.name}({kind.base}):\n    """{kind.docstring}"""\n'
    return formatted(head + "\n".join(lines) + f"\n\n\n{declared}\n{text}\n")


def _names(tree: ast.AST) -> set[str]:
    """Return all names in code, those in quoted annotations too."""
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    for function in ast.walk(tree):
        if isinstance(function, Function):
            for each in (*ast.walk(function.args), *ast.walk(function.returns or ast.Pass())):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    names |= _names(ast.parse(each.value))
    return names


def _imports(kind: Kind, source: Source, used: set[str]) -> list[str]:
    base = kind.base.partition("[")[0]
    known = {
        **source.imports,
        **{text.partition("(")[0]: line for text, line in OWN.values()},
        "Iterator": "from collections.abc import Iterator",
        "contextmanager": "from contextlib import contextmanager",
        kind.name: f"from {kind.module} import {kind.name}",
        base: f"from {kind.base_module} import {base}",
    }
    wanted = sorted(name for name in {*used, base} if name in known and not hasattr(builtins, name))
    lines = [known[name] for name in wanted if name not in source.typing_imports]
    typing_only = [known[name] for name in wanted if name in source.typing_imports]
    if typing_only:
        lines.append("from typing import TYPE_CHECKING\nif TYPE_CHECKING:")
        lines += [f"    {line}" for line in typing_only]
    return lines


def _constructor(kind: Kind, method: Function) -> str:
    made = f"super().__init__(lambda: {kind.name}({_passed_on(method.args)}))"
    head = f"def __init__({ast.unparse(method.args)}) -> None:\n{_docstring(method)}"
    return f"    {head}        {made}\n"


def _method(method: Function) -> str:
    names = [each.id for each in method.decorator_list if isinstance(each, ast.Name)]
    returned = _annotation(method.returns)
    head = f"def {method.name}({ast.unparse(method.args)}) -> {returned}:\n{_docstring(method)}"
    call = f"lambda core: core.{method.name}({_passed_on(method.args)})"
    result = "" if returned == "None" else "return "
    if method.name == "close":
        return f"    {head}        self._close({call})\n"
    if "asynccontextmanager" in names:
        inside = f"        with self._entered({call}) as entered:\n            yield entered\n"
        return f"    @contextmanager\n    {head}{inside}"
    if "property" in names:
        call = f"lambda core: core.{method.name}"
        return f"    @property\n    {head}        {result}self._call({call})\n"
    runner = "_run" if isinstance(method, ast.AsyncFunctionDef) else "_call"
    return f"    {head}        {result}self.{runner}({call})\n"


def _iteration(method: Function) -> str:
    item = _annotation(method.returns)
    return f"""    def __iter__(self) -> Iterator[{item}]:
        return self

    def __next__(self) -> {item}:
        try:
            return self._run(lambda core: core.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None
"""


def _docstring(method: Function) -> str:
    text = ast.get_docstring(method, clean=False)
    return "" if text is None else f'        """{text.replace("async with", "with")}"""\n'


def _annotation(returns: ast.expr | None) -> str:
    text = "None" if returns is None else ast.unparse(returns)
    for old, new in ABSTRACT.items():
        text = text.replace(old, new)
    return text


def _passed_on(arguments: ast.arguments) -> str:
    given = [_own(each.arg) for each in (*arguments.posonlyargs, *arguments.args)][1:]
    if arguments.vararg:
        given.append(f"*{arguments.vararg.arg}")
    given += [f"{each.arg}={_own(each.arg)}" for each in arguments.kwonlyargs]
    if arguments.kwarg:
        given.append(f"**{arguments.kwarg.arg}")
    return ", ".join(given)


def _own(name: str) -> str:
    return OWN[name][0] if name in OWN else name


def formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    for command in (["check", "--fix", "--select", "I", "-q"], ["format", "-q"]):
        arguments = [*ruff, *command, "--stdin-filename", str(FOLDER / "_.py"), "-"]
        done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


def main() -> None:
    for kind in KINDS:
        kind.path.write_text(write(kind))


if __name__ == "__main__":
    main()
