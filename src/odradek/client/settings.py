"""Settings of clients, in Kafka's names or as Python keywords, checked when the client is made.

``Settings(DEFINITIONS, {"linger.ms": 5}, batch_size=1000)``: dots and underscores are the same,
texts are taken for numbers and booleans as in a properties file, and a name that nobody knows is an
error that says which one was probably meant.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from odradek.client.errors import ConfigurationError

_ADDRESS: Final = re.compile(r"(?:[A-Z_]+://)?(\[[0-9a-fA-F:]+\]|[^:\[\]/]+):(\d+)")
_TRUE: Final = ("true", "1", "yes")
_FALSE: Final = ("false", "0", "no")


class Definition(NamedTuple):
    """One setting: what kind of value it has is what kind its default is of."""

    default: Any
    minimum: int | None = None
    choices: tuple[str, ...] = ()


REQUIRED: Final = ""
SERVERS: Final = "bootstrap.servers"
CONTROLLERS: Final = "bootstrap.controllers"

COMMON: Final[Mapping[str, Definition]] = {
    "bootstrap.servers": Definition(REQUIRED),
    "client.id": Definition("odradek"),
    "request.timeout.ms": Definition(30_000, 1),
    "default.api.timeout.ms": Definition(60_000, 0),
    "socket.connection.setup.timeout.ms": Definition(10_000, 1),
    "reconnect.backoff.ms": Definition(50, 0),
    "reconnect.backoff.max.ms": Definition(1_000, 0),
    "retry.backoff.ms": Definition(100, 0),
    "retry.backoff.max.ms": Definition(1_000, 0),
    "metadata.max.age.ms": Definition(300_000, 0),
    "allow.auto.create.topics": Definition(True),
    "security.protocol": Definition(
        "PLAINTEXT", choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
    ),
    "sasl.mechanism": Definition(""),
    "sasl.username": Definition(""),
    "sasl.password": Definition(""),
    "sasl.jaas.config": Definition(""),
    "sasl.oauthbearer.token": Definition(""),
    "sasl.oauthbearer.token.provider": Definition(None),
    "ssl.truststore.location": Definition(""),
    "ssl.truststore.certificates": Definition(""),
    "ssl.keystore.location": Definition(""),
    "ssl.keystore.certificate.chain": Definition(""),
    "ssl.keystore.key": Definition(""),
    "ssl.key.password": Definition(""),
    "ssl.endpoint.identification.algorithm": Definition("https"),
}


class Settings:
    def __init__(
        self,
        definitions: Mapping[str, Definition],
        given: Mapping[str, Any] | None = None,
        /,
        **keywords: Any,
    ) -> None:
        """Check what was given against what there is.

        Raises:
            ConfigurationError: A name is unknown or given twice, or a value is wrong.
        """
        self._values = {name: each.default for name, each in definitions.items()}
        seen = set()
        for spelled, value in [*(given or {}).items(), *keywords.items()]:
            name = spelled.replace("_", ".")
            if name not in definitions:
                raise ConfigurationError(
                    f"unknown setting {spelled!r}{_nearest(name, definitions)}"
                )
            if name in seen:
                raise ConfigurationError(f"{name} is given twice")
            seen.add(name)
            self._values[name] = _parsed(name, value, definitions[name])
        self.given = frozenset(seen)
        self._check_bootstrap(definitions)

    def _check_bootstrap(self, definitions: Mapping[str, Definition]) -> None:
        if SERVERS not in definitions:
            return
        if {SERVERS, CONTROLLERS} <= self.given:
            raise ConfigurationError(f"{SERVERS} and {CONTROLLERS} cannot both be set: remove one")
        if not {SERVERS, CONTROLLERS} & self.given:
            other = f" (or {CONTROLLERS})" if CONTROLLERS in definitions else ""
            raise ConfigurationError(f"{SERVERS}{other} is missing: host:port,host:port…")

    @property
    def uses_controllers(self) -> bool:
        """Whether the nodes to begin with are controllers (KIP-919), not brokers."""
        return CONTROLLERS in self.given

    @property
    def bootstrap(self) -> str:
        """The name of the setting that has the nodes to begin with."""
        return CONTROLLERS if self.uses_controllers else SERVERS

    def integer(self, name: str) -> int:
        value = self._values[name]
        assert isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        value = self._values[name]
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        value = self._values[name]
        assert isinstance(value, str), name
        return value

    def value(self, name: str) -> Any:
        """Return a setting that is an object of the caller's: a serializer, say."""
        return self._values[name]

    def addresses(self, name: str) -> list[tuple[str, int]]:
        """Return hosts and ports of ``host:port,host:port``.

        Raises:
            ConfigurationError: That is not what it says.
        """
        addresses = []
        for part in filter(None, (each.strip() for each in self.text(name).split(","))):
            match = _ADDRESS.fullmatch(part)
            if match is None or int(match[2]) > 65535:
                raise ConfigurationError(f"{name}: {part!r} is not host:port")
            addresses.append((match[1].strip("[]"), int(match[2])))
        if not addresses:
            raise ConfigurationError(f"{name} names no server")
        return addresses


def _nearest(name: str, definitions: Mapping[str, Definition]) -> str:
    close = get_close_matches(name, definitions, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _parsed(name: str, value: Any, definition: Definition) -> Any:
    kind = type(definition.default)
    if kind is bool:
        return _parsed_flag(name, value)
    if kind is int:
        return _parsed_integer(name, value, definition)
    if kind is str:
        if isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        text = str(value)
        if definition.choices and text not in definition.choices:
            known = ", ".join(definition.choices)
            raise ConfigurationError(f"{name}: {text!r} is not one of {known}")
        return text
    return value


def _parsed_flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in _TRUE + _FALSE:
        raise ConfigurationError(f"{name}: {value!r} is neither true nor false")
    return text in _TRUE


def _parsed_integer(name: str, value: Any, definition: Definition) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"{name}: {value!r} is not a whole number") from error
    if definition.minimum is not None and number < definition.minimum:
        raise ConfigurationError(f"{name}: {number} is less than {definition.minimum}")
    return number


def as_settings(loaded: Mapping[str, Any]) -> Any:
    """Return a mapping from a file, say, as ``settings=`` of any client.

    For type checkers: the names are not there for them to see. The client checks them all the same.
    """
    return dict(loaded)
