"""The network between processes does what tests of clusters rely on."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cluster.relays import CLIENT, Relays
from tests.cluster.socket_owner import find_inode, find_inode_in_tables
from tests.interop.ports import HOST, free_ports
from tests.readable import is_readable

SECONDS_MAX = 60
QUIET_SECONDS = 0.3

# Listens on one port, connects to another when it is asked to, and says what arrives.
PEER = """
import os, socket, sys, threading
host, port = sys.argv[1], int(sys.argv[2])
listener = socket.create_server((host, port))
def say(*words):  # one write a line: the threads must not mix theirs
    os.write(1, (" ".join(words) + "\\n").encode())
say("up")
outgoing = {}
def read(connection, name):
    try:
        while chunk := connection.recv(100):
            say(name, chunk.decode())
            if name == "asked":
                connection.sendall(b"re:" + chunk)
        say(name, "end")
    except OSError:
        say(name, "reset")
def accept():
    while True:
        threading.Thread(target=read, args=(listener.accept()[0], "asked"), daemon=True).start()
threading.Thread(target=accept, daemon=True).start()
for line in sys.stdin:
    target, text = line.split()
    try:
        if target not in outgoing:
            outgoing[target] = socket.create_connection((host, int(target)))
            threading.Thread(target=read, args=(outgoing[target], "told"), daemon=True).start()
        outgoing[target].sendall(text.encode())
    except OSError:
        pass
"""


class Peer:
    def __init__(self, port: int) -> None:
        self.port = port
        self.process = subprocess.Popen(
            [sys.executable, "-c", PEER, HOST, str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # a second line is to wait in the pipe, where it can be waited for
        )
        assert self.next_line() == "up"

    def send(self, port: int, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{port} {text}\n".encode())
        self.process.stdin.flush()

    def next_line(self, seconds: float = SECONDS_MAX) -> str | None:
        assert self.process.stdout is not None
        if not is_readable(self.process.stdout.fileno(), seconds):
            return None
        return self.process.stdout.readline().decode().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Pair:
    """Nodes 1 and 2, and where each is found through its relay."""

    def __init__(self, stack: ExitStack) -> None:
        self.nodes = {node: Peer(port) for node, port in zip((1, 2), free_ports(2), strict=True)}
        for peer in self.nodes.values():
            stack.callback(peer.close)
        pids = {peer.process.pid: node for node, peer in self.nodes.items()}
        self.relays = stack.enter_context(Relays(lambda: pids))
        self.ports = {node: self.relays.add(node, peer.port) for node, peer in self.nodes.items()}

    def ask(self, source: int, target: int, text: str) -> None:
        self.nodes[source].send(self.ports[target], text)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield Pair(stack)


@pytest.mark.parametrize("is_connected", [True, False], ids=["old", "new"])
def test_a_question_does_not_arrive_and_the_other_direction_works(
    pair: Pair, is_connected: bool
) -> None:
    first, second = pair.nodes[1], pair.nodes[2]
    if is_connected:
        pair.ask(1, 2, "before")
        assert second.next_line() == "asked before"
        assert first.next_line() == "told re:before"
    pair.relays.cut(1, 2)
    pair.ask(1, 2, "hello")
    assert second.next_line(QUIET_SECONDS) is None
    pair.ask(2, 1, "question")  # arrives, and its answer does not
    assert first.next_line() == "asked question"
    assert second.next_line(QUIET_SECONDS) is None
    pair.relays.heal()
    lines = {second.next_line(), second.next_line()}
    assert lines == {"asked hello", "told re:question"}  # nothing was lost
    assert first.next_line() == "told re:hello"


def test_an_answer_does_not_arrive(pair: Pair) -> None:
    pair.relays.cut(2, 1)
    pair.ask(1, 2, "hello")
    assert pair.nodes[2].next_line() == "asked hello"
    assert pair.nodes[1].next_line(QUIET_SECONDS) is None
    pair.relays.heal()
    assert pair.nodes[1].next_line() == "told re:hello"


def test_connections_are_reset_and_refused(pair: Pair) -> None:
    first, second = pair.nodes[1], pair.nodes[2]
    pair.ask(1, 2, "hello")
    assert (second.next_line(), first.next_line()) == ("asked hello", "told re:hello")
    pair.relays.refuse(1, 2)
    assert first.next_line() == "told reset"
    pair.ask(2, 1, "still")  # the other way round connections are made as before
    assert (first.next_line(), second.next_line(SECONDS_MAX)) == ("asked still", "asked reset")


def test_other_processes_are_clients(pair: Pair) -> None:
    with ExitStack() as stack:
        (port,) = free_ports(1)
        client = Peer(port)
        stack.callback(client.close)
        pair.relays.cut(1, 2)
        client.send(pair.ports[2], "hello")
        assert pair.nodes[2].next_line() == "asked hello"
        pair.relays.cut(CLIENT, 2)
        client.send(pair.ports[2], "again")
        assert pair.nodes[2].next_line(QUIET_SECONDS) is None


def test_an_ended_process_is_seen_at_the_other_end(pair: Pair) -> None:
    pair.ask(1, 2, "hello")
    assert pair.nodes[1].next_line() == "told re:hello"
    pair.nodes[2].process.kill()
    assert pair.nodes[1].next_line() in ("told end", "told reset")


@pytest.mark.parametrize("find", [find_inode, find_inode_in_tables])
def test_a_socket_is_found_by_the_ports_of_its_ends(find: Callable[[int, int], int | None]) -> None:
    with (
        socket.create_server((HOST, 0)) as server,
        socket.create_connection((HOST, server.getsockname()[1])) as client,
    ):
        source, target = client.getsockname()[1], client.getpeername()[1]
        assert find(source, target) == os.fstat(client.fileno()).st_ino
        assert find(target, 1) == 0
