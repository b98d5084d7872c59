"""Our server and our client's connection, as they are, on a simulated network."""

from collections.abc import Iterator

import pytest

from odradek.client.errors import ConnectionLostError, KafkaTimeoutError
from odradek.net.server import ConnectionInfo, EventKind, Listener, Reply, Server, ServerLimits
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.testing.simulation import SimNode, World
from odradek.wire.connection import Connection

PORT = 9092
LIMITS = ServerLimits(idle_ms_max=60_000)


class Setting:
    """A server on one node and a node for its clients."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.broker, self.client = world.add_node("broker"), world.add_node("client")
        self.events: list[tuple[EventKind, str]] = []
        self.server = self.serve()

    def serve(self) -> Server:
        def on_event(
            kind: EventKind, info: ConnectionInfo | None, detail: str, error: Exception | None
        ) -> None:
            self.events.append((kind, detail))
            self.world.note("broker", f"{kind} {info and info.connection_id} {detail}")
            if error is not None:
                self.world.fail("broker", detail, error)

        server = Server(
            [Listener("PLAINTEXT", "", PORT)],
            answer,
            LIMITS,
            on_event=on_event,
            network=self.broker.network,
        )
        self.world.run_until_done(self.broker.spawn(server.start()), 1)
        return server

    def connect(self, timeout_ms: int = 10_000) -> Connection:
        opening = Connection.open("broker", PORT, client_id="c", timeout_ms=timeout_ms)
        return self.world.run_until_done(self.client.spawn(opening), 60)

    def ask(self, connection: Connection, timeout_ms: float = 30_000) -> ApiVersionsResponse:
        asking = connection.ask(ApiVersionsRequest(), ApiVersionsResponse, timeout_ms=timeout_ms)
        return self.world.run_until_done(self.client.spawn(asking), 60)


def answer(request: Request, info: ConnectionInfo, reply: Reply) -> None:
    keys = [ApiVersion(api_key=18, min_version=0, max_version=4)]
    response = ApiVersionsResponse(api_keys=keys, throttle_time_ms=42)
    reply(frame_response(response, request.api, request.version, request.correlation_id))


@pytest.fixture
def setting() -> Iterator[Setting]:
    with World(11, trace_lines_max=1000) as world:
        yield Setting(world)


def test_a_client_asks_and_a_server_answers(setting: Setting) -> None:
    connection = setting.connect()
    assert setting.ask(connection).throttle_time_ms == 42
    assert setting.server.connection_count == 1
    assert setting.server.endpoints == {"PLAINTEXT": ("", PORT)}
    connection.close()
    setting.world.run_until(lambda: setting.server.connection_count == 0, 1)
    assert setting.events == [(EventKind.OPENED, ""), (EventKind.CLOSED, "by the peer")]
    assert setting.world.now < 1


def test_deadlines_of_a_server_pass_in_virtual_time(setting: Setting) -> None:
    connection = setting.connect()
    setting.world.run_until(lambda: not connection.is_open, 70)
    assert setting.world.now > 60
    assert setting.events[-1][0] == EventKind.EXPIRED


def test_a_server_that_stops_frees_its_port(setting: Setting) -> None:
    connection = setting.connect()
    setting.world.run_until_done(setting.broker.spawn(setting.server.stop(1000)), 5)
    setting.world.run_until(lambda: not connection.is_open, 1)
    with pytest.raises(ConnectionLostError, match="refused"):
        setting.connect()
    setting.server = setting.serve()
    setting.connect()


def test_a_request_into_a_cut_times_out(setting: Setting) -> None:
    connection = setting.connect()
    setting.world.network.cut("client", "broker")
    with pytest.raises(KafkaTimeoutError):
        setting.ask(connection, timeout_ms=5000)
    with pytest.raises(ConnectionLostError, match="no answer"):
        setting.connect()
    setting.world.network.heal_all()
    assert setting.ask(setting.connect()).throttle_time_ms == 42


def test_a_reset_fails_who_waits(setting: Setting) -> None:
    connection = setting.connect()
    asking = setting.client.spawn(connection.ask(ApiVersionsRequest(), ApiVersionsResponse))
    setting.world.run_for(0.0001)
    setting.world.network.reset("client", "broker")
    setting.world.run_until(asking.done, 1)
    assert isinstance(asking.exception(), ConnectionLostError)
    setting.world.run_until(lambda: setting.server.connection_count == 0, 1)


def test_a_broker_that_crashed_is_noticed_by_time_alone(setting: Setting) -> None:
    connection = setting.connect()
    setting.broker.crash()
    with pytest.raises(KafkaTimeoutError):
        setting.ask(connection, timeout_ms=5000)
    setting.broker.start()
    setting.server = setting.serve()
    assert setting.ask(setting.connect()).throttle_time_ms == 42


def test_a_broker_that_was_paused_answers_later(setting: Setting) -> None:
    connection = setting.connect()
    setting.broker.pause()
    setting.world.call_later(20, setting.broker.resume)
    assert setting.ask(connection).throttle_time_ms == 42
    assert setting.world.now > 20


def test_a_client_that_crashed_is_dropped_when_it_is_idle(setting: Setting) -> None:
    setting.connect()
    setting.client.crash()
    setting.world.run_for(50)
    assert setting.server.connection_count == 1
    setting.world.run_for(30)
    assert setting.server.connection_count == 0


def test_many_clients_at_once(setting: Setting) -> None:
    async def talk(node: SimNode) -> int:
        connection = await Connection.open("broker", PORT, client_id=node.name)
        for _ in range(20):
            await connection.ask(ApiVersionsRequest(), ApiVersionsResponse)
        connection.close()
        return 20

    nodes = [setting.world.add_node(f"client-{number}") for number in range(10)]
    tasks = [node.spawn(talk(node)) for node in nodes]
    setting.world.run_until(lambda: all(task.done() for task in tasks), 60)
    assert sum(task.result() for task in tasks) == 200
    assert setting.server.counters.requests == 210
