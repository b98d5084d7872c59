"""What can go wrong between a client and its broker, on order: refusals, delays, lost connections.

A fault waits for requests of one API, of one client or for one topic if told so, and strikes as
often as ``times`` says (None: until it is cleared). It is a context manager, or has ``clear``:

    with broker.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        ...
    assert fault.fired == 2

A request is hit by at most one delay, then by at most one other fault: those that were armed first
come first. While none is armed requests do not come by here at all.

Faults are armed from any thread and strike on the broker's own.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from odradek.broker.dispatch import HANDLERS
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.net.settings import ConnectionInfo, Reply
from odradek.node.node import Node
from odradek.protocol.apis import ALL_APIS, Api
from odradek.protocol.framing import Request, frame_response, open_response
from odradek.protocol.message import Buffer, Message
from odradek.testing.error_responses import (
    TOPIC_FIELDS,
    can_name_topics,
    find_place,
    is_for_the_whole,
    merge,
    overlay,
    topic_arrays,
    topics_in,
)

FAULTS_MAX: Final = 1000
HELD_REQUESTS_MAX: Final = 10_000
_SIZE_BYTES: Final = 4
_FETCH_KEY: Final = 1


class Scope(NamedTuple):
    """Which requests are meant, and how many of them (None: all)."""

    api: Api
    times: int | None
    topic: str | None
    client_id: str | None


class Fault:
    """Something that is to happen to requests. ``fired`` tells how often it has."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.fired = 0
        self.is_cleared = False
        self._on_clear: Callable[[Fault], None] | None = None

    @property
    def is_armed(self) -> bool:
        """Whether it may strike again."""
        times = self.scope.times
        return not self.is_cleared and (times is None or self.fired < times)

    def clear(self) -> None:
        """Let no more requests be hit; those that a delay holds back go on."""
        self.is_cleared = True
        if self._on_clear is not None:
            self._on_clear(self)

    def bind(self, on_clear: "Callable[[Fault], None]") -> None:
        self._on_clear = on_clear

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.clear()

    def __repr__(self) -> str:
        times = self.scope.times
        of = "" if times is None else f" of {times}"
        return f"<{type(self).__name__} of {self.scope.api.name}, fired {self.fired}{of} times>"


class Failure(Fault):
    """The request is answered with an error, and not handled."""

    def __init__(self, scope: Scope, code: ErrorCode) -> None:
        super().__init__(scope)
        self.code = code


class Delay(Fault):
    """The request is handled later. The others of its connection wait behind it."""

    def __init__(self, scope: Scope, seconds: float) -> None:
        super().__init__(scope)
        self.seconds = seconds


class Drop(Fault):
    """The connection is closed instead of an answer: before the request is handled, or after."""

    def __init__(self, scope: Scope, *, after: bool) -> None:
        super().__init__(scope)
        self.after = after


class Faults:
    """The faults of a node, in front of its handlers."""

    def __init__(self, node: Node, loop: asyncio.AbstractEventLoop) -> None:
        self.all: tuple[Fault, ...] = ()  # replaced, never changed: it is read on another thread
        self._node = node
        self._loop = loop
        self._handle = node.broker.dispatch
        self._held: dict[asyncio.TimerHandle, tuple[Fault, Callable[[], None]]] = {}

    def arm(self, fault: Fault) -> None:
        if len(self.all) >= FAULTS_MAX:
            raise ValueError(f"{FAULTS_MAX} faults: clear some")
        fault.bind(self._on_clear)
        self.all = (*self.all, fault)
        self._node.broker.dispatch = self.handle

    def clear(self) -> None:
        for fault in self.all:
            fault.clear()

    def _on_clear(self, fault: Fault) -> None:
        self.all = tuple(each for each in self.all if each is not fault)
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._release, fault)

    def handle(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        if not any(fault.is_armed for fault in self.all):
            self._node.broker.dispatch = self._handle
            # One may have been armed between the two lines above, by another thread.
            if any(fault.is_armed for fault in self.all):
                self._node.broker.dispatch = self.handle
        delay = self._find((Delay,), request)
        if not isinstance(delay, Delay) or len(self._held) >= HELD_REQUESTS_MAX:
            self._strike(request, connection, reply)
            return
        delay.fired += 1
        # The body is a view into the receive buffer, good for now only. A broker stamps offsets
        # into batches where they are, so the copy can be changed too.
        held = request._replace(body=memoryview(bytearray(request.body)))
        self._hold(delay, lambda: self._go_on(held, connection, reply))

    # Delays.

    def _hold(self, delay: Delay, go_on: Callable[[], None]) -> None:
        def due() -> None:
            del self._held[timer]
            go_on()

        timer = self._loop.call_later(delay.seconds, due)
        self._held[timer] = delay, go_on

    def _release(self, fault: Fault) -> None:
        for timer, (delay, go_on) in list(self._held.items()):
            if delay is fault:
                timer.cancel()
                del self._held[timer]
                go_on()

    def _go_on(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        try:
            self._strike(request, connection, reply)
        except Exception as error:  # what a handler raises closes the connection
            self._node.server.close_one(connection, f"{type(error).__name__}: {error}")

    # The others.

    def _strike(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        fault = self._find((Failure, Drop), request)
        if isinstance(fault, Failure):
            self._refuse(fault, request, connection, reply)
        elif isinstance(fault, Drop):
            fault.fired += 1
            if fault.after:
                self._handle(request, connection, lambda _parts: self._hang_up(connection))
            else:
                self._hang_up(connection)
        else:
            self._handle(request, connection, reply)

    def _hang_up(self, connection: ConnectionInfo) -> None:
        # Soon and not now: what was answered before in this turn is still to be sent.
        detail = "dropped by a fault"
        self._loop.call_soon(self._node.server.close_one, connection, detail)

    def _refuse(
        self, fault: Failure, request: Request, connection: ConnectionInfo, reply: Reply
    ) -> None:
        api, version, code = request.api, _version(request), fault.code
        decoded = None if request.is_unknown_api_versions else request.decode()
        if api.name == "Metadata" and not is_for_the_whole(api, version, code):
            self._refuse_topics(fault, request, connection, reply)
            return
        if _is_in_session(decoded) and not is_for_the_whole(api, version, code):
            # It names only what is new. Told that its session is unknown, the client sends a
            # whole request, and that one is hit.
            code, decoded = ErrorCode.FETCH_SESSION_ID_NOT_FOUND, None
        rest = self._take_topic(decoded, fault.scope.topic)
        refused = find_place(api, decoded, version, code)
        if refused is None:
            self._handle(request, connection, reply)
            return
        fault.fired += code is fault.code
        if getattr(decoded, "acks", None) == 0:
            self._hang_up(connection)  # as Kafka does: it is all that such a producer notices
        elif rest is None:
            reply(frame_response(refused, api, version, request.correlation_id))
        else:
            part = request._replace(body=memoryview(bytearray(rest.to_bytes(version))))
            self._handle(part, connection, _changed(request, reply, lambda r: merge(r, refused)))

    def _refuse_topics(
        self, fault: Failure, request: Request, connection: ConnectionInfo, reply: Reply
    ) -> None:
        """Have a Metadata request handled: without brokers in it no client would look further."""
        topics = None if fault.scope.topic is None else {fault.scope.topic}

        def change(response: Message) -> None:
            if fault.is_armed and overlay(response, fault.code, topics):
                fault.fired += 1

        self._handle(request, connection, _changed(request, reply, change))

    def _take_topic(self, request: Message | None, topic: str | None) -> Message | None:
        """Leave only one topic in a request; return a request with the others, if there are any.

        Without a topic, and where topics are deeper down, all of the request is meant.
        """
        arrays = topic_arrays(request) if request is not None and topic is not None else []
        others: dict[str, list[object]] = {}
        for name in arrays:
            parts = getattr(request, name)
            others[name] = [part for part in parts if self._name_of(part) != topic]
            setattr(request, name, [part for part in parts if self._name_of(part) == topic])
        if request is None or not any(others.values()):
            return None
        names: tuple[str, ...] = request.__slots__
        fields: dict[str, Any] = {name: getattr(request, name) for name in names}
        if request.ID == _FETCH_KEY:
            # A fetch with an error in it does not wait; a session would not know all its topics.
            fields.update(max_wait_ms=0, session_id=0, session_epoch=-1)
        return type(request)(**{**fields, **others})

    # Which requests.

    def _find(self, kinds: tuple[type[Fault], ...], request: Request) -> Fault | None:
        for fault in self.all:
            if isinstance(fault, kinds) and fault.is_armed and self._matches(fault, request):
                return fault
        return None

    def _matches(self, fault: Fault, request: Request) -> bool:
        api, version, scope = request.api, request.version, fault.scope
        is_spoken = api.version_min <= version <= api.version_max
        if scope.api is not api or not (is_spoken or request.is_unknown_api_versions):
            return False
        if scope.client_id is not None and scope.client_id != request.client_id:
            return False
        if scope.topic is None or api.name == "Metadata":
            return True  # the topics of Metadata are looked at in the response
        decoded = request.decode()
        return _is_in_session(decoded) or any(
            self._name_of(topic) == scope.topic for topic in topics_in(decoded)
        )

    def _name_of(self, topic: object) -> str | None:
        if isinstance(topic, str):
            return topic
        for field in TOPIC_FIELDS:
            if name := getattr(topic, field, None):
                return str(name)
        topic_id = getattr(topic, "topic_id", ZERO_UUID)
        try:
            return self._node.broker.replicas.topic_name(topic_id)
        except ApiError:
            return None


def find_api(api: str | type[Message]) -> Api:
    """Return the API of a name, or of the class of its requests or responses.

    Raises:
        ValueError: This broker does not speak it.
    """
    name = api if isinstance(api, str) else api.__name__
    name = name.removesuffix("Request").removesuffix("Response")
    for each in ALL_APIS:
        if each.name == name and name in HANDLERS:
            return each
    raise ValueError(f"no API {name} here; there are {', '.join(sorted(HANDLERS))}")


def find_error(error: ErrorCode | str | int) -> ErrorCode:
    """Return the error of a name or a number; ValueError if it is none or no error."""
    try:
        code = ErrorCode[error] if isinstance(error, str) else ErrorCode(error)
    except KeyError:
        raise ValueError(f"no error {error}; their names are those of Kafka's") from None
    if code is ErrorCode.NONE:
        raise ValueError("NONE is no error")
    return code


def make_scope(
    api: str | type[Message], times: int | None, topic: str | None, client_id: str | None
) -> Scope:
    """Return which requests are meant; ValueError if there can be none."""
    found = find_api(api)
    if times is not None and times < 1:
        raise ValueError(f"times={times}: at least 1, or None for always")
    if topic is not None and not can_name_topics(found.request()):
        raise ValueError(f"{found.name} requests name no topics")
    return Scope(found, times, topic, client_id)


def _is_in_session(request: Message | None) -> bool:
    """Whether this is a fetch of a session, which names only partitions that are new in it."""
    is_fetch = request is not None and request.ID == _FETCH_KEY
    return is_fetch and bool(getattr(request, "session_id", 0))


def _version(request: Request) -> int:
    return 0 if request.is_unknown_api_versions else request.version


def _changed(request: Request, reply: Reply, change: Callable[[Message], None]) -> Reply:
    """Return a ``reply`` that changes the response before it is sent."""

    def reply_changed(parts: list[Buffer] | None) -> None:
        if parts is not None:
            frame = memoryview(b"".join(parts))[_SIZE_BYTES:]
            _, body = open_response(frame, request.api, request.version)
            response = request.api.response().decode(body, request.version)
            change(response)
            parts = frame_response(response, request.api, request.version, request.correlation_id)
        reply(parts)

    return reply_changed
