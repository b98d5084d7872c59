"""What every node has, whatever its roles: an event loop, and connections."""

from collections.abc import Iterator
from typing import Final

from odradek.broker.metrics.family import Family, Kind, Sample, counter, gauge
from odradek.core.stalls import Stalls
from odradek.net.server import Server

_SOCKETS: Final = "kafka_server_socket_server_metrics_"


class NodeFamilies:
    def __init__(self, server: Server, stalls: Stalls) -> None:
        self._server = server
        self._stalls = stalls

    def collect(self) -> Iterator[Family]:
        yield from self._loop()
        yield from self._sockets()

    def _loop(self) -> Iterator[Family]:
        stalls = self._stalls
        help_text = "The longest turn of the event loop of late, in ms; 0 if none took 50."
        yield gauge("odradek_loop_stall_ms_max", help_text, stalls.ms_max)
        help_text = "Turns of the event loop that took 50 ms or more."
        yield counter("odradek_loop_stalls", help_text, stalls.count)

    def _sockets(self) -> Iterator[Family]:
        server = self._server
        totals = server.counters
        yield gauge(
            _SOCKETS + "connection_count", "Connections there are.", server.connection_count
        )
        for name, help_text, value in (
            ("connection_creation", "Connections that were opened.", totals.opened),
            ("connection_close", "Connections that ended.", totals.closed),
            ("request", "Requests that were answered.", totals.requests),
            ("incoming_byte", "Bytes received.", totals.bytes_in),
            ("outgoing_byte", "Bytes sent.", totals.bytes_out),
        ):
            yield counter(_SOCKETS + name, help_text, value)
        events = [Sample({"kind": kind.value}, count) for kind, count in totals.events.items()]
        help_text = "What happened to connections; `failed` is a bug of this node."
        yield Family("odradek_connection_events", help_text, Kind.COUNTER, events)
