"""Listeners: ``PLAINTEXT://host:9092`` and what each name speaks.

A listener has a name of its own; ``listener.security.protocol.map`` says which protocol it speaks.
Names are the same in any case, and upper case here.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from enum import StrEnum
from ipaddress import ip_address
from typing import Final, NamedTuple

from odradek.core.config.quorum_addresses import ANY_ADDRESS
from odradek.core.config.values import ConfigError, invalid

_LISTENER: Final = re.compile(r"(.+)://\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]+)")
_PORT_MAX: Final = 65_535


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def number(self) -> int:
        """Kafka's, as a broker registers it."""
        return tuple(SecurityProtocol).index(self)

    @property
    def has_tls(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def has_sasl(self) -> bool:
        return self.value.startswith("SASL")


class Listener(NamedTuple):
    name: str
    host: str
    """Empty: every interface; or, where it is advertised, this machine's own name."""
    port: int
    """0: any free one."""


def parse_listeners(name: str, entries: Sequence[str]) -> tuple[Listener, ...]:
    """Read the elements of ``listeners`` or ``advertised.listeners``.

    Raises:
        ConfigError: One is malformed, or two have the same name.
    """
    listeners = tuple(_parse_listener(name, entry) for entry in entries)
    if len({listener.name for listener in listeners}) != len(listeners):
        reason = "each listener must have a different name"
        raise invalid(name, ",".join(entries), reason)
    return listeners


def _parse_listener(name: str, entry: str) -> Listener:
    match = _LISTENER.fullmatch(entry)
    if match is None:
        raise invalid(name, entry, "expected NAME://host:port, such as PLAINTEXT://localhost:9092")
    port = int(match[3]) if len(match[3]) <= 5 else _PORT_MAX + 1
    if port > _PORT_MAX:
        raise invalid(name, entry, f"the port must be no more than {_PORT_MAX}")
    return Listener(match[1].upper(), match[2], port)


def advertised_controllers(
    names: Sequence[str],
    advertised: Sequence[Listener],
    listeners: Sequence[Listener],
    own_address: tuple[str, int] | None,
) -> tuple[Listener, ...]:
    """Return where other nodes find this node's controller, in the order of ``names``.

    Without an entry in ``advertised.listeners`` it is the listener itself. If that one is open on
    every interface and is the first, ``controller.quorum.voters`` knows the address better.
    """
    found = []
    for name in names:
        said = next((each for each in advertised if each.name == name), None)
        own = next((each for each in listeners if each.name == name), None)
        if said is not None:
            found.append(said)
        elif own is not None and own.host in ("", ANY_ADDRESS):
            is_first = name == names[0]
            host, port = own_address if own_address and is_first else ("", own.port)
            found.append(Listener(name, host, port))
        elif own is not None:
            found.append(own)
    return tuple(found)


def check_ports_differ(name: str, listeners: Sequence[Listener]) -> None:
    """Refuse two listeners on one port, unless one is on IPv4 and the other on IPv6."""
    by_port: dict[int, list[Listener]] = defaultdict(list)
    for listener in listeners:
        if listener.port:
            by_port[listener.port].append(listener)
    for port, sharing in by_port.items():
        versions = [_ip_version(listener.host) for listener in sharing]
        if len(sharing) > 1 and sorted(versions) != [4, 6]:
            names = ", ".join(listener.name for listener in sharing)
            reason = f"{names} share it, which takes one on IPv4 and one on IPv6"
            raise ConfigError(f"{name} uses port {port} twice: {reason}", name=name)


def _ip_version(host: str) -> int:
    try:
        return ip_address(host).version
    except ValueError:
        return 0


def parse_protocol_map(name: str, text: str) -> dict[str, SecurityProtocol]:
    """Read ``NAME:PROTOCOL,…``.

    Raises:
        ConfigError: An entry is malformed, or names an unknown protocol.
    """
    protocols: dict[str, SecurityProtocol] = {}
    for entry in text.split(","):
        listener, colon, protocol = entry.strip().partition(":")
        if not colon or not listener:
            raise invalid(name, text, "expected NAME:PROTOCOL, separated by commas")
        try:
            protocols[listener.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            known = ", ".join(SecurityProtocol)
            raise invalid(name, text, f"the protocol must be one of: {known}") from None
    return protocols


def complete_protocol_map(
    protocols: Mapping[str, SecurityProtocol],
    controllers: Sequence[str],
    listeners: Sequence[Listener],
) -> dict[str, SecurityProtocol]:
    """Let controller listeners speak PLAINTEXT where nobody said anything about protocols.

    Not where a listener is named after TLS or SASL: whoever set that up must not get an open
    controller by forgetting a line.
    """
    secured = set(SecurityProtocol) - {SecurityProtocol.PLAINTEXT}
    names = {*controllers, *(listener.name for listener in listeners)}
    if names & secured:
        return dict(protocols)
    return {**dict.fromkeys(controllers, SecurityProtocol.PLAINTEXT), **protocols}
