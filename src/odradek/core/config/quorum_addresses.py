"""Where controllers are: ``controller.quorum.voters`` and ``controller.quorum.bootstrap.servers``.

An address is ``host:port``; an IPv6 host is written ``[::1]:9093``, as everywhere in Kafka. A voter
is ``id@host:port``. Kafka takes the last of two voters with one id; here that is refused, because
the quorum would have one member less than its operator believes.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from odradek.core.config.values import ConfigError

VOTERS: Final = "controller.quorum.voters"
BOOTSTRAP_SERVERS: Final = "controller.quorum.bootstrap.servers"
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  # refused, never listened on

_ADDRESS: Final = re.compile(r"\[?([0-9a-zA-Z\-%._:]*)\]?:([0-9]{1,5})")
_PORT_MAX: Final = 65_535
_ID_MAX: Final = 2**31 - 1


class Address(NamedTuple):
    host: str
    port: int


def parse_voters(entries: Sequence[str]) -> dict[int, Address]:
    """Read the static voters: id to address.

    Raises:
        ConfigError: One is malformed, or an id is there twice.
    """
    voters: dict[int, Address] = {}
    for entry in entries:
        node_id, at, place = entry.partition("@")
        address = _parse_address(place)
        is_number = node_id.isascii() and node_id.isdecimal() and int(node_id) <= _ID_MAX
        if not at or not is_number or address is None:
            raise ConfigError(f"{VOTERS}: expected id@host:port, not {entry}", name=VOTERS)
        if int(node_id) in voters:
            raise ConfigError(f"{VOTERS} has the voter {int(node_id)} twice", name=VOTERS)
        voters[int(node_id)] = address
    return voters


def parse_bootstrap_servers(entries: Sequence[str]) -> tuple[Address, ...]:
    """Read the addresses at which to ask who leads the quorum.

    Raises:
        ConfigError: One is malformed.
    """
    return tuple(_parse_server(entry) for entry in entries)


def _parse_server(entry: str) -> Address:
    address = _parse_address(entry)
    if address is None:
        message = f"{BOOTSTRAP_SERVERS}: expected host:port, not {entry}"
        raise ConfigError(message, name=BOOTSTRAP_SERVERS)
    return address


def _parse_address(text: str) -> Address | None:
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[2]) > _PORT_MAX:
        return None
    return Address(match[1], int(match[2]))
