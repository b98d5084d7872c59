"""Config values: the text people write and what it stands for, read and printed as Java does."""

import re
from enum import Enum, IntEnum
from typing import Final

from odradek.core.errors import OdradekError

ConfigValue = bool | int | float | str | tuple[str, ...]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_COMMA: Final = re.compile(r"\s*,\s*")


class ConfigType(IntEnum):
    """Kafka's numbers, as DescribeConfigs sends them."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from: Kafka's numbers, as DescribeConfigs sends them."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class ConfigResourceType(IntEnum):
    """Whose configs they are: Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class UpdateMode(Enum):
    """How a broker config changes while the broker runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigError(OdradekError):
    """A config that cannot be used; ``origin`` is the file and line, or the option, that set it."""

    def __init__(self, message: str, *, name: str = "", origin: str = "") -> None:
        super().__init__(f"{origin}: {message}" if origin else message)
        self.message = message
        self.name = name
        self.origin = origin


def invalid(name: str, value: object, reason: str) -> ConfigError:
    """Return the refusal in Kafka's words, which clients show to people."""
    return ConfigError(f"Invalid value {value} for configuration {name}: {reason}", name=name)


def parse_value(name: str, kind: ConfigType, text: str) -> ConfigValue:
    """Return the value ``text`` stands for; blanks around it do not count.

    Raises:
        ConfigError: It is none of this type.
    """
    trimmed = text.strip()
    match kind:
        case ConfigType.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
            return _parse_integer(name, kind, text, trimmed)
        case ConfigType.DOUBLE:
            if not _DOUBLE.fullmatch(trimmed):
                raise invalid(name, text, "Not a number of type DOUBLE")
            return float(trimmed.rstrip("dDfF"))
        case ConfigType.LIST:
            # Once is enough: Kafka warns of an element that comes twice, and drops it.
            return tuple(dict.fromkeys(_COMMA.split(trimmed))) if trimmed else ()
        case _:
            return trimmed


_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def _parse_integer(name: str, kind: ConfigType, text: str, trimmed: str) -> int:
    limit = 1 << (_BITS[kind] - 1)
    # The length first: Python takes its time over a million digits.
    if len(trimmed) <= 40 and _INTEGER.fullmatch(trimmed):
        value = int(trimmed)
        if -limit <= value < limit:
            return value
    raise invalid(name, text, f"Not a number of type {kind.name}")


def format_value(value: ConfigValue) -> str:
    """Return the text that DescribeConfigs shows for a value."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _format_double(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _format_double(value: float) -> str:
    """Return what Java prints: ``1.0E10`` where Python would say ``10000000000.0``."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # 2 ms of a start, for numbers that hardly anybody sets

    number = Decimal(repr(value))
    exponent = number.adjusted()
    digits = f"{number.scaleb(-exponent).normalize():f}"
    return f"{digits if '.' in digits else f'{digits}.0'}E{exponent}"
