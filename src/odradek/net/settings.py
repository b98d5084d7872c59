"""What a server is told: its listeners, its limits, and the shape of a handler.

The rules of a handler, which the transport relies on:

- It is called on the event loop, one request of a connection at a time, and must not block.
- It calls ``reply`` exactly once, before it returns or later, on the thread of the event loop
  (another thread goes through ``loop.call_soon_threadsafe``). ``reply(None)`` means that this
  request has no response (``acks=0``). The next request of the connection waits for it, so
  responses are in order by construction.
- ``request.body`` is a view into the receive buffer, good until the handler returns. Whoever
  answers later copies what is needed later.
- ``reply`` never runs a handler: it may be called from inside the handler of another
  connection. After the connection is gone it does nothing.
- The buffers of a reply belong to the transport from then on, which may send them long after:
  they must not change.
- Raising closes the connection and no other.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from odradek.protocol.framing import Request
from odradek.protocol.message import Buffer

if TYPE_CHECKING:
    from odradek.net.gate import MakeGate

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
ClientAuth = Literal["none", "requested", "required"]
TlsVersion = Literal["TLSv1.2", "TLSv1.3"]
Pem = Path | str
"""Certificates or a key: a file, or the text itself."""

ANONYMOUS = "User:ANONYMOUS"


@dataclass(slots=True)
class ConnectionInfo:
    """Who is at the other end; one object per connection, the same in every call."""

    listener: str
    security_protocol: SecurityProtocol
    peer_host: str
    peer_port: int
    connection_id: str
    principal: str = ANONYMOUS
    # As the client says in ApiVersions; empty before, or if it does not say.
    client_software_name: str = ""
    client_software_version: str = ""


Reply = Callable[[list[Buffer] | None], None]
Handler = Callable[[Request, ConnectionInfo, Reply], bool | None]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What a TLS listener shows and asks for; ``key`` None: it is where the certificate is."""

    certificate: Pem = field(repr=False)
    key: Pem | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    ca: Pem | None = field(default=None, repr=False)
    client_auth: ClientAuth = "none"
    versions: tuple[TlsVersion, ...] = ("TLSv1.2", "TLSv1.3")
    cipher_suites: tuple[str, ...] = ()  # by the names of the standard; empty: OpenSSL's choice


class TlsSettingsError(ValueError):
    """TLS settings that cannot be used; ``setting`` is the field to change."""

    def __init__(
        self,
        setting: Literal["certificate", "ca", "client_auth", "cipher_suites"],
        message: str,
    ) -> None:
        super().__init__(message)
        self.setting = setting


class Listener(NamedTuple):
    """Where to listen. Port 0 picks a free one; an empty host is every address.

    A listener that speaks SASL has a gate, which each connection has to pass.
    """

    name: str
    host: str
    port: int
    security_protocol: SecurityProtocol = "PLAINTEXT"
    tls: TlsSettings | None = None
    name_of: Callable[[str], str] | None = None
    """From the subject of a client's certificate to a user; None: the subject is the name."""
    make_gate: "MakeGate | None" = None


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a peer may cost us. Kafka's name of a setting stands behind it where there is one."""

    frame_bytes_max: int = 104_857_600  # socket.request.max.bytes
    connections_max: int = 10_000  # max.connections
    connections_per_ip_max: int = 10_000  # max.connections.per.ip
    # max.connections.per.ip.overrides
    connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    backlog_max: int = 1024  # socket.listen.backlog.size; the kernel may allow less

    idle_ms_max: int = 600_000  # connections.max.idle.ms
    # From the first byte of a request to its last. Kafka has no such limit; its clients give up
    # after 30 s (Java) or 60 s (librdkafka), so nobody waits for an answer by then.
    request_read_ms_max: int = 60_000
    # Without the peer taking a single byte of what we have for it.
    write_stall_ms_max: int = 60_000
    handshake_ms_max: int = 10_000
    close_ms_max: int = 5_000  # for the last bytes to leave after a close
    accept_pause_ms: int = 1_000  # after the system had no descriptor left

    # Past this much unsent, no request of the connection is handled and nothing is read from it.
    # One response may go over it: what a client gets at most is 2 * this + one response.
    write_buffer_bytes_max: int = 1024 * 1024
    # Bytes read ahead of a request that is not answered yet, before reading stops.
    read_ahead_bytes_max: int = 64 * 1024
    # Requests of one connection that are handled and wait to be answered. More of them save less:
    # Java's producers have five on the way, librdkafka's with idempotence as well.
    requests_unanswered_max: int = 32
    # Requests of one connection in a row, before others have their turn.
    requests_per_turn_max: int = 128

    @property
    def sweep_ms(self) -> float:
        """How often deadlines are looked at: one timer serves all connections."""
        shortest = min(
            self.idle_ms_max, self.request_read_ms_max, self.write_stall_ms_max, self.close_ms_max
        )
        return min(max(shortest / 8, 5), 1000)


class EventKind(StrEnum):
    """What can happen to a connection.

    One that was opened ends in exactly one of CLOSED, EXPIRED, REJECTED, FAILED. A TLS handshake
    that fails is REJECTED without having been OPENED.
    """

    OPENED = "opened"
    CLOSED = "closed"  # the peer went, or the server stopped
    EXPIRED = "expired"  # idle, or too slow in sending or in taking bytes
    REJECTED = "rejected"  # what it sends is not for us; nothing is wrong here
    FAILED = "failed"  # the handler raised: our bug, the error carries the traceback
    REFUSED = "refused"  # over a limit: never opened
    ACCEPT_FAILED = "accept_failed"  # no descriptors or memory; accepting pauses for a moment


class OnEvent(Protocol):
    """Told of every event, for logs; must be quick and not raise.

    There is an ``error``, with its traceback, where there is something to mend on our side: FAILED
    and ACCEPT_FAILED.
    """

    def __call__(
        self, kind: EventKind, info: ConnectionInfo | None, detail: str, error: Exception | None
    ) -> None: ...


class Counters:
    """Totals since the start of the server, for metrics."""

    __slots__ = ("bytes_in", "bytes_out", "events", "requests")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.requests = 0
        self.events: dict[EventKind, int] = dict.fromkeys(EventKind, 0)

    @property
    def opened(self) -> int:
        return self.events[EventKind.OPENED]

    @property
    def refused(self) -> int:
        return self.events[EventKind.REFUSED]

    @property
    def closed(self) -> int:
        """Connections that ended, for whatever reason."""
        ends = (EventKind.CLOSED, EventKind.EXPIRED, EventKind.REJECTED, EventKind.FAILED)
        return sum(self.events[kind] for kind in ends)
