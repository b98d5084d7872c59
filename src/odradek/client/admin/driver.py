"""Carries bulk calls to the brokers that can answer them, again and again until a deadline.

Each round looks for the broker of every item that is still open, asks each broker once for all of
its items, and keeps for the next round what failed in a way that may pass: a coordinator that
moved, a leader that is not known yet, a connection that broke. A call that may or may not have been
carried out is repeated, so an answer can be about its own first try: TOPIC_ALREADY_EXISTS after a
break.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from odradek.client.admin.results import Result, Results
from odradek.client.cluster import Cluster
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError, UnsupportedError
from odradek.core.errors import ApiError, ErrorCode

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

Places: TypeAlias = Mapping[K, int | KafkaError]
"""The broker that can answer for an item, or why there is none."""
Route: TypeAlias = Callable[[Sequence[K]], Awaitable[Places[K]]]
Ask: TypeAlias = Callable[[int, Sequence[K]], Awaitable[Mapping[K, V | KafkaError]]]

_MISSING: Final = object()
_NOT_BY_CONTROLLERS: Final = (
    "This Admin API is not yet supported when communicating directly with the controller quorum."
)
_NOTHING_FINAL: Final[frozenset[ErrorCode]] = frozenset()


def refusal(code: int, message: str | None = None, *, about: object = "") -> BrokerError | None:
    """Return the error that a code of a response stands for, or None."""
    return BrokerError(code, message, about=str(about)) if code else None


class Driver:
    """Runs calls against a cluster; what all operations of an Admin share."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def request_timeout_ms(self) -> int:
        """How long a broker may take over a request that waits for something."""
        return self.cluster.settings.integer("request.timeout.ms")

    async def bulk(
        self,
        keys: Iterable[K],
        route: Route[K],
        ask: Ask[K, V],
        *,
        timeout_ms: float | None,
        final: frozenset[ErrorCode] = _NOTHING_FINAL,
        by_controllers: bool = False,
        keys_max: int | None = None,
    ) -> Results[K, V]:
        """Return a result for each key; codes in ``final`` are answers, though retriable.

        ``keys_max`` is how many a broker takes in one request: more go in several, one by one.
        ``by_controllers`` if they answer it as well when they are asked directly.
        """
        if self.cluster.uses_controllers and not by_controllers:
            refused = BrokerError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, _NOT_BY_CONTROLLERS)
            return Results((key, Result(error=refused)) for key in keys)
        if timeout_ms is None:
            timeout_ms = self.cluster.settings.integer("default.api.timeout.ms")
        return await _Bulk(self.cluster, keys, route, ask, final, keys_max).run(timeout_ms)

    async def single(
        self,
        ask: Callable[[int], Awaitable[T]],
        *,
        timeout_ms: float | None,
        route: Route[str] | None = None,
        final: frozenset[ErrorCode] = _NOTHING_FINAL,
        about: str = "the cluster",
        by_controllers: bool = False,
    ) -> T:
        """Return one answer, from any broker or the one that ``route`` gives.

        ``by_controllers`` if they answer it as well when they are asked directly.

        Raises:
            KafkaError: It was refused, or not given in time.
        """

        async def ask_one(node_id: int, keys: Sequence[str]) -> Mapping[str, T | KafkaError]:
            return {keys[0]: await ask(node_id)}

        chosen = route or self.to_any
        results: Results[str, T] = await self.bulk(
            [about],
            chosen,
            ask_one,
            timeout_ms=timeout_ms,
            final=final,
            by_controllers=by_controllers,
        )
        return results[about].unwrap()

    async def every_broker(
        self,
        ask: Callable[[int], Awaitable[T]],
        *,
        timeout_ms: float | None,
        brokers: Collection[int] | None = None,
    ) -> Results[int, T]:
        """Return the answer of each of ``brokers``, or of all there are."""

        async def ask_one(node_id: int, keys: Sequence[int]) -> Mapping[int, T | KafkaError]:
            return {keys[0]: await ask(node_id)}

        if brokers is None:
            brokers = await self.single(self._known_brokers, timeout_ms=timeout_ms)
        return await self.bulk(brokers, to_itself, ask_one, timeout_ms=timeout_ms)

    async def _known_brokers(self, _: int) -> list[int]:
        await self.cluster.refresh()
        return sorted(self.cluster.metadata.brokers)

    # Routes that fit any kind of item.

    async def to_any(self, keys: Sequence[Any]) -> Places[Any]:
        if self.cluster.uses_controllers:  # of which only the active one knows all
            return await self.to_controller(keys)
        return dict.fromkeys(keys, self.cluster.any_node())

    async def to_controller(self, keys: Sequence[Any]) -> Places[Any]:
        metadata = self.cluster.metadata
        if metadata.controller_id not in metadata.brokers:
            await self.cluster.refresh()
        if metadata.controller_id not in metadata.brokers:
            return dict.fromkeys(keys, BrokerError(ErrorCode.NOT_CONTROLLER, "there is none now"))
        return dict.fromkeys(keys, metadata.controller_id)


async def to_itself(keys: Sequence[int]) -> Places[int]:
    """Route for items that are brokers."""
    return {key: key for key in keys}


class _Bulk(Generic[K, V]):
    """One call in the making."""

    def __init__(
        self,
        cluster: Cluster,
        keys: Iterable[K],
        route: Route[K],
        ask: Ask[K, V],
        final: frozenset[ErrorCode],
        keys_max: int | None,
    ) -> None:
        self._cluster = cluster
        self._keys = list(dict.fromkeys(keys))
        self._route = route
        self._ask = ask
        self._final = final
        self._keys_max = keys_max
        self._open: dict[K, KafkaError | None] = dict.fromkeys(self._keys)
        self._done: dict[K, Result[V]] = {}

    async def run(self, timeout_ms: float) -> Results[K, V]:
        backoff = self._cluster.backoff()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while self._open:
                    await self._round()
                    if self._open:
                        await asyncio.sleep(backoff.next_ms() / 1000)
        except TimeoutError:
            self._give_up(timeout_ms)
        return Results((key, self._done[key]) for key in self._keys)

    async def _round(self) -> None:
        try:
            if any(map(self._calls_for_refresh, self._open.values())):
                await self._cluster.refresh()
            places = await self._route(list(self._open))
        except (KafkaError, ApiError) as error:
            self._settle_all(list(self._open), error)
            return
        by_node: dict[int, list[K]] = {}
        for key in list(self._open):
            place = places[key]
            if isinstance(place, KafkaError):
                self._settle(key, place)
            else:
                by_node.setdefault(place, []).append(key)
        await asyncio.gather(*(self._ask_node(node_id, keys) for node_id, keys in by_node.items()))

    async def _ask_node(self, node_id: int, keys: list[K]) -> None:
        size = self._keys_max or len(keys)
        for start in range(0, len(keys), size):
            await self._ask_once(node_id, keys[start : start + size])

    async def _ask_once(self, node_id: int, keys: list[K]) -> None:
        try:
            answers = await self._ask(node_id, keys)
        except (KafkaError, ApiError) as error:
            self._settle_all(keys, error)
            return
        for key in keys:
            self._settle(key, answers.get(key, _MISSING))

    def _settle_all(self, keys: Iterable[K], error: KafkaError | ApiError) -> None:
        if isinstance(error, ApiError):
            # The encoder's: a field is set that the broker's version of the request does not have.
            error = UnsupportedError(f"the broker is too old for this: {error}")
        for key in keys:
            self._settle(key, error)

    def _settle(self, key: K, answer: Any) -> None:
        if answer is _MISSING:
            answer = KafkaError(f"the broker's answer says nothing about {key}")
        if not isinstance(answer, KafkaError):
            self._done[key] = Result(answer)
        elif answer.retriable and getattr(answer, "code", None) not in self._final:
            self._open[key] = answer
            return
        else:
            self._done[key] = Result(error=answer)
        del self._open[key]

    def _calls_for_refresh(self, error: KafkaError | None) -> bool:
        """Whether nodes may have changed: one was not there, or is not what it was."""
        if error is None:
            return False
        if not isinstance(error, BrokerError) or error.code is ErrorCode.NOT_CONTROLLER:
            return True
        # Controllers say so of the metadata log.
        return self._cluster.uses_controllers and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _give_up(self, timeout_ms: float) -> None:
        for key, last in self._open.items():
            why = f": {last}" if last is not None else ""
            error = KafkaTimeoutError(f"{key}: gave up after {timeout_ms:.0f} ms{why}")
            error.__cause__ = last
            self._done[key] = Result(error=error)
