"""What a broker's CPU does for a megabyte, by the size of a Produce request, beside Kafka.

A bare socket with five requests on the way, as Java's producer has them, and always the same bytes:
the client costs next to nothing, so that a machine with other work gives steady figures too. What
``producer_performance`` finds is higher, since a JVM takes the caches, and sends in small pieces.
"""

import os
import socket
import statistics
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import BinaryIO, Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import brokers
from bench.brokers import Target
from bench.timing import Row
from bench.warm_memory import warm_memory
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from odradek.records import BatchBuilder

ROUNDS: Final = 5
BYTES_PER_ROUND: Final = 60_000_000
KIB: Final = (16, 64, 256, 1000)
WARM_UP_BYTES: Final = 400_000_000
"""Until a JVM has compiled what it needs."""
RECORD_BYTES: Final = 1024
IN_FLIGHT: Final = 5
PRODUCE_VERSION: Final = 9
TIMEOUT_SECONDS: Final = 60


def run() -> Iterator[Row]:
    with warm_memory(), ExitStack() as stack:
        targets = list(brokers.start(stack))
        for target in targets:
            _produce(target, KIB[0], ROUNDS + 1, WARM_UP_BYTES)
        for kib in KIB:
            yield from _compare(targets, kib)


def _compare(targets: list[Target], kib: int) -> Iterator[Row]:
    found: dict[str, list[float]] = {target.name: [] for target in targets}
    for number in range(ROUNDS + 1):
        for target in targets:
            cpu_ms = _produce(target, kib, number)
            if number:  # the first one warms up
                found[target.name].append(cpu_ms)
    for name, values in found.items():
        what = f"CPU of the broker for a MB, requests of {kib} KiB"
        yield Row(what, name, statistics.median(values), "ms")


def _produce(target: Target, kib: int, number: int, size: int = BYTES_PER_ROUND) -> float:
    """Return the broker's CPU for a megabyte in ms."""
    topic = f"requests-{kib}-{number}"
    admin = AdminClient({"bootstrap.servers": target.bootstrap_servers})
    new = NewTopic(topic, 1, 1, config={"file.delete.delay.ms": "0"})
    admin.create_topics([new])[topic].result(TIMEOUT_SECONDS)
    frame = _frame(topic, kib)
    count = max(IN_FLIGHT, size // len(frame))
    with socket.create_connection(("127.0.0.1", target.port), TIMEOUT_SECONDS) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with peer.makefile("rb") as answers:
            _send(peer, answers, frame, IN_FLIGHT)  # the receive buffer grows
            spent = target.cpu_seconds()
            _send(peer, answers, frame, count)
            spent = target.cpu_seconds() - spent
    admin.delete_topics([topic])[topic].result(TIMEOUT_SECONDS)
    return spent * 1000 / (count * len(frame) / 1e6)


def _frame(topic: str, kib: int) -> bytes:
    builder = BatchBuilder()
    for _ in range(kib * 1024 // (RECORD_BYTES + 10)):
        builder.append(int(time.time() * 1000), None, os.urandom(RECORD_BYTES))
    data = PartitionProduceData(index=0, records=builder.build())
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return b"".join(frame_request(request, api_for_key(request.ID), PRODUCE_VERSION, 1, "bench"))


def _send(peer: socket.socket, answers: BinaryIO, frame: bytes, count: int) -> None:
    for number in range(count):
        if number >= IN_FLIGHT:
            _take_answer(answers)
        peer.sendall(frame)
    for _ in range(min(IN_FLIGHT, count)):
        _take_answer(answers)


def _take_answer(answers: BinaryIO) -> None:
    (size,) = struct.unpack(">i", answers.read(4))
    assert len(answers.read(size)) == size, "the broker hung up"
