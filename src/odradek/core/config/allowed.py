"""What a config may be set to, beyond its type; refusals are worded as Kafka words them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from odradek.core.config.values import ConfigError, ConfigValue, invalid

_RANGE: Final = re.compile(r"(-?[0-9.]+?)\.\.(-?[0-9.]+)?")
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")
_DURATION: Final = re.compile(
    r"by_duration:P(?=.)([0-9]+D)?(T(?=.)([0-9]+H)?([0-9]+M)?([0-9]+(\.[0-9]+)?S)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Allowed:
    text: str
    """For people, as Kafka's documentation writes it."""
    check: Callable[[str, ConfigValue], None]
    """Takes the name and the value; raises ConfigError."""


def parse_allowed(word: str) -> Allowed:
    """Read one word of a definition table; the words are listed in ``definition``."""
    if match := _RANGE.fullmatch(word):
        return _between(_number(match[1]), _number(match[2]) if match[2] else None)
    if word in _SPECIAL:
        return _SPECIAL[word]
    if word.startswith("~"):
        return _one_of_any_case(tuple(word[1:].split("|")))
    return one_of(tuple(word.split("|")))


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _between(low: float, high: float | None) -> Allowed:
    def check(name: str, value: ConfigValue) -> None:
        assert isinstance(value, int | float)
        if value < low:
            raise invalid(name, value, f"Value must be at least {low}")
        if high is not None and value > high:
            raise invalid(name, value, f"Value must be no more than {high}")

    return Allowed(f"[{low},...]" if high is None else f"[{low},...,{high}]", check)


def one_of(choices: tuple[str, ...]) -> Allowed:
    """Allow these; of a list, every element must be one of them."""

    def check(name: str, value: ConfigValue) -> None:
        for element in value if isinstance(value, tuple) else (value,):
            if element not in choices:
                raise invalid(name, element, f"String must be one of: {', '.join(choices)}")

    return Allowed(f"[{', '.join(choices)}]", check)


def _one_of_any_case(choices: tuple[str, ...]) -> Allowed:
    def check(name: str, value: ConfigValue) -> None:
        if str(value).upper() not in choices:
            reason = f"String must be one of (case insensitive): {', '.join(choices)}"
            raise invalid(name, value, reason)

    return Allowed(f"(case insensitive) [{', '.join(choices)}]", check)


def check_elements(name: str, elements: tuple[str, ...]) -> None:
    """Refuse an empty element, which a comma too many makes."""
    if "" in elements:
        raise ConfigError(f"Configuration '{name}' values must not be empty.", name=name)


def _check_not_empty(name: str, value: ConfigValue) -> None:
    if value == ():
        message = (
            f"Configuration '{name}' must not be empty. Valid values include: any non-empty value"
        )
        raise ConfigError(message, name=name)
    if value == "":
        raise invalid(name, value, "String must be non-empty")


def _check_gzip_level(name: str, value: ConfigValue) -> None:
    assert isinstance(value, int)
    if not (1 <= value <= 9 or value == -1):
        raise invalid(name, value, "Value must be between 1 and 9 or equal to -1")


_REPLICAS_TEXT: Final = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


def _check_replicas(name: str, value: ConfigValue) -> None:
    assert isinstance(value, tuple)
    if value != ("*",) and not all(_REPLICA.fullmatch(element) for element in value):
        reason = (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            f"{_REPLICAS_TEXT}"
        )
        raise invalid(name, f"[{', '.join(value)}]", reason)


_OFFSET_RESET_TEXT: Final = "[latest, earliest, by_duration:PnDTnHnMn.nS]"


def _check_offset_reset(name: str, value: ConfigValue) -> None:
    text = str(value)
    if text not in ("latest", "earliest") and not _DURATION.fullmatch(text):
        raise invalid(name, value, f"Value must be one of {_OFFSET_RESET_TEXT}")


_SPECIAL: Final = {
    "not-empty": Allowed("not empty", _check_not_empty),
    "gzip-level": Allowed("[1,...,9] or -1", _check_gzip_level),
    "replicas": Allowed(_REPLICAS_TEXT, _check_replicas),
    "offset-reset": Allowed(_OFFSET_RESET_TEXT, _check_offset_reset),
}
