"""What requests cost, in calls of our own functions: a guard that load cannot upset, as time could.

The ceilings are about a tenth above what was counted when they were set. A change that needs more
raises them on purpose; one that is found to need more by accident is looked at again. The least of
several rounds counts: timers of the broker may come between, and only ever add. A round is several
operations: what follows an answer may be counted for the next one.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import odradek
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.fetch import FetchResponse
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.produce import ProduceResponse
from odradek.protocol.generated.sync_group import SyncGroupRequest, SyncGroupResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import FETCH_VERSION, PRODUCE_VERSION, fetch_request, produce_request
from tests.transaction_requests import GROUP_KEY, TransactionalProducer, find_coordinator

ROUNDS = 12
OPERATIONS = 5  # of a round
CALLS_MAX = {
    "Produce": 79,
    "Fetch": 89,
    "Heartbeat": 87,
    "OffsetCommit": 160,
    "transaction": 668,
    "Produce of 16 KiB": 86,
}
CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
_OURS = str(Path(odradek.__file__).parent)
_CODEC = str(Path(_OURS, "records"))  # compiled, or not


class CallCounter:
    """Counts calls of our functions, in all threads that start while it is installed."""

    def __init__(self) -> None:
        self._calls = itertools.count()
        self._asked = 0

    def profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if file.startswith(_OURS) and not file.startswith(_CODEC):
                next(self._calls)

    def taken(self) -> int:
        """Return how many calls there were until now."""
        self._asked += 1  # the count goes up when it is read
        return next(self._calls) - self._asked


@contextmanager
def counted_broker() -> Iterator[tuple[CallCounter, BrokerConnection]]:
    counter = CallCounter()
    broker = Broker(topics={"t": 1}, config=CONFIG, memory=True)
    threading.setprofile(counter.profile)
    try:
        broker.start()
    finally:
        threading.setprofile(None)
    try:
        with BrokerConnection(broker.port) as connection:
            yield counter, connection
    finally:
        broker.stop()


def join(connection: BrokerConnection) -> tuple[str, int]:
    """Let a group have one member, and return its id and its generation."""
    find_coordinator(connection, "g", GROUP_KEY)
    protocol = JoinGroupRequestProtocol(name="range", metadata=b"")
    member_id = ""
    while True:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=300_000,
            rebalance_timeout_ms=300_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        joined = connection.ask(request, JoinGroupResponse)
        if not joined.error_code:
            break
        assert joined.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = joined.member_id
    sync = SyncGroupRequest(
        group_id="g", generation_id=joined.generation_id, member_id=joined.member_id
    )
    assert not connection.ask(sync, SyncGroupResponse).error_code
    return joined.member_id, joined.generation_id


def operations(connection: BrokerConnection) -> dict[str, Callable[[], None]]:
    member_id, generation = join(connection)
    producer = TransactionalProducer(connection).begin()
    commit = OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
            )
        ],
    )
    heartbeat = HeartbeatRequest(group_id="g", generation_id=generation, member_id=member_id)

    much = produce_request("t", *[b"v" * 1024] * 15)

    def produce() -> None:
        answer = connection.ask(produce_request("t", b"v"), ProduceResponse, PRODUCE_VERSION)
        assert not answer.responses[0].partition_responses[0].error_code

    def produce_much() -> None:
        """As ``produce``, and each has an entry in the indexes."""
        answer = connection.ask(much, ProduceResponse, PRODUCE_VERSION)
        assert not answer.responses[0].partition_responses[0].error_code

    def fetch() -> None:
        answer = connection.ask(fetch_request(["t"]), FetchResponse, FETCH_VERSION)
        assert answer.responses[0].partitions[0].records

    def beat() -> None:
        assert not connection.ask(heartbeat, HeartbeatResponse).error_code

    def commit_offset() -> None:
        answer = connection.ask(commit, OffsetCommitResponse, 8)
        assert not answer.topics[0].partitions[0].error_code

    def transact() -> None:
        while (code := producer.produce(b"v")) == ErrorCode.CONCURRENT_TRANSACTIONS:
            pass  # the markers of the one before are being written
        assert not code
        assert not producer.end(commit=True)

    return {
        "Produce": produce,
        "Fetch": fetch,
        "Heartbeat": beat,
        "OffsetCommit": commit_offset,
        "transaction": transact,
        "Produce of 16 KiB": produce_much,  # last: it makes fetches larger
    }


def test_no_request_needs_more_calls_than_it_did() -> None:
    with counted_broker() as (counter, connection):
        least = {}
        for name, operation in operations(connection).items():
            counts = [counter.taken()]
            for _ in range(ROUNDS):
                for _ in range(OPERATIONS):
                    operation()
                counts.append(counter.taken())
            rounds = (after - before for before, after in itertools.pairwise(counts))
            least[name] = min(rounds) / OPERATIONS
    assert all(least.values()), "nothing was counted"
    too_many = {name: count for name, count in least.items() if count > CALLS_MAX[name]}
    assert not too_many, f"{too_many} of at most {CALLS_MAX}"
