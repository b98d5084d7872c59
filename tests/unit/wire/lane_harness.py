"""A peer that answers or holds back, on a simulated node, and lanes to it on another."""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import cast

from odradek.core.errors import ErrorCode
from odradek.net.server import ConnectionInfo, Listener, Reply, Server, ServerLimits
from odradek.protocol.apis import api_named
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.message import Buffer, Message
from odradek.testing.simulation import SimNode, World
from odradek.wire.lane import Address, Lane, LaneError, LaneSettings

PORT = 9093
LIMITS = ServerLimits(idle_ms_max=600_000)
ALLOCATE = api_named("AllocateProducerIds")
SETTINGS = LaneSettings("node-1", request_timeout_ms=2_000, connect_timeout_ms=1_000)


def number(value: int) -> AllocateProducerIdsRequest:
    """Return a request that a peer answers with the same number."""
    return AllocateProducerIdsRequest(broker_id=1, broker_epoch=value)


class Peer:
    """A server that knows ApiVersions and AllocateProducerIds."""

    def __init__(self, world: World, name: str = "peer") -> None:
        self.world = world
        self.node = world.nodes.get(name) or world.add_node(name)
        self.knows: dict[int, int] = {18: 4, ALLOCATE.key: 0}
        self.is_holding = False
        self.error = ErrorCode.NONE
        self.garbage: bytes | None = None
        self.held: deque[tuple[Request, int, Reply]] = deque()
        self.asked: list[str] = []
        self.numbers: list[int] = []
        self.server = Server(
            [Listener("CONTROLLER", "", PORT)], self._handle, LIMITS, network=self.node.network
        )
        world.run_until_done(self.node.spawn(self.server.start()), 1)

    def _handle(self, request: Request, info: ConnectionInfo, reply: Reply) -> None:
        self.asked.append(request.api.name)
        if request.api.name == "ApiVersions":
            keys = [ApiVersion(api_key=k, max_version=v) for k, v in self.knows.items()]
            self._reply(request, ApiVersionsResponse(api_keys=keys), reply)
            return
        value = cast("AllocateProducerIdsRequest", request.decode()).broker_epoch
        self.numbers.append(value)
        if self.garbage is not None:
            header = (4 + len(self.garbage)).to_bytes(4) + request.correlation_id.to_bytes(4)
            reply([header, self.garbage])
        elif self.is_holding:
            self.held.append((request, value, reply))
        else:
            self._answer(request, value, reply)

    def _answer(self, request: Request, value: int, reply: Reply) -> None:
        response = AllocateProducerIdsResponse(producer_id_start=value, error_code=self.error)
        self._reply(request, response, reply)

    def _reply(self, request: Request, response: Message, reply: Reply) -> None:
        parts: list[Buffer] = frame_response(
            response, request.api, request.version, request.correlation_id
        )
        reply(parts)

    def release(self) -> None:
        """Answer what was held back."""
        self.is_holding = False
        while self.held:
            self.release_one()

    def release_one(self) -> None:
        request, value, reply = self.held.popleft()
        self._answer(request, value, reply)

    def stop(self) -> None:
        self.world.run_until_done(self.node.spawn(self.server.stop(100)), 5)


@dataclass
class Asking:
    """A lane on a node, and what became of what it was given."""

    world: World
    lane: Lane
    node: SimNode
    answers: list[int] = field(default_factory=list)
    errors: list[tuple[int, LaneError]] = field(default_factory=list)

    def send(self, *values: int, timeout_ms: int | None = None, version_min: int = 0) -> None:
        for value in values:
            self.node.loop.call_soon(self._send, value, timeout_ms, version_min)

    def _send(self, value: int, timeout_ms: int | None, version_min: int) -> None:
        before = self.ended

        def then(answer: Message) -> None:
            self.answers.append(cast("AllocateProducerIdsResponse", answer).producer_id_start)

        def failed(error: LaneError) -> None:
            self.errors.append((value, error))

        self.lane.send(number(value), then, failed, timeout_ms, version_min=version_min)
        assert self.ended == before, "called back before send returned"

    @property
    def ended(self) -> int:
        return len(self.answers) + len(self.errors)

    def until_ended(self, count: int, seconds_max: float = 60) -> None:
        self.world.run_until(lambda: self.ended >= count, seconds_max)

    def failures(self) -> list[tuple[int, str, bool]]:
        return [(value, str(error.failure), error.was_sent) for value, error in self.errors]


class Addresses:
    """Where the peer is; may change."""

    def __init__(self, address: Address | None = ("peer", PORT)) -> None:
        self.address = address
        self.lookups = 0

    def find(self) -> Address | None:
        self.lookups += 1
        return self.address


def asking(
    world: World, addresses: Addresses | None = None, settings: LaneSettings = SETTINGS
) -> Asking:
    node = world.nodes.get("asker") or world.add_node("asker")
    find = (addresses or Addresses()).find
    lane = Lane("numbers", find, settings, Random(world.seed))
    return Asking(world, lane, node)
