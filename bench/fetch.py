"""What a Fetch costs the broker: decoding, the handler and encoding, without the network.

One partition of those asked for has records, the others nothing new. With a session a client names
what changed, without one it names everything.
"""

from collections.abc import Callable
from itertools import count

from bench.timing import Row, microseconds
from odradek.broker.dispatch import Dispatcher
from odradek.core.ids import TopicPartition
from odradek.net.settings import ConnectionInfo
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request, open_request, open_response
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.message import Buffer
from odradek.records import BatchBuilder
from odradek.testing.broker import Broker

VERSION = 18
BATCH_BYTES = 1000
TOPIC = "fetched"

_API = api_for_key(FetchRequest.ID)
_EPOCH_MARK = 0x7ABCDEF1
_CONNECTION = ConnectionInfo("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1, "bench")


def _request(broker: Broker, partitions: int) -> FetchRequest:
    wanted = [FetchPartition(partition=i, partition_max_bytes=1 << 20) for i in range(partitions)]
    topic = FetchTopic(topic_id=broker.node.broker.image.topics[TOPIC].topic_id, partitions=wanted)
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])


def _frame(request: FetchRequest) -> bytearray:
    return bytearray(b"".join(frame_request(request, _API, VERSION, 1, "bench"))[4:])


def _sessionless(broker: Broker, partitions: int) -> Callable[[], object]:
    frame = _frame(_request(broker, partitions))
    handle = Dispatcher(broker.node.broker).handle
    return lambda: handle(open_request(memoryview(frame)), _CONNECTION, _ignore)


def _incremental(broker: Broker, partitions: int) -> Callable[[], object]:
    handle = Dispatcher(broker.node.broker).handle
    request = _request(broker, partitions)
    request.session_epoch = 0
    answers: list[FetchResponse] = []
    handle(
        open_request(memoryview(_frame(request))),
        _CONNECTION,
        lambda buffers: answers.append(_decoded(buffers)),
    )
    request.session_id, request.session_epoch = answers[0].session_id, _EPOCH_MARK
    del request.topics[0].partitions[1:]
    frame = _frame(request)
    at = frame.index(_EPOCH_MARK.to_bytes(4, "big"))
    epochs = count(1)

    def ask() -> None:
        frame[at : at + 4] = next(epochs).to_bytes(4, "big")
        handle(open_request(memoryview(frame)), _CONNECTION, _ignore)

    return ask


def _decoded(buffers: list[Buffer] | None) -> FetchResponse:
    _, body = open_response(memoryview(b"".join(buffers or [])[4:]), _API, VERSION)
    return FetchResponse.decode(body, VERSION)


def _ignore(_buffers: list[Buffer] | None) -> None:
    """Send nothing."""


def _append(broker: Broker) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"x" * BATCH_BYTES)
    log = broker.node.broker.store.get(TopicPartition(TOPIC, 0))
    assert log is not None
    log.append_as_leader(bytearray(builder.build()), leader_epoch=0, now_ms=0)
    log.update_high_watermark(log.log_end_offset)


def run() -> list[Row]:
    rows = []
    for partitions in (1, 10, 1000):
        operation = f"a fetch of {partitions} partitions, one with {BATCH_BYTES} B"
        with Broker(topics={TOPIC: partitions}) as broker:
            _append(broker)
            for name, ask in (
                ("in a session", _incremental(broker, partitions)),
                ("without", _sessionless(broker, partitions)),
            ):
                rows.append(Row(operation, name, microseconds(ask), "µs"))
    return rows
