"""The way to the active controller, on whichever node leads the metadata quorum.

Each ask goes to the leader as it is known then: to the controller of this process, as the same
message without encoding, or over a lane of the channel's own to the leader's controller listener.

What is tried again, until the deadline of the ask, after a back-off or with a new leader:

- no leader is known, or no connection to it can be made: the request was not sent;
- NOT_CONTROLLER: the controller did nothing; it is not active any more, or not yet;
- the connection broke, or the leader changed, or no answer came: the request may have been carried
  out. It is sent again only where the owner of the channel says so (``repeats_lost``). Kafka's
  brokers do that with all they send. It is right for what may be done twice: registrations,
  heartbeats, AlterPartition. A CreateTopics may then answer TOPIC_ALREADY_EXISTS for its own topic.

After the deadline an ask fails with REQUEST_TIMED_OUT. A controller that does not know the API at
all fails it at once with UNSUPPORTED_VERSION. All other answers are the caller's.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, NamedTuple, Protocol

from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.apis import Api
from odradek.protocol.message import Message, Struct
from odradek.quorum.raft_channel_port import LeaderAddress
from odradek.wire.backoff import Backoff

if TYPE_CHECKING:
    from odradek.quorum.remote_controller import RemoteController
    from odradek.wire.connection import Versions
    from odradek.wire.lane import LaneError


class Caller(NamedTuple):
    """Who asks a controller: a client or a node at its listener, or the broker of the process."""

    api: Api
    version: int
    principal: str
    listener: str
    peer_host: str
    client_id: str | None


class ControllerChannel(Protocol):
    """Asks the active controller; one for each purpose: "heartbeat", "forwarding", ..."""

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        """Send ``request``, and call one of ``then`` and ``failed``, now or later.

        NOT_CONTROLLER and a lost connection lead to another try, until the channel's deadline;
        then ``failed`` gets REQUEST_TIMED_OUT.
        """

    def close(self) -> None:
        """Drop what is under way; nothing is called any more."""


class Leadership(Protocol):
    """What is known of the leader of the quorum; a ``MetadataQuorum`` is one."""

    @property
    def node_id(self) -> int:
        """This node."""

    @property
    def leader_id(self) -> int | None: ...

    def find_leader_address(self) -> LeaderAddress | None:
        """Return where the leader's controller listens."""


LocalController = Callable[[Message, Callable[[Message], None]], None]
"""Hands a message to the controller of this process, which replies once, now or later.

It replies always: with NOT_CONTROLLER if it is not active, or ceases to be.
"""


class ChannelSettings(NamedTuple):
    repeats_lost: bool
    """Whether a request that may have been carried out is sent again."""
    timeout_ms: int
    """How long an ask may take, with all its tries."""
    try_timeout_ms: int = 30_000
    """How long one try may take: ``controller.socket.timeout.ms``."""
    backoff_ms: int = 20
    backoff_max_ms: int = 100
    asks_max: int = 1_000


class _Ask:
    """A request without an answer. A try begins when the one before has failed."""

    __slots__ = ("deadline", "failed", "request", "then")

    def __init__(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
        deadline: float,
    ) -> None:
        self.request = request
        self.then = then
        self.failed = failed
        self.deadline = deadline


class ActiveController:
    """A ``ControllerChannel`` that chooses for each try between the local and the remote one."""

    def __init__(
        self,
        leadership: Leadership,
        make_remote: Callable[[], "RemoteController"],
        settings: ChannelSettings,
        random: Random,
        local: LocalController | None = None,
    ) -> None:
        """``make_remote`` is called once, when another node is first asked: most never are."""
        self._leadership = leadership
        self._make_remote = make_remote
        self._remote: RemoteController | None = None
        self._local = local
        self._settings = settings
        self._backoff = Backoff(settings.backoff_ms, settings.backoff_max_ms, random)
        self._asks: dict[_Ask, None] = {}  # the first has the first deadline
        self._waiting: dict[_Ask, None] = {}  # for the next try, in order
        self._retry: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many asks have no answer yet."""
        return len(self._asks)

    @property
    def versions(self) -> "Versions | None":
        """What the active controller speaks, if it is another node's and that is known."""
        is_local = (
            self._local is not None and self._leadership.leader_id == self._leadership.node_id
        )
        return None if is_local or self._remote is None else self._remote.versions

    def ask(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        if self._is_closed:
            return
        if len(self._asks) >= self._settings.asks_max:
            problem = f"{len(self._asks)} requests wait for the controller already"
            failed(ApiError(ErrorCode.REQUEST_TIMED_OUT, problem))
            return
        ask = _Ask(request, then, failed, loop.time() + self._settings.timeout_ms / 1000)
        self._asks[ask] = None
        if self._timer is None:
            self._timer = loop.call_at(ask.deadline, self._on_deadline)
        if self._waiting:
            self._waiting[ask] = None  # behind those that were first
        else:
            self._try(ask)

    def on_leader_changed(self) -> None:
        """Ask the new leader what the old one did not answer; nothing waits for its back-off."""
        if self._is_closed:
            return
        self._backoff.reset()
        if self._remote is not None:
            self._remote.on_leader_changed()
        self._try_waiting()

    def close(self) -> None:
        """Drop what is under way; nothing is called any more."""
        self._is_closed = True
        for timer in (self._retry, self._timer):
            if timer is not None:
                timer.cancel()
        self._asks.clear()
        self._waiting.clear()
        if self._remote is not None:
            self._remote.close()

    def _try(self, ask: _Ask) -> None:
        leader_id = self._leadership.leader_id
        if leader_id is None:
            self._wait(ask)
            return
        then = partial(self._on_answer, ask)
        if self._local is not None and leader_id == self._leadership.node_id:
            self._local(ask.request, then)
            return
        # Not longer than the caller waits: nothing is sent for a caller who has an error.
        left_ms = int((ask.deadline - asyncio.get_running_loop().time()) * 1000)
        timeout_ms = max(min(left_ms, self._settings.try_timeout_ms), 0)
        failed = partial(self._on_failed, ask)
        if self._remote is None:
            self._remote = self._make_remote()
        self._remote.send(ask.request, then, failed, timeout_ms)

    def _on_answer(self, ask: _Ask, answer: Message) -> None:
        if ask not in self._asks:
            return  # too late, or the channel is closed
        if _is_refused(answer):
            self._wait(ask)
            return
        self._backoff.reset()
        self._end(ask)
        ask.then(answer)

    def _on_failed(self, ask: _Ask, error: "LaneError") -> None:
        if ask not in self._asks:
            return
        if error.is_unsupported:
            self._end(ask)
            ask.failed(ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)))
        elif error.was_sent and not self._settings.repeats_lost:
            self._end(ask)
            problem = f"the controller may have done it, its answer is lost: {error}"
            ask.failed(ApiError(ErrorCode.REQUEST_TIMED_OUT, problem))
        else:
            self._wait(ask)

    # Waiting.

    def _wait(self, ask: _Ask) -> None:
        self._waiting[ask] = None
        if self._retry is None:
            seconds = self._backoff.next_ms() / 1000
            self._retry = asyncio.get_running_loop().call_later(seconds, self._try_waiting)

    def _try_waiting(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        waiting, self._waiting = self._waiting, {}
        for ask in waiting:
            if ask in self._asks:  # else an answer before it closed the channel
                self._try(ask)

    def _on_deadline(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        late = [each for each in self._asks if each.deadline <= loop.time()]
        for ask in late:
            self._end(ask)
        if self._asks:
            self._timer = loop.call_at(next(iter(self._asks)).deadline, self._on_deadline)
        for ask in late:
            problem = f"no answer of an active controller in {self._settings.timeout_ms} ms"
            ask.failed(ApiError(ErrorCode.REQUEST_TIMED_OUT, problem))

    def _end(self, ask: _Ask) -> None:
        del self._asks[ask]
        self._waiting.pop(ask, None)


def _is_refused(answer: Message) -> bool:
    """Whether an answer says NOT_CONTROLLER, at the top or in its parts.

    The first part stands for all: a controller that is not active refuses a request as a whole.
    """
    parts: list[Struct] = [answer]
    while parts:
        part = parts.pop()
        for name in part.__slots__:
            value = getattr(part, name)
            if name == "error_code" and value == ErrorCode.NOT_CONTROLLER:
                return True
            if isinstance(value, list) and value and isinstance(value[0], Struct):
                parts.append(value[0])
    return False
