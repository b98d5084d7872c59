"""YAML that remembers where things are: every value knows its line, and problems can name it.

``read_yaml`` gives a tree of ``Value``. A ``Section`` reads one mapping of it, field by field, and
writes down what is wrong as it goes, and at the end what nobody asked for. All problems of a file
are found in one go.

``${NAME}`` and ``${NAME:-default}`` in texts stand for variables of the environment, except where a
reader asks for the text as it is (SQL).
"""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

import yaml  # type: ignore[import-untyped]

FILE_BYTES_MAX: Final = 2**20
VALUES_MAX: Final = 20_000
"""Aliases make small files into large trees."""
DEPTH_MAX: Final = 50
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class Problem(NamedTuple):
    """Something wrong with a file; ``field`` is a path like ``sinks[0].topic``."""

    file: str
    line: int
    field: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}"
        return (
            f"{where}: {self.field}: {self.message}" if self.field else f"{where}: {self.message}"
        )


class DefinitionError(ValueError):
    """A file is not sound; says all that is wrong with it, a line for each."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda each: each.line))
        super().__init__("\n".join(map(str, self.problems)))


class Value(NamedTuple):
    """A scalar, a list of values, or a dict from keys to values."""

    line: int
    content: Any


def read_yaml(text: str, file: str) -> Value:
    """Return what is in a file.

    Raises:
        DefinitionError: It is not YAML, or too large.
    """
    if len(text) > FILE_BYTES_MAX:
        raise DefinitionError([Problem(file, 1, "", f"larger than {FILE_BYTES_MAX} bytes")])
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            raise DefinitionError([Problem(file, 1, "", "the file is empty")])
        return _Reader(loader, file).value(root, 0)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = 1 if mark is None else mark.line + 1
        what = getattr(error, "problem", None) or str(error)
        raise DefinitionError([Problem(file, line, "", f"not YAML: {what}")]) from error
    finally:
        loader.dispose()


class _Reader:
    def __init__(self, loader: Any, file: str) -> None:
        self._loader = loader
        self._file = file
        self._values = 0

    def value(self, node: Any, depth: int) -> Value:
        line = node.start_mark.line + 1
        self._values += 1
        if self._values > VALUES_MAX or depth > DEPTH_MAX:
            raise self._problem(line, "more values than a pipeline can have")
        if isinstance(node, yaml.MappingNode):
            return Value(line, self._mapping(node, depth))
        if isinstance(node, yaml.SequenceNode):
            return Value(line, [self.value(each, depth + 1) for each in node.value])
        try:
            return Value(line, self._loader.construct_object(node))
        except ValueError:
            # What looks like a date and is none is a text, which its field refuses or takes.
            return Value(line, node.value)

    def _mapping(self, node: Any, depth: int) -> dict[str, Value]:
        content: dict[str, Value] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._problem(line, "a name must be a plain text")
            if key_node.value in content:
                raise self._problem(line, f"{key_node.value!r} is given twice")
            # A block text begins a line after its name; people look for the name.
            content[key_node.value] = self.value(value_node, depth + 1)._replace(line=line)
        return content

    def _problem(self, line: int, message: str) -> DefinitionError:
        return DefinitionError([Problem(self._file, line, "", message)])


class Problems:
    """What is wrong with one file, so far."""

    def __init__(self, file: str, environment: Mapping[str, str]) -> None:
        self.file = file
        self.environment = environment
        self._found: list[Problem] = []

    def add(self, line: int, field: str, message: str) -> None:
        self._found.append(Problem(self.file, line, field, message))

    def has_under(self, field: str) -> bool:
        """Tell whether something is wrong with a field, or with a part of it."""
        return any(f"{each.field}.".startswith(f"{field}.") for each in self._found)

    def check(self) -> None:
        """Raise if there is something wrong.

        Raises:
            DefinitionError: There is.
        """
        if self._found:
            raise DefinitionError(self._found)


class Section:
    """One mapping of a file, read by the names of its fields."""

    def __init__(self, value: Value, field: str, problems: Problems) -> None:
        self.line = value.line
        self.field = field
        self.problems = problems
        self._asked: dict[str, None] = {}
        self._is_mapping = isinstance(value.content, dict)
        self._content: dict[str, Value] = value.content if self._is_mapping else {}
        if not self._is_mapping:
            problems.add(value.line, field, f"must be a mapping, not {kind_of(value.content)}")

    def path(self, name: str) -> str:
        return f"{self.field}.{name}" if self.field else name

    def line_of(self, name: str) -> int:
        found = self._content.get(name)
        return self.line if found is None else found.line

    def problem(self, name: str, message: str) -> None:
        self.problems.add(self.line_of(name), self.path(name), message)

    def problem_of_all(self, message: str) -> None:
        self.problems.add(self.line, self.field, message)

    def find(self, name: str, *, required: bool = False) -> Value | None:
        """Return the value of a field; an empty one is as good as none."""
        self._asked[name] = None
        found = self._content.get(name)
        if found is not None and found.content is not None:
            return found
        if required and self._is_mapping:
            self.problems.add(self.line, self.path(name), "is missing")
        return None

    def text(self, name: str, *, required: bool = False, is_raw: bool = False) -> str | None:
        found = self.find(name, required=required)
        return None if found is None else self._as_text(found, self.path(name), is_raw=is_raw)

    def integer(self, name: str, *, least: int) -> int | None:
        found = self.find(name)
        if found is None:
            return None
        content = found.content
        if isinstance(content, bool) or not isinstance(content, int) or content < least:
            wanted = f"must be a whole number of {least} or more"
            self.problem(name, f"{wanted}, not {shown(content)}")
            return None
        return content

    def flag(self, name: str, *, default: bool) -> bool:
        found = self.find(name)
        if found is not None and not isinstance(found.content, bool):
            self.problem(name, f"must be true or false, not {shown(found.content)}")
            return default
        return default if found is None else bool(found.content)

    def choice(self, name: str, choices: Sequence[str], *, default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        if text not in choices:
            self.problem(name, f"must be {_either(choices)}, not {text!r}{nearest(text, choices)}")
            return default
        return text

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a list of texts; one text alone is a list of one."""
        found = self.find(name)
        if found is None:
            return ()
        if not isinstance(found.content, list):
            found = Value(found.line, [found])
        path = self.path(name)
        texts = [self._as_text(each, f"{path}[{i}]") for i, each in enumerate(found.content)]
        return tuple(text for text in texts if text is not None)

    def options(self, name: str) -> dict[str, str]:
        """Return a mapping to scalars, as the texts that Spark and clients take."""
        found = self.find(name)
        if found is None:
            return {}
        if not isinstance(found.content, dict):
            self.problem(name, f"must be a mapping, not {kind_of(found.content)}")
            return {}
        options = {}
        for key, value in found.content.items():
            text = self._as_text(value, f"{self.path(name)}.{key}", is_scalar=True)
            if text is not None:
                options[key] = text
        return options

    def section(self, name: str, *, required: bool = False) -> "Section | None":
        found = self.find(name, required=required)
        return None if found is None else Section(found, self.path(name), self.problems)

    def sections(self, name: str, *, required: bool = False, count_max: int) -> "list[Section]":
        """Return the mappings of a list."""
        found = self.find(name, required=required)
        if found is None:
            return []
        if not isinstance(found.content, list):
            self.problem(name, f"must be a list, not {kind_of(found.content)}")
            return []
        if required and not found.content:
            self.problem(name, "is empty")
        path, given = self.path(name), self._at_most(count_max, name, found.content)
        return [Section(v, f"{path}[{i}]", self.problems) for i, v in enumerate(given)]

    def named_sections(self, name: str, *, count_max: int) -> "dict[str, Section]":
        """Return the mappings of a mapping."""
        found = self.find(name)
        if found is None:
            return {}
        if not isinstance(found.content, dict):
            self.problem(name, f"must be a mapping, not {kind_of(found.content)}")
            return {}
        path, given = self.path(name), self._at_most(count_max, name, list(found.content.items()))
        return {k: Section(v, f"{path}.{k}", self.problems) for k, v in given}

    def _at_most(self, count_max: int, name: str, given: list[Any]) -> list[Any]:
        if len(given) > count_max:
            self.problem(name, f"has {len(given)}, {count_max} at most")
        return given[:count_max]

    def finish(self) -> None:
        """Complain of what nobody asked for."""
        for name, value in self._content.items():
            if name not in self._asked:
                hint = nearest(name, list(self._asked)) or f"; known: {', '.join(self._asked)}"
                self.problems.add(value.line, self.path(name), f"unknown{hint}")

    def _as_text(
        self, value: Value, path: str, *, is_raw: bool = False, is_scalar: bool = False
    ) -> str | None:
        content = value.content
        if is_scalar and isinstance(content, bool):
            return str(content).lower()
        if is_scalar and isinstance(content, int | float):
            return str(content)
        if not isinstance(content, str) or not content.strip():
            self.problems.add(value.line, path, f"must be a text, not {shown(content)}")
            return None
        return content if is_raw else self._expanded(content, value.line, path)

    def _expanded(self, text: str, line: int, path: str) -> str:
        def replacement(match: re.Match[str]) -> str:
            found = self.problems.environment.get(match[1], cast("str | None", match[2]))
            if found is None:
                self.problems.add(line, path, f"there is no variable {match[1]} in the environment")
            return found or ""

        return _VARIABLE.sub(replacement, text)


def nearest(name: str, known: Sequence[str]) -> str:
    """Return a hint at the name that was meant, if it can be guessed."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def shown(content: object) -> str:
    if isinstance(content, dict | list) or content is None:
        return kind_of(content)
    return repr(content)


def kind_of(content: object) -> str:
    kinds: dict[type, str] = {dict: "a mapping", list: "a list", type(None): "nothing"}
    if isinstance(content, str):
        return "a text" if content.strip() else "an empty text"
    return kinds.get(type(content)) or repr(content)


def _either(choices: Sequence[str]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"
