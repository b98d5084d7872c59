"""A simulated network keeps TCP's promises, and breaks what TCP breaks."""

import asyncio
from collections.abc import Iterator
from random import Random

import pytest

from odradek.testing.simulation import SimNode, World
from odradek.testing.simulation.transport import WINDOW_BYTES_MAX

PORT = 9


class Recorder(asyncio.Protocol):
    """Notes what happens; answers nothing."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.data = b""
        self.transport: asyncio.Transport
        self.error: Exception | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.log.append("made")

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> None:
        self.log.append("eof")

    def pause_writing(self) -> None:
        self.log.append("pause")

    def resume_writing(self) -> None:
        self.log.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.log.append("lost")


class Pair:
    """A client on node a and its server on node b."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.a, self.b = world.add_node("a"), world.add_node("b")
        self.servers: list[Recorder] = []
        world.run_until_done(self.b.spawn(self.serve()), 1)
        self.client = world.run_until_done(self.a.spawn(connect()), 1)
        world.run_until(lambda: bool(self.servers), 1)
        self.server = self.servers[0]

    async def serve(self) -> None:
        def make() -> Recorder:
            self.servers.append(Recorder())
            return self.servers[-1]

        await asyncio.get_running_loop().create_server(make, "b", PORT)


async def connect(host: str = "b", port: int = PORT) -> Recorder:
    _, protocol = await asyncio.get_running_loop().create_connection(Recorder, host, port)
    return protocol


@pytest.fixture
def pair() -> Iterator[Pair]:
    with World(7, trace_lines_max=1000) as world:
        yield Pair(world)


def test_bytes_arrive_whole_and_in_order_however_they_are_split(pair: Pair) -> None:
    pair.world.network.link("a", "b").split_chance = 0.9
    sent = Random(1).randbytes(300_000)
    for start in range(0, len(sent), 1000):
        part = memoryview(bytearray(sent[start : start + 1000]))
        pair.client.transport.writelines([part[:10], b"", part[10:]])
        part[:] = bytes(len(part))  # what was written was taken
    pair.client.transport.close()
    pair.world.run_until(lambda: "lost" in pair.server.log, 60)
    assert pair.server.data == sent
    assert pair.server.log == ["made", "eof", "lost"]
    assert pair.client.log[-1] == "lost"
    assert pair.server.error is None
    assert pair.client.error is None


def test_each_end_knows_the_other(pair: Pair) -> None:
    client, server = pair.client.transport, pair.server.transport
    assert client.get_extra_info("peername") == (pair.b.address, PORT)
    assert client.get_extra_info("sockname") == server.get_extra_info("peername")
    assert server.get_extra_info("peername")[0] == pair.a.address
    assert client.get_extra_info("socket") is None


def test_a_peer_that_does_not_read_stops_the_writer(pair: Pair) -> None:
    pair.server.transport.pause_reading()
    sent = bytes(2 * WINDOW_BYTES_MAX)
    pair.client.transport.write(sent)
    assert pair.client.log == ["made", "pause"]
    pair.world.run_for(60)
    assert pair.client.transport.get_write_buffer_size() == len(sent) - WINDOW_BYTES_MAX
    pair.server.transport.resume_reading()
    pair.world.run_until(lambda: len(pair.server.data) == len(sent), 60)
    assert pair.client.log == ["made", "pause", "resume"]
    pair.client.transport.write(sent)
    pair.world.run_until(lambda: len(pair.server.data) == 2 * len(sent), 60)


def test_a_close_sends_what_was_written_and_an_abort_does_not(pair: Pair) -> None:
    sent = bytes(3 * WINDOW_BYTES_MAX)
    pair.client.transport.write(sent)
    pair.client.transport.close()
    pair.world.run_until(lambda: "lost" in pair.server.log, 60)
    assert len(pair.server.data) == len(sent)
    second = pair.world.run_until_done(pair.a.spawn(connect()), 1)
    second.transport.write(sent)
    second.transport.abort()
    pair.world.run_until(lambda: "lost" in pair.servers[1].log, 60)
    assert len(pair.servers[1].data) == WINDOW_BYTES_MAX


def test_a_slow_link_takes_its_time(pair: Pair) -> None:
    pair.world.network.link("a", "b").bytes_per_second = 1000
    begun = pair.world.now
    pair.client.transport.write(bytes(10_000))
    pair.world.run_until(lambda: len(pair.server.data) == 10_000, 60)
    assert 10 <= pair.world.now - begun < 10.1


def test_a_cut_holds_bytes_back_and_loses_none(pair: Pair) -> None:
    pair.world.network.cut("a", "b")
    pair.client.transport.write(b"held")
    pair.server.transport.write(b"this too")
    pair.world.run_for(600)
    assert pair.server.data == b""
    assert pair.client.data == b""
    pair.world.network.heal("a", "b")
    pair.client.transport.write(b" back")
    pair.world.run_until(lambda: pair.server.data == b"held back", 1)
    pair.world.run_until(lambda: pair.client.data == b"this too", 1)


def test_a_cut_of_one_way_leaves_the_other(pair: Pair) -> None:
    pair.world.network.cut("a", "b", both_ways=False)
    pair.client.transport.write(b"held")
    pair.server.transport.write(b"through")
    pair.world.run_until(lambda: pair.client.data == b"through", 1)
    pair.world.run_for(60)
    assert pair.server.data == b""
    pair.world.network.heal_all()
    pair.world.run_until(lambda: pair.server.data == b"held", 1)


def test_a_reset_is_seen_at_both_ends(pair: Pair) -> None:
    pair.world.network.reset("a", "b")
    pair.world.run_for(1)
    for end in (pair.client, pair.server):
        assert end.log == ["made", "lost"]
        assert isinstance(end.error, ConnectionResetError)
        assert end.transport.is_closing()


def test_a_connection_is_refused_where_nobody_listens(pair: Pair) -> None:
    for host, port in (("b", PORT + 1), ("localhost", PORT)):
        task = pair.a.spawn(connect(host, port))
        pair.world.run_until(task.done, 1)
        assert isinstance(task.exception(), ConnectionRefusedError)
    unknown = pair.a.spawn(connect("nowhere"))
    pair.world.run_until(unknown.done, 1)
    assert isinstance(unknown.exception(), OSError)


@pytest.mark.parametrize("is_down", [False, True])
def test_a_connection_attempt_hangs_where_nobody_answers(pair: Pair, is_down: bool) -> None:
    if is_down:
        pair.b.crash()
    else:
        pair.world.network.cut("a", "b")
    task = pair.a.spawn(connect())
    impatient = pair.a.spawn(asyncio.wait_for(connect(), 3))
    pair.world.run_for(100)
    assert isinstance(impatient.exception(), TimeoutError)
    assert not task.done()
    pair.world.run_for(100)
    assert isinstance(task.exception(), TimeoutError)
    pair.world.network.heal_all()
    pair.world.run_for(1)
    assert len(pair.servers) == 1  # attempts that were given up do not come in afterwards


def test_a_crash_says_nothing_until_the_machine_is_back(pair: Pair) -> None:
    pair.server.transport.write(b"under way")
    pair.b.crash()
    pair.world.run_for(1)
    assert pair.client.data == b"under way"
    pair.client.transport.write(b"anybody?")
    pair.world.run_for(3600)
    assert pair.client.log == ["made"]  # half open
    assert pair.server.log == ["made"]
    pair.b.start()
    pair.world.run_until(lambda: "lost" in pair.client.log, 1)
    assert isinstance(pair.client.error, ConnectionResetError)
    assert pair.server.data == b""


def test_a_half_open_connection_is_reset_when_it_is_used_again(pair: Pair) -> None:
    pair.b.crash()
    pair.b.start()
    pair.world.run_for(3600)
    assert pair.client.log == ["made"]
    pair.client.transport.write(b"anybody?")
    pair.world.run_until(lambda: "lost" in pair.client.log, 1)


def test_a_kernel_closes_for_a_process_that_was_killed(pair: Pair) -> None:
    pair.b.crash(says_goodbye=True)
    pair.world.run_until(lambda: "lost" in pair.client.log, 1)
    assert pair.client.log == ["made", "eof", "lost"]
    refused = pair.a.spawn(connect())
    pair.world.run_until(refused.done, 1)
    assert isinstance(refused.exception(), ConnectionRefusedError)


def test_the_kernel_of_a_paused_node_takes_connections_and_bytes(pair: Pair) -> None:
    pair.b.pause()
    second = pair.world.run_until_done(pair.a.spawn(connect()), 1)
    second.transport.write(b"hello")
    pair.client.transport.write(b"hello")
    pair.world.run_for(60)
    assert pair.server.data == b""
    assert len(pair.servers) == 1
    pair.b.resume()
    pair.world.run_until(lambda: [each.data for each in pair.servers] == [b"hello"] * 2, 1)


def test_one_fault_more_does_not_change_the_latencies_of_other_links() -> None:
    def arrivals(with_fault: bool) -> list[float]:
        with World(3) as world:
            pair = Pair(world)
            world.add_node("c")
            if with_fault:
                world.network.link("a", "c").split_chance = 1
                task = world.nodes["c"].spawn(connect())
                world.run_until_done(task, 1)
            begun = world.now
            at: list[float] = []
            for _ in range(5):
                pair.client.transport.write(b"x")
                world.run_until(lambda: len(pair.server.data) > len(at), 1)
                at.append(round(world.now - begun, 9))
            return at

    assert arrivals(with_fault=False) == arrivals(with_fault=True)


def test_addresses_are_checked(pair: Pair) -> None:
    async def listen(node: SimNode, host: str, port: int) -> None:
        await node.loop.create_server(Recorder, host, port)

    for node, host in ((pair.b, ""), (pair.a, "b")):
        task = node.spawn(listen(node, host, PORT))
        pair.world.run_until(task.done, 1)
        assert isinstance(task.exception(), OSError)
