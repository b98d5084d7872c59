"""Two nodes on two cores against one: topics without followers, half of them on each node.

Producers need a part of the same two cores. They are as cheap as can be (``prepared_producer``: the
same bytes, many requests in a write, answers counted and not read), and what they take is stated:
two nodes cannot have more than two cores less that. Rounds alternate between one node and two; the
second node is there in both. ``python -m bench scale_two_nodes``.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from bench.brokers import Target
from bench.clusters import PlainOdradek
from bench.timing import Row
from odradek.client import BlockingAdmin
from tests.cluster.asking import make_topic
from tests.cluster.processes import Cluster, ClusterNode

ROLES: Final = {1: "broker,controller", 2: "broker"}
WORK: Final = {"100 B": (1, 100), "16 KiB of 1 KiB": (16, 1024), "1 MB of 1 KiB": (960, 1024)}
ROUNDS: Final = 5
SECONDS: Final = 3.0
SECONDS_MAX: Final = 60
_CLIENT: Final = (sys.executable, "-m", "bench.prepared_producer")


class Round(NamedTuple):
    requests_per_second: float
    broker_us: float
    """CPU of the brokers for a request."""
    client_us: float
    busy: float
    """Cores that the brokers used."""


def run() -> Iterator[Row]:
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        Cluster(Path(folder), ROLES, PlainOdradek(), is_relayed=False) as cluster,
    ):
        cluster.start()
        for what, (records, record_bytes) in WORK.items():
            rounds: dict[str, list[Round]] = {"one node": [], "two nodes": []}
            for number in range(ROUNDS):
                for count, name in enumerate(rounds, 1):
                    nodes = list(cluster.nodes.values())[:count]
                    measured = _round(cluster, nodes, f"t{number}-{count}", records, record_bytes)
                    rounds[name].append(measured)
                    print(what, name, measured, file=sys.stderr, flush=True)
            yield from _rows(what, rounds)


def _rows(what: str, rounds: dict[str, list[Round]]) -> Iterator[Row]:
    for name, measured in reversed(rounds.items()):
        rate = statistics.median(each.requests_per_second for each in measured)
        yield Row(f"produce {what}, acks=1", name, rate, "requests/s")
    for name, measured in rounds.items():
        cpu = statistics.median(each.broker_us for each in measured)
        yield Row(f"produce {what}: CPU of a broker for a request", name, cpu, "us")
    for name, measured in rounds.items():
        cpu = statistics.median(each.client_us for each in measured)
        yield Row(f"produce {what}: CPU of a client for a request", name, cpu, "us")
    for name, measured in rounds.items():
        busy = statistics.median(each.busy for each in measured)
        yield Row(f"produce {what}: cores that brokers used", name, busy, "cores")


def _round(
    cluster: Cluster, nodes: Sequence[ClusterNode], prefix: str, records: int, record_bytes: int
) -> Round:
    """Have one client for each node write for a while; what was written is deleted."""
    topics = {node.id: f"{prefix}-{node.id}" for node in nodes}
    for node in nodes:
        make_topic(cluster, topics[node.id], [node.id])
    targets = [
        Target("odradek", each.bootstrap_servers, each.process.pid)
        for each in nodes
        if each.process is not None
    ]
    with ExitStack() as stack:
        words = (str(records), str(record_bytes))
        clients = [
            _start(stack, (*_CLIENT, str(node.port), topics[node.id], *words)) for node in nodes
        ]
        cpu_before = sum(each.cpu_seconds() for each in targets)
        began = time.monotonic()
        for client in clients:
            _tell(client, f"{SECONDS}\n")
        told = [json.loads(client.communicate(timeout=SECONDS_MAX)[0]) for client in clients]
        took = time.monotonic() - began
        cpu_seconds = sum(each.cpu_seconds() for each in targets) - cpu_before
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics(list(topics.values())).unwrap()
    requests = sum(each["requests"] for each in told)
    return Round(
        sum(each["requests"] / each["seconds"] for each in told),
        cpu_seconds * 1e6 / requests,
        sum(each["cpu_seconds"] for each in told) * 1e6 / requests,
        cpu_seconds / took,
    )


def _start(stack: ExitStack, command: Sequence[str]) -> "subprocess.Popen[str]":
    client = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    stack.callback(client.wait)
    stack.callback(client.kill)
    assert client.stdout is not None
    assert client.stdout.readline() == "ready\n"
    return client


def _tell(client: "subprocess.Popen[str]", line: str) -> None:
    assert client.stdin is not None
    client.stdin.write(line)
    client.stdin.flush()
