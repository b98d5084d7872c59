"""Requests reach the handler whole and in order, and so do their replies."""

import asyncio
import struct

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.net.server import ConnectionInfo, EventKind, Reply, ServerLimits
from odradek.protocol.framing import Request
from tests.unit.net.net_harness import (
    Echo,
    Held,
    Overlapped,
    Workbench,
    frame,
    on_loop,
    response,
    serving,
    until,
)

METADATA = 3
API_VERSIONS = 18


@on_loop
async def test_a_request_is_answered() -> None:
    echo = Echo()
    async with serving(echo) as up:
        client = await up.connect()
        assert await client.ask(b"hello", 7) == b"hello"
        host, port = client.writer.get_extra_info("sockname")
        (info,) = echo.seen
        assert (info.listener, info.security_protocol) == ("PLAINTEXT", "PLAINTEXT")
        assert (info.peer_host, info.peer_port) == (host, port)
        assert info.principal == "User:ANONYMOUS"
        _, listening_port = up.server.endpoints["PLAINTEXT"]
        assert info.connection_id == f"127.0.0.1:{listening_port}-{host}:{port}-0"
        await client.close()


@on_loop
async def test_one_byte_at_a_time() -> None:
    async with serving(Echo()) as up:
        client = await up.connect()
        for number in range(3):
            for byte in frame(b"payload", number):
                client.send(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert await client.receive() == (number, b"payload")
        await client.close()


@on_loop
async def test_pipelined_requests_are_answered_in_order() -> None:
    async with serving(Echo()) as up:
        client = await up.connect()
        client.send(b"".join(frame(b"x" * (number % 50), number) for number in range(1000)))
        for number in range(1000):
            assert await client.receive() == (number, b"x" * (number % 50))
        assert up.server.counters.requests == 1000
        await client.close()


@on_loop
async def test_a_frame_larger_than_the_buffer() -> None:
    payload = bytes(range(256)) * 20_000
    async with serving(Echo()) as up:
        client = await up.connect()
        assert await client.ask(payload) == payload
        assert up.server.counters.bytes_in == len(frame(payload))
        assert up.server.counters.bytes_out == len(payload) + 8
        await client.close()


@on_loop
async def test_the_next_request_waits_for_the_reply() -> None:
    held = Held()
    async with serving(held) as up:
        client = await up.connect()
        client.send(frame(b"a", 1) + frame(b"b", 2) + frame(b"c", 3))
        for number in (1, 2, 3):
            await until(lambda: len(held.pending) > 0)
            await asyncio.sleep(0)
            assert [entry[0] for entry in held.pending] == [number]
            held.answer()
            assert (await client.receive())[0] == number
        await client.close()


def responses(*numbers: int) -> bytes:
    return b"".join(b"".join(response(b"%d" % number, number)) for number in numbers)


def ask(bench: Workbench, *numbers: int, key: int = METADATA) -> None:
    for number in numbers:
        bench.receive(frame(b"%d" % number, number, key))


def test_requests_may_be_handled_while_those_before_them_wait() -> None:
    held = Overlapped()
    bench = Workbench(held)
    ask(bench, 1, 2, 3)
    assert held.numbers == [1, 2, 3]
    held.answer_number(3)
    held.answer_number(2)
    bench.run_due()
    assert bench.transport.written == b"", "answers are in the order of their requests"
    held.answer_number(1)
    bench.run_due()
    assert bench.transport.written == responses(1, 2, 3)
    ask(bench, 4)
    held.answer()
    assert bench.transport.written == responses(1, 2, 3, 4)
    assert bench.hub.counters.requests == 4


def test_answers_that_come_in_one_turn_leave_together() -> None:
    held = Overlapped()
    bench = Workbench(held)
    ask(bench, 1, 2, 3, 4)
    for number in (1, 2, 3):
        held.answer_number(number)
    bench.run_due()
    assert bench.transport.written == responses(1, 2, 3)
    assert bench.transport.writes == 1


def test_a_request_of_another_kind_waits_for_the_answers() -> None:
    held = Overlapped()
    bench = Workbench(held)
    ask(bench, 1, 2)
    ask(bench, 3, key=API_VERSIONS)
    ask(bench, 4)
    assert held.numbers == [1, 2]
    held.answer_number(1)
    bench.run_due()
    assert held.numbers == [2]
    held.answer_number(2)
    bench.run_due()
    assert held.numbers == [3]


def test_no_more_than_so_many_requests_wait_for_their_answers() -> None:
    held = Overlapped()
    bench = Workbench(held, ServerLimits(requests_unanswered_max=2, read_ahead_bytes_max=30))
    ask(bench, 1, 2, 3, 4)
    assert held.numbers == [1, 2]
    assert not bench.is_reading()
    held.answer_number(1)
    bench.run_due()
    assert held.numbers == [2, 3]
    assert bench.is_reading()


def test_a_large_request_behind_one_that_waits_is_read() -> None:
    held = Overlapped()
    bench = Workbench(held, ServerLimits(read_ahead_bytes_max=30))
    ask(bench, 1)
    large = frame(b"x" * 1_000, 2, METADATA)
    bench.receive(large[:500])
    assert bench.is_reading()
    bench.receive(large[500:])
    assert held.numbers == [1, 2]


@pytest.mark.parametrize("bad", [b"\0\0\0\2xx", frame(b"fails", 9, METADATA)])
def test_what_is_wrong_ends_a_connection_when_those_before_it_are_answered(bad: bytes) -> None:
    held = Overlapped()

    def handle(request: Request, info: ConnectionInfo, reply: Reply) -> bool:
        if bytes(request.body) == b"fails":
            raise ValueError("no")
        return held(request, info, reply)

    bench = Workbench(handle)
    ask(bench, 1, 2)
    bench.receive(bad)
    ask(bench, 3)
    assert bench.ends() == []
    held.answer_number(1)
    bench.run_due()
    held.answer_number(2)
    bench.run_due()
    assert bench.transport.written == responses(1, 2)
    assert len(bench.ends()) == 1
    assert held.pending == [], "what is behind it is not handled"


def test_a_connection_that_is_to_stop_waits_for_all_its_answers() -> None:
    held = Overlapped()
    bench = Workbench(held)
    ask(bench, 1, 2)
    bench.connection.stop()
    ask(bench, 3)
    held.answer_number(1)
    bench.run_due()
    assert (held.numbers, bench.ends()) == ([2], [])
    held.answer_number(2)
    assert bench.ends() == ["closed"]
    assert bench.transport.written == responses(1, 2)


@on_loop
async def test_replies_from_elsewhere_stay_in_order_within_a_connection() -> None:
    """Requests of two connections wait; each answer to one is given from a handler of the other."""
    held = Held()
    async with serving(held) as up:
        clients = [await up.connect(), await up.connect()]
        for client in clients:
            client.send(b"".join(frame(b"%d" % number, number) for number in range(100)))
        answered = 0
        while answered < 200:
            await until(lambda: len(held.pending) > 0)
            held.pending.reverse()
            held.answer()
            answered += 1
        for client in clients:
            assert [await client.receive() for _ in range(100)] == [
                (number, b"%d" % number) for number in range(100)
            ]
            await client.close()


@on_loop
async def test_a_reply_runs_no_handler() -> None:
    """A produce that answers a waiting fetch must not find itself inside the next fetch."""
    held = Held()
    async with serving(held) as up:
        client = await up.connect()
        client.send(frame(b"", 1) + frame(b"", 2))
        await until(lambda: len(held.pending) == 1)
        held.answer()
        assert held.pending == []
        await until(lambda: len(held.pending) == 1)
        await client.close()


@on_loop
async def test_no_reply_is_a_reply() -> None:
    def handler(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        silent = bytes(request.body) == b"acks=0"
        reply(None if silent else response(b"", request.correlation_id))

    async with serving(handler) as up:
        client = await up.connect()
        client.send(frame(b"acks=0", 1) + frame(b"acks=0", 2) + frame(b"", 3))
        assert await client.receive() == (3, b"")
        await client.close()


@on_loop
async def test_a_second_answer_is_our_bug() -> None:
    replies: list[Reply] = []
    async with serving(lambda request, info, reply: replies.append(reply)) as up:
        client = await up.connect()
        client.send(frame(b""))
        await until(lambda: len(replies) == 1)
        replies[0](None)
        with pytest.raises(AssertionError, match="answered before"):
            replies[0](None)
        await client.close()


@on_loop
async def test_an_answer_for_a_client_that_has_gone_is_dropped() -> None:
    held = Held()
    async with serving(held) as up:
        client = await up.connect()
        client.send(frame(b""))
        await until(lambda: len(held.pending) == 1)
        await client.close()
        await until(lambda: up.server.connection_count == 0)
        held.answer()
        assert up.kinds() == ["opened", "closed"]


@on_loop
async def test_a_long_pipeline_lets_others_have_a_turn() -> None:
    order: list[bytes] = []

    def handler(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        order.append(bytes(request.body[:1]))
        reply(response(b"", request.correlation_id))

    async with serving(handler, ServerLimits(requests_per_turn_max=10)) as up:
        greedy, modest = await up.connect(), await up.connect()
        greedy.send(frame(b"g") * 5000)
        modest.send(frame(b"m"))
        await modest.receive()
        await until(lambda: len(order) == 5001)
        assert order.index(b"m") < 4000
        await greedy.close()
        await modest.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("boom"), EventKind.FAILED),
        (ApiError(ErrorCode.INVALID_REQUEST, "boom"), EventKind.FAILED),
        (ApiError(ErrorCode.UNSUPPORTED_VERSION, "boom"), EventKind.REJECTED),
    ],
)
@on_loop
async def test_a_handler_that_raises_closes_its_connection_only(
    error: Exception, kind: EventKind
) -> None:
    def handler(request: Request, info: ConnectionInfo, reply: Reply) -> None:
        if bytes(request.body) == b"raise":
            raise error
        reply(response(b"ok", request.correlation_id))

    async with serving(handler) as up:
        good, bad = await up.connect(), await up.connect()
        assert await good.ask(b"") == b"ok"
        bad.send(frame(b"", 1) + frame(b"raise", 2) + frame(b"", 3))
        # The request before it was answered; the one behind it is not handled.
        assert await bad.expect_close() in (struct.pack(">ii", 6, 1) + b"ok", b"")
        assert await good.ask(b"") == b"ok"
        (event,) = [event for event in up.events if event.kind == kind]
        assert event.error is (error if kind is EventKind.FAILED else None)
        assert "boom" in event.detail
        assert up.server.counters.requests == 3
        await good.close()
        await bad.close()
