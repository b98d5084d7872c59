"""``sasl.jaas.config`` as in Java: a login module, a flag, options, a semicolon.

    org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b";

Errors never quote the text: there is a password in it.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_CHARACTERS_MAX: Final = 65_536
_ENTRY: Final = re.compile(
    r"\s*([\w.$]+)\s+(?i:required|requisite|sufficient|optional)((?:\s+[\w.$-]+\s*=\s*"
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s"';=]+))*)\s*;\s*""",
    re.DOTALL,
)
_OPTION: Final = re.compile(
    r"""([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s"';=]+))""", re.DOTALL
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "r": "\r", "t": "\t"}


class JaasError(ValueError):
    """A text is not an entry of a JAAS configuration; the message does not quote it."""


class LoginModule(NamedTuple):
    name: str
    """The class, without its package: some vendors have their own copy of Kafka's."""
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"<{self.name} {sorted(self.options)}>"


def parse_jaas(text: str) -> LoginModule:
    """Read one entry.

    Raises:
        JaasError: It is not one.
    """
    match = None if len(text) > _CHARACTERS_MAX else _ENTRY.fullmatch(text)
    if match is None:
        raise JaasError('is not: LoginModule required name="value" name="value";')
    options = {
        found[1]: _value(next(each for each in found.groups()[1:] if each is not None))
        for found in _OPTION.finditer(match[2])
    }
    return LoginModule(match[1].rpartition(".")[2], options)


def _value(quoted: str) -> str:
    return _ESCAPED.sub(lambda each: _ESCAPES.get(each[1], each[1]), quoted)
