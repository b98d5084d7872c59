"""What stands between a new connection and its handler until the peer has authenticated.

A connection of a listener without a gate hands every request to the handler. With one, each frame
is shown to the gate first: it answers the frames of an authentication exchange itself, lets
requests through that are allowed at that moment, and ends connections whose peer cannot prove who
it is.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from odradek.net.settings import ConnectionInfo
from odradek.protocol.message import Buffer


class Verdict(NamedTuple):
    """What becomes of a frame that is not for the handler."""

    reply: list[Buffer] | None
    refusal: str | None = None
    """Why the connection ends after the reply: for the log, not for the peer."""
    delay_ms: int = 0
    """How long the reply and the end wait, which slows down those who guess passwords."""


class Gate(Protocol):
    """One connection's; used on the event loop."""

    @property
    def frame_bytes_max(self) -> int | None:
        """The largest frame that is taken now; None: as large as the server takes any."""
        ...

    def judge(self, frame: memoryview) -> Verdict | None:
        """Look at a frame; None: it is a request for the handler.

        Raises:
            CorruptionError: It is not a request, or none that may come now: hang up.
        """
        ...


MakeGate = Callable[[ConnectionInfo], Gate]
"""Makes the gate of a connection; the gate sets ``principal`` when the peer has authenticated."""
