"""What can be said of SQL without Spark, in no time: does it hang together, and what does it read?

Spark parses it for good before a pipeline starts, and ``validate --plan`` does that too. Here only
mistakes are told that are mistakes for certain: quotes and brackets that do not match, and tables
that are neither in the file nor qualified by a catalog (``catalog.table``). A parser of another
project for Spark's dialect would find more, and would refuse some of what Spark takes: a false
alarm is worse than a mistake that is found a few seconds later.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   \s+ | --(?:\\\n|[^\r\n])* )
    | (?P<comment> /\* )
    | (?P<text>    [rR](?:'[^']*'|"[^"]*") | '(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" )
    | (?P<quoted>  `(?:[^`]|``)*` )
    | (?P<word>    \w+ )
    | (?P<sign>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_SIGN: Final = re.compile(r"/\*|\*/")
_BEGINS: Final = frozenset({"select", "with", "from", "values", "table", "("})
_CLOSING: Final = {")": "(", "]": "["}
# Functions whose arguments have a FROM that has nothing to do with tables.
_FROM_FUNCTIONS: Final = frozenset({"extract", "trim", "substring", "substr", "overlay"})
_NO_TABLES: Final = frozenset({"lateral", "unnest", "select", "values", "from"})


class _Token(NamedTuple):
    kind: str
    text: str

    @property
    def name(self) -> str:
        """What is compared: SQL does not care for case."""
        return self.text.lower()

    @property
    def is_name(self) -> bool:
        return self.kind == "quoted" or (self.kind == "word" and not self.text[0].isdigit())


_END: Final = _Token("end", "")


class _UnclosedError(ValueError):
    """A quote or a comment has no end."""


def find_problem(sql: str) -> str | None:
    """Return what is wrong with a query for certain, if anything is."""
    try:
        tokens = list(_tokens(sql))
    except _UnclosedError as error:
        return f"a {error} is not closed"
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    open_brackets: list[str] = []
    for token in tokens:
        sign = token.text
        if sign in ("(", "["):
            open_brackets.append(sign)
        elif sign in _CLOSING and (not open_brackets or open_brackets.pop() != _CLOSING[sign]):
            return f"a {sign!r} closes nothing"
    if open_brackets:
        return f"a {open_brackets[-1]!r} is not closed"
    if not tokens or tokens[0].name not in _BEGINS:
        return "must be a query: SELECT …"
    return "has more than one statement" if _Token("sign", ";") in tokens else None


def tables_read(sql: str) -> Iterator[str]:
    """Yield the names that a sound query reads, without its own WITH, functions, and catalogs."""
    tokens = [*_tokens(sql), _END, _END]
    own = _own_names(tokens)
    functions: list[str] = []  # what stands before each bracket that is open
    for i, token in enumerate(tokens[:-2]):
        before = tokens[i - 1].name if i else ""
        if token.text == "(":
            functions.append(before)
        elif token.text == ")":
            functions.pop()
        is_argument = bool(functions) and functions[-1] in _FROM_FUNCTIONS
        is_from = token.name == "from" and before != "distinct" and not is_argument
        if (is_from or token.name == "join") and before != ".":
            read, follower = tokens[i + 1], tokens[i + 2]
            name = read.text.strip("`")
            is_alone = read.is_name and follower.text not in (".", "(")
            if is_alone and read.name not in _NO_TABLES and name.lower() not in own:
                yield name


def _own_names(tokens: list[_Token]) -> set[str]:
    """Return names that a query may give to parts of itself: rather too many than too few."""
    if not any(token.name == "with" for token in tokens):
        return set()
    return {
        token.name.strip("`")
        for before, token in pairwise(tokens)
        if token.is_name and before.name in ("with", "recursive", ",")
    }


def _tokens(sql: str) -> Iterator[_Token]:
    """Yield what is neither space nor comment.

    Raises:
        _UnclosedError: It names the sign.
    """
    position = 0
    while position < len(sql):
        match = _TOKEN.match(sql, position)
        assert match is not None, "any sign is a token"
        kind = match.lastgroup or ""
        position = match.end()
        if kind == "comment":
            position = _end_of_comment(sql, position)
        elif kind == "sign" and match[0] in ("'", '"', "`"):
            raise _UnclosedError(match[0])
        elif kind != "space":
            yield _Token(kind, match[0])


def _end_of_comment(sql: str, position: int) -> int:
    """Return where a comment ends, with those that are in it."""
    depth = 1
    for match in _COMMENT_SIGN.finditer(sql, position):
        depth += 1 if match[0] == "/*" else -1
        if depth == 0:
            return match.end()
    raise _UnclosedError("/*")
