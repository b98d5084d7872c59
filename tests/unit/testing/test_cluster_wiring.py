"""What happens on the wires of a test's cluster when a node is killed."""

import asyncio
import gc
import socket
from collections.abc import Callable
from contextlib import suppress

import pytest

from odradek.net.event_loop import new_event_loop
from odradek.testing.cluster.wiring import HOST, Dialling, Wiring

LISTENING, DIALLING = 1, 2


class Dead(asyncio.BufferedProtocol):
    """Fails the test if anything reaches it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raise AssertionError(f"a dead process was connected: {transport}")


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, new_event_loop])
def test_a_connection_that_is_on_its_way_when_its_node_is_killed_is_closed(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def main() -> None:
        wiring, loop = Wiring(), asyncio.get_running_loop()
        with socket.create_server((HOST, 0)) as server:
            server.setblocking(False)
            port = server.getsockname()[1]
            wiring.set_listener(port, LISTENING)
            dialling = Dialling(wiring, DIALLING, loop)
            under_way = loop.create_task(dialling.create_connection(Dead, HOST, port))
            await asyncio.sleep(0)  # it has begun
            dialling.end()
            accepted, _ = await loop.sock_accept(server)
            with accepted:
                with pytest.raises(ConnectionRefusedError, match="killed"):
                    await under_way
                with suppress(ConnectionResetError):
                    assert await loop.sock_recv(accepted, 1) == b""

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(asyncio.wait_for(main(), 10))
    gc.collect()  # a socket that was left open would warn
