"""A client that costs next to nothing: it sends the same bytes again and again.

``python -m bench.prepared_producer PORT TOPIC RECORDS RECORD_BYTES``. Requests are Produce with
acks=1 and one batch, many in one write, and of the answers only the bytes are counted. It prints
``ready``, takes a line with the seconds to work for, and prints a line of JSON: requests, seconds,
and seconds of its own CPU.
"""

import json
import socket
import sys
import time
from typing import Final

from odradek.core.errors import ErrorCode
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import BatchBuilder
from tests.broker_connection import BrokerConnection

VERSION: Final = 9
BURST_BYTES: Final = 256 * 1024
BURST_REQUESTS_MAX: Final = 128
SOCKET_BYTES: Final = 1 << 20


def request_for(topic: str, records: int, record_bytes: int) -> ProduceRequest:
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(int(time.time() * 1000), None, b"x" * record_bytes)
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    topic_data = TopicProduceData(name=topic, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[topic_data])


def work(peer: socket.socket, frame: bytes, answer_bytes: int, seconds: float) -> int:
    """Keep two bursts under way; return how many requests were answered."""
    count = min(max(BURST_BYTES // len(frame), 1), BURST_REQUESTS_MAX)
    burst = frame * count
    buffer = bytearray(SOCKET_BYTES)
    end = time.monotonic() + seconds
    sent = received = 0
    while True:
        is_over = time.monotonic() >= end
        if not is_over:
            peer.sendall(burst)
            sent += count
        while received < (sent if is_over else sent - count) * answer_bytes:
            received += _received(peer, buffer)
        if is_over:
            return sent


def _received(peer: socket.socket, buffer: bytearray) -> int:
    count = peer.recv_into(buffer)
    assert count, "the broker hung up"
    return count


def main() -> None:
    port, topic, records, record_bytes = int(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:])
    request = request_for(topic, records, record_bytes)
    with BrokerConnection(port) as connection:
        answer = connection.ask(request, ProduceResponse, VERSION)
        (told,) = answer.responses[0].partition_responses
        assert told.error_code == ErrorCode.NONE, ErrorCode(told.error_code)
        frame = b"".join(frame_request(request, api_for_key(request.ID), VERSION, 7, "bench"))
        connection.socket.sendall(frame)
        answer_bytes = len(connection.socket.recv(1 << 16))
        print("ready", flush=True)
        seconds = float(sys.stdin.readline())
        began, cpu_began = time.monotonic(), time.process_time()
        count = work(connection.socket, frame, answer_bytes, seconds)
        took, cpu_seconds = time.monotonic() - began, time.process_time() - cpu_began
        print(json.dumps({"requests": count, "seconds": took, "cpu_seconds": cpu_seconds}))


if __name__ == "__main__":
    main()
