"""What all connections of a server share: handler, limits, totals, a coarse clock, who is there.

The clock is the loop's, read once per sweep: a connection stamps what happens to it with a plain
attribute, not a call. Stamps are therefore up to one sweep old, and deadlines allow for it: they
are never early and at most two sweeps late.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from odradek.net.settings import (
    ConnectionInfo,
    Counters,
    EventKind,
    Handler,
    OnEvent,
    ServerLimits,
)


class Member(Protocol):
    """A connection, as far as a hub and a server know it."""

    info: ConnectionInfo

    def stop(self) -> None: ...
    def abort(self, detail: str) -> None: ...
    def fail(self, error: Exception) -> None: ...
    def check_deadlines(self) -> None: ...


class Hub:
    """Shared by the connections of one server; ``now_ms`` moves when the server sweeps."""

    __slots__ = (
        "_count_by_host",
        "_on_event",
        "_vacant",
        "call_later",
        "call_soon",
        "counters",
        "handler",
        "limits",
        "members",
        "now_ms",
        "sweep_ms",
    )

    def __init__(
        self,
        handler: Handler,
        limits: ServerLimits,
        on_event: OnEvent,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self.handler = handler
        self.limits = limits
        self.sweep_ms = limits.sweep_ms
        self.counters = Counters()
        self.call_soon = call_soon
        self.call_later = call_later
        self.now_ms = 0.0
        # Admitted and not gone, in a handshake or open. A dict for its order: a simulation must
        # sweep and drop them in the same order every time, and a set goes by addresses in memory.
        self.members: dict[Member, None] = {}
        self._count_by_host: Counter[str] = Counter()
        self._vacant = asyncio.Event()
        self._vacant.set()
        self._on_event = on_event

    def find_refusal(self, peer_host: str) -> str | None:
        """Say why one more connection from this host is over a limit, or None if it is not."""
        limits = self.limits
        if len(self.members) >= limits.connections_max:
            return f"{len(self.members)} connections, the limit is {limits.connections_max}"
        host_max = limits.connections_per_ip_overrides.get(peer_host, limits.connections_per_ip_max)
        if self._count_by_host[peer_host] >= host_max:
            return f"{host_max} connections from {peer_host}, the limit for one address"
        return None

    def admit(self, member: Member) -> None:
        assert member not in self.members
        self.members[member] = None
        self._count_by_host[member.info.peer_host] += 1
        self._vacant.clear()

    def release(self, member: Member) -> None:
        """Give the place of a connection back; more than once is the same as once."""
        if member not in self.members:
            return
        del self.members[member]
        host = member.info.peer_host
        self._count_by_host[host] -= 1
        if not self._count_by_host[host]:
            del self._count_by_host[host]  # addresses are many, and come from outside
        if not self.members:
            self._vacant.set()

    async def wait_until_vacant(self) -> None:
        await self._vacant.wait()

    def emit(
        self,
        kind: EventKind,
        info: ConnectionInfo | None,
        detail: str = "",
        error: Exception | None = None,
    ) -> None:
        self.counters.events[kind] += 1
        self._on_event(kind, info, detail, error)
