"""A client that keeps a session always sees exactly what one without a session sees.

Hypothesis appends, deletes, creates and removes; after each fetch the two are compared: the records
that came with it, and what the client of the session knows by putting together all it was told.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from typing import ClassVar, NamedTuple, TypedDict

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch

PARTITIONS = 1
BY_NAME, BY_ID = 12, 18
INT32_MAX = 2**31 - 1


class Subscribed(NamedTuple):
    topic: str
    topic_id: Uuid
    partition: int


class Told(NamedTuple):
    """What a client knows of a partition besides records."""

    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int


class Name(TypedDict):
    topic: str
    topic_id: Uuid


class SessionMachine(RuleBasedStateMachine):
    broker: ClassVar[Broker]
    connection: ClassVar[BrokerConnection]
    version: ClassVar[int]
    numbers: ClassVar[Iterator[int]] = count()

    def __init__(self) -> None:
        super().__init__()
        self.topics: list[tuple[str, Uuid]] = []
        self.wanted: dict[Subscribed, int] = {}  # and from which offset
        self.sent: dict[Subscribed, int] = {}  # what the session knows of it
        self.told: dict[Subscribed, Told] = {}
        self.session_id = self.epoch = 0

    @initialize()
    def begin(self) -> None:
        self.create_topic()
        self.append(0, 0)
        self.subscribe(0, 0, 0)
        self.fetch()

    def teardown(self) -> None:
        while self.topics:
            self.delete_topic(0)

    # What happens to the topics.

    @precondition(lambda self: len(self.topics) < 2)
    @rule()
    def create_topic(self) -> None:
        name = f"t{next(self.numbers)}"
        self.broker.create_topic(name, PARTITIONS)
        self.topics.append((name, self.broker.node.broker.image.topics[name].topic_id))

    @precondition(lambda self: self.topics)
    @rule(pick=st.integers(0, 1))
    def delete_topic(self, pick: int) -> None:
        name, _ = self.topics.pop(pick % len(self.topics))
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=1000)
        self.connection.ask(request, DeleteTopicsResponse, 5)

    @precondition(lambda self: self.topics)
    @rule(pick=st.integers(0, 1), partition=st.integers(0, PARTITIONS - 1))
    def append(self, pick: int, partition: int) -> None:
        name, _ = self.topics[pick % len(self.topics)]
        data = PartitionProduceData(index=partition, records=bytes(make_batch([b"a", b"b"])))
        topic = TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic])
        self.connection.ask(request, ProduceResponse, BY_NAME)

    @precondition(lambda self: self.topics)
    @rule(
        pick=st.integers(0, 1), partition=st.integers(0, PARTITIONS - 1), offset=st.integers(-1, 3)
    )
    def delete_records(self, pick: int, partition: int, offset: int) -> None:
        name, _ = self.topics[pick % len(self.topics)]
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topic = DeleteRecordsTopic(name=name, partitions=[wanted])
        request = DeleteRecordsRequest(topics=[topic], timeout_ms=1000)
        self.connection.ask(request, DeleteRecordsResponse)

    # What the client does.

    @precondition(lambda self: self.topics)
    @rule(pick=st.integers(0, 1), partition=st.integers(0, PARTITIONS), offset=st.integers(0, 4))
    def subscribe(self, pick: int, partition: int, offset: int) -> None:
        """Also to partitions that do not exist."""
        self.wanted[Subscribed(*self.topics[pick % len(self.topics)], partition)] = offset

    @precondition(lambda self: self.wanted and self.told)
    @rule()
    def catch_up(self) -> None:
        """Go on where the logs end, as a consumer does."""
        for key in self.wanted:
            if key in self.told:
                self.wanted[key] = max(self.told[key].high_watermark, 0)
        self.fetch()

    @rule(offset=st.integers(0, 4))
    def subscribe_to_unknown(self, offset: int) -> None:
        self.wanted[Subscribed("unknown", Uuid(b"unknown topic id"), 0)] = offset

    @precondition(lambda self: self.wanted)
    @rule(pick=st.integers(0, 9))
    def unsubscribe(self, pick: int) -> None:
        del self.wanted[list(self.wanted)[pick % len(self.wanted)]]

    @precondition(lambda self: self.epoch > 0)
    @rule()
    def lose_an_answer(self) -> None:
        """Ask with an epoch that was used; then the client begins again."""
        request = FetchRequest(session_id=self.session_id, session_epoch=self.epoch + 1)
        answer = self.connection.ask(request, FetchResponse, self.version)
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self.start_over()

    def start_over(self) -> None:
        self.epoch = 0
        self.sent.clear()
        self.told.clear()

    @precondition(lambda self: self.wanted)
    @rule()
    def fetch(self) -> None:
        full = self.ask(0, -1, self.wanted)
        with_session = self.ask_in_session()
        for key, data in with_session.items():
            self.told[key] = told(data)
        for key, data in full.items():
            assert self.told[key] == told(data)
            seen = with_session.get(key)
            assert (seen.records if seen else b"") == data.records
        assert with_session.keys() <= full.keys(), "nothing that was forgotten"

    def ask_in_session(self) -> dict[Subscribed, PartitionData]:
        changed = {at: o for at, o in self.wanted.items() if self.sent.get(at) != o}
        forgotten = [key for key in self.sent if key not in self.wanted]
        answered = self.ask(self.session_id, self.epoch, changed, forgotten)
        self.sent = dict(self.wanted)
        self.told = {key: value for key, value in self.told.items() if key in self.wanted}
        return answered

    def ask(
        self,
        session_id: int,
        epoch: int,
        wanted: dict[Subscribed, int],
        forgotten: list[Subscribed] | None = None,
    ) -> dict[Subscribed, PartitionData]:
        request = FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            max_bytes=INT32_MAX,
            topics=[
                FetchTopic(
                    **self.named(key),
                    partitions=[
                        FetchPartition(
                            partition=key.partition,
                            fetch_offset=offset,
                            partition_max_bytes=1 << 20,
                        )
                    ],
                )
                for key, offset in wanted.items()
            ],
            forgotten_topics_data=[
                ForgottenTopic(**self.named(key), partitions=[key.partition])
                for key in forgotten or []
            ],
        )
        response = self.connection.ask(request, FetchResponse, self.version)
        assert response.error_code == 0
        if epoch >= 0:
            assert response.session_id > 0
            self.session_id, self.epoch = response.session_id, epoch + 1
        self.broker.node.broker.fetch_sessions.check_invariants()
        for topic in response.responses:
            for data in topic.partitions:
                data.records = bytes(data.records or b"")  # the frame goes with the next answer
        return self.by_partition(response)

    def named(self, key: Subscribed) -> Name:
        if self.version == BY_NAME:
            return Name(topic=key.topic, topic_id=ZERO_UUID)
        return Name(topic="", topic_id=key.topic_id)

    def by_partition(self, response: FetchResponse) -> dict[Subscribed, PartitionData]:
        known = {
            (self.named(key)["topic"], self.named(key)["topic_id"], key.partition): key
            for key in self.wanted
        }
        return {
            known[topic.topic, topic.topic_id, data.partition_index]: data
            for topic in response.responses
            for data in topic.partitions
        }


def told(data: PartitionData) -> Told:
    return Told(
        data.error_code, data.high_watermark, data.last_stable_offset, data.log_start_offset
    )


@pytest.mark.slow
@pytest.mark.parametrize("version", [BY_NAME, BY_ID])
def test_a_session_sees_what_a_fetch_without_one_sees(version: int) -> None:
    with ExitStack() as stack:
        broker = stack.enter_context(Broker())
        connection = stack.enter_context(BrokerConnection(broker.port))

        class Machine(SessionMachine):
            pass

        Machine.broker, Machine.connection, Machine.version = broker, connection, version
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=50,
                stateful_step_count=30,
                deadline=None,
                suppress_health_check=list(HealthCheck),
            ),
        )
