"""What can be said of SQL without Spark, in no time: does it hang together, and what does it read?

Spark parses it for good before a pipeline starts, and ``validate --plan`` does that too. Here only
mistakes are told that are mistakes for certain: quotes and brackets that do not match, and tables
that are neither in the file nor qualified by a catalog (``catalog.table``).
"""

import re
from collections.abc import Iterator
from typing import Final

_IGNORED: Final = re.compile(
    r"""--[^\n]* | /\*.*?\*/ | '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" """,
    re.VERBOSE | re.DOTALL,
)
# FROM that has nothing to do with tables.
_OTHER_FROM: Final = re.compile(
    r"\b(?:extract|trim|substring|substr|overlay)\s*\([^()]*\bfrom\b|\bdistinct\s+from\b",
    re.IGNORECASE,
)
_WITH: Final = re.compile(
    r"(?:\bwith\s+(?:recursive\s+)?|,\s*)`?(\w+)`?\s*(?:\([^()]*\)\s*)?as\s*\(", re.IGNORECASE
)
_READ: Final = re.compile(
    r"\b(?:from|join)\s+(?:stream\s+)?(?:`([^`]+)`|([A-Za-z_]\w*))(?!\w)(\s*[.(])?", re.IGNORECASE
)
_BEGINS: Final = ("select", "with", "from", "values", "table", "(")
_NO_TABLES: Final = frozenset({"lateral", "unnest", "select", "values"})
_CLOSING: Final = {")": "(", "]": "["}


def find_problem(sql: str) -> str | None:
    """Return what is wrong with a query for certain, if anything is."""
    bare = _IGNORED.sub(" ", sql)
    for quote in ("'", '"'):
        if quote in bare:
            return f"a {quote} is not closed"
    open_brackets: list[str] = []
    for sign in bare:
        if sign in "([":
            open_brackets.append(sign)
        elif sign in _CLOSING and (not open_brackets or open_brackets.pop() != _CLOSING[sign]):
            return f"a {sign!r} closes nothing"
    if open_brackets:
        return f"a {open_brackets[-1]!r} is not closed"
    words = bare.split(None, 1)
    if not words or not bare.strip().lower().startswith(_BEGINS):
        return "must be a query: SELECT …"
    return "has more than one statement" if ";" in bare.strip().rstrip(";") else None


def tables_read(sql: str) -> Iterator[str]:
    """Yield the names that a query reads, without its own WITH, functions and qualified names."""
    bare = _OTHER_FROM.sub(" ", _IGNORED.sub(" ", sql))
    own = {name.lower() for name in _WITH.findall(bare)}
    for quoted, plain, more in _READ.findall(bare):
        name = quoted or plain
        if not more and name.lower() not in own and name.lower() not in _NO_TABLES:
            yield name
