"""What a leader believes of those who say that they follow it, and what waits for them.

The broker is alone. That another has a replica is told to it as metadata, and the test is the
other one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from odradek.broker.partition import Partition
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.protocol.generated.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.replication.leadership import Broker as OtherBroker
from odradek.replication.leadership import Registration
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.storage_batches import make_batch
from tests.unit.broker.held_commits import Leadership, partition_of, wait_until

FOLLOWER = 7
STRANGER = 9
EPOCH = 70
VERSION = 17
AT = TopicPartition("t", 0)


class Led:
    """A partition that the broker leads and another one follows; asks in the name of that one."""

    def __init__(self, broker: Broker, topic_id: Uuid) -> None:
        self.broker = broker
        self.metadata = Leadership(broker)
        self.metadata.share("t", [1, FOLLOWER], [1])
        self.partition: Partition = partition_of(broker.node.broker, AT)
        self._topic_id = topic_id
        assert self.partition.leadership is not None
        self.partition.leadership._find_broker = self._find_broker
        self.is_alive = True

    def _find_broker(self, broker_id: int) -> OtherBroker | None:
        return (
            OtherBroker(EPOCH, self.is_alive, not self.is_alive) if broker_id == FOLLOWER else None
        )

    @property
    def epoch(self) -> int:
        return self.partition.leader_epoch

    def fetch(
        self,
        offset: int,
        *,
        by: int = FOLLOWER,
        broker_epoch: int = EPOCH,
        leader_epoch: int | None = None,
        last_epoch: int = -1,
        log_start: int = 0,
        session: tuple[int, int] = (0, -1),
    ) -> PartitionData | None:
        """Fetch without waiting; None if there are no news."""
        wanted = FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=self.epoch if leader_epoch is None else leader_epoch,
            last_fetched_epoch=last_epoch,
            log_start_offset=log_start,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=by, replica_epoch=broker_epoch),
            max_bytes=1 << 20,
            session_id=session[0],
            session_epoch=session[1],
            topics=[FetchTopic(topic_id=self._topic_id, partitions=[wanted])],
        )
        with BrokerConnection(self.broker.port) as connection:
            answer = connection.ask(request, FetchResponse, VERSION)
        assert answer.error_code == 0
        found = [each for topic in answer.responses for each in topic.partitions]
        return found[0] if found else None

    def produce(self, acks: int = 1, timeout_ms: int = 60_000) -> PartitionProduceResponse:
        data = PartitionProduceData(index=0, records=bytes(make_batch([b"v"])))
        topics = [TopicProduceData(topic_id=self._topic_id, partition_data=[data])]
        request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)
        with BrokerConnection(self.broker.port) as connection:
            answer = connection.ask(request, ProduceResponse, 13)
        return answer.responses[0].partition_responses[0]

    def delete(self, offset: int, timeout_ms: int = 120_000) -> DeleteRecordsPartitionResult:
        asked = DeleteRecordsPartition(partition_index=0, offset=offset)
        topics = [DeleteRecordsTopic(name="t", partitions=[asked])]
        request = DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms)
        with BrokerConnection(self.broker.port) as connection:
            answer = connection.ask(request, DeleteRecordsResponse, 2)
        return answer.topics[0].partitions[0]

    def known(self) -> tuple[int, int]:
        """Return what the leader knows: the follower's log end, and the high watermark."""
        assert self.partition.leadership is not None
        follower = self.partition.leadership.followers[FOLLOWER]
        return follower.log_end_offset, self.partition.log.high_watermark


@pytest.fixture
def led() -> Iterator[Led]:
    with Broker(memory=True) as broker:
        broker.create_topic("t")
        yield Led(broker, broker.node.broker.image.topics["t"].topic_id)


@pytest.fixture
def apart() -> Iterator[Callable[..., "Future[Any]"]]:
    """Runs what waits, on threads."""
    with ThreadPoolExecutor(4) as pool:
        yield pool.submit


def waiting(led: Led) -> int:
    return led.broker._call(lambda: len(led.partition._deletions))


def test_a_follower_reads_up_to_the_end_of_the_log(led: Led) -> None:
    led.fetch(0)
    led.produce()
    led.produce()
    answer = led.fetch(0)
    assert answer is not None
    assert (answer.error_code, answer.high_watermark) == (0, 0), "it may join, so it counts"
    assert answer.records
    led.fetch(2)
    assert led.known() == (2, 2)


WRONG = {
    "a stranger": ({"by": STRANGER}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "a stranger without an epoch": (
        {"by": STRANGER, "leader_epoch": -1},
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ),
    "the leader itself": ({"by": 1}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "a later leader epoch": ({"leader_epoch": 99}, ErrorCode.UNKNOWN_LEADER_EPOCH),
    "an earlier leader epoch": ({"leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
    "an earlier run of the follower": (
        {"broker_epoch": EPOCH - 1},
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ),
    "an offset beyond the end": ({"offset": 3}, ErrorCode.OFFSET_OUT_OF_RANGE),
    "an offset before the start": ({"offset": -1}, ErrorCode.OFFSET_OUT_OF_RANGE),
    "records of an epoch that never was": ({"last_epoch": 50}, ErrorCode.OFFSET_OUT_OF_RANGE),
}


@pytest.mark.parametrize("what", WRONG)
def test_nothing_moves_for_a_fetch_with_something_wrong(led: Led, what: str) -> None:
    fields, code = WRONG[what]
    led.metadata.take("t")
    led.metadata.give_back("t")  # in a later leader epoch
    assert led.partition.leadership is not None
    led.partition.leadership._find_broker = led._find_broker
    led.produce()
    led.fetch(0)
    led.produce()
    before = led.known()
    assert before[0] == 0
    answer = led.fetch(**{"offset": 2, **fields})  # type: ignore[arg-type]
    assert answer is not None
    assert answer.error_code == code
    assert led.known() == before


def test_nothing_moves_for_a_follower_whose_log_diverges(led: Led) -> None:
    led.produce()
    first_epoch = led.epoch
    led.metadata.take("t")
    led.metadata.give_back("t")
    led.produce()
    before = led.known()
    answer = led.fetch(2, last_epoch=first_epoch)
    assert answer is not None
    assert answer.diverging_epoch is not None
    assert answer.diverging_epoch.end_offset == 1
    assert led.known() == before


def test_a_follower_that_lists_offsets_sees_the_end_of_the_log(led: Led) -> None:
    led.fetch(0)
    with led.broker.hold_commits("t"):
        led.produce()
        asked = ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
        seen = {}
        for replica_id in (-1, FOLLOWER):
            topics = [ListOffsetsTopic(name="t", partitions=[asked])]
            request = ListOffsetsRequest(replica_id=replica_id, topics=topics)
            with BrokerConnection(led.broker.port) as connection:
                answer = connection.ask(request, ListOffsetsResponse, 8)
            seen[replica_id] = answer.topics[0].partitions[0].offset
    assert seen == {-1: 0, FOLLOWER: 1}


# Deleting records.


def test_records_are_deleted_when_the_followers_have_deleted_them(
    led: Led, apart: Callable[..., "Future[Any]"]
) -> None:
    for _ in range(3):
        led.produce()
    led.fetch(3)
    answer = apart(led.delete, 2)
    wait_until(lambda: waiting(led) == 1, "the deletion waits")
    led.fetch(3, log_start=1)
    assert waiting(led) == 1
    assert not answer.done()
    led.fetch(3, log_start=2)
    assert waiting(led) == 0
    assert (answer.result(120).error_code, answer.result().low_watermark) == (0, 2)
    assert led.delete(1).low_watermark == 2, "done already"


def test_a_deletion_that_a_follower_does_not_follow_times_out(led: Led) -> None:
    for _ in range(3):
        led.produce()
    led.fetch(3, log_start=1)
    answer = led.delete(-1, timeout_ms=50)
    assert (answer.error_code, answer.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert led.partition.log.log_start_offset == 3, "here they are gone"
    assert waiting(led) == 0


def test_a_follower_that_has_died_is_not_waited_for(
    led: Led, apart: Callable[..., "Future[Any]"]
) -> None:
    for _ in range(3):
        led.produce()
    led.fetch(3)
    answer = apart(led.delete, 2)
    wait_until(lambda: waiting(led) == 1, "the deletion waits")
    led.is_alive = False
    led.broker._call(lambda: led.partition.lead(led_registration(led)))
    assert answer.result(120).error_code == 0
    assert led.delete(3).error_code == 0


def test_that_all_have_deleted_may_be_seen_only_when_time_is_up(
    led: Led, apart: Callable[..., "Future[Any]"]
) -> None:
    for _ in range(3):
        led.produce()
    led.fetch(3)
    answer = apart(led.delete, 2, 1_000)
    wait_until(lambda: waiting(led) == 1, "the deletion waits")
    led.is_alive = False
    assert (answer.result(120).error_code, answer.result().low_watermark) == (0, 2)


def test_a_deletion_ends_with_leadership(led: Led, apart: Callable[..., "Future[Any]"]) -> None:
    led.produce()
    led.fetch(1)
    answer = apart(led.delete, 1)
    wait_until(lambda: waiting(led) == 1, "the deletion waits")
    led.metadata.give("t", FOLLOWER)
    assert answer.result(120).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.result().low_watermark == -1


def led_registration(led: Led) -> Registration:
    leadership = led.partition.leadership
    assert leadership is not None
    return Registration(
        leadership.leader_epoch, leadership.partition_epoch, leadership.replicas, (1,)
    )
