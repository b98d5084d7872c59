"""A broker that follows, in virtual time, and a leader that answers what a test says.

Logs, partitions and fetchers are the product's. What is scripted is the lane to the leader, and
when a sync of a log ends.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace, TracebackType
from typing import Any, NamedTuple, Self

from odradek.broker.fetchers import Fetchers
from odradek.broker.partition import Partition, ReplicaPorts
from odradek.broker.replicas import Replicas
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import Slices
from odradek.metadata.image import ClusterImage
from odradek.protocol.generated.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.message import Message
from odradek.replication.leadership import LeaderSettings
from odradek.replication.quota import ReplicationQuota
from odradek.storage.config import LogConfig
from odradek.testing.disk import SimulatedDisk
from odradek.testing.simulation import World
from odradek.wire.lane import LaneError, LaneFailure, LaneSettings
from tests.storage_batches import make_batch
from tests.unit.storage.test_log_store_support import open_store

LEADER = 7
FOLLOWER = 1
BROKER_EPOCH = 55
SESSION = 4711
TOPIC_ID = Uuid(b"topic-id-of-t-16")
CONFIGS = {
    "num.replica.fetchers": 1,
    "replica.socket.timeout.ms": 30_000,
    "replica.fetch.backoff.ms": 1_000,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.response.max.bytes": 10 << 20,
    "replica.fetch.max.bytes": 1 << 20,
}


class Sent(NamedTuple):
    request: Message
    then: Callable[[Message], None]
    failed: Callable[[LaneError], None]


@dataclass
class ScriptedLane:
    settings: LaneSettings
    sent: list[Sent] = field(default_factory=list)
    """What has no answer yet."""
    address_changes: int = 0
    is_closed: bool = False

    def send(
        self,
        request: Message,
        then: Callable[[Message], None],
        failed: Callable[[LaneError], None],
        timeout_ms: int | None = None,
        *,
        version_min: int = 0,
    ) -> None:
        self.sent.append(Sent(request, then, failed))

    def on_address_changed(self) -> None:
        self.address_changes += 1

    def close(self) -> None:
        self.is_closed = True


class FollowingBroker:
    def __init__(self, config: LogConfig | None = None, **configs: int) -> None:
        self.world = World(1)
        self.node = self.world.add_node("follower")
        self.disk = SimulatedDisk(self.world.random("disk"), clock=self.node.clock)
        self.store = open_store(
            self.disk,
            [PurePosixPath("/a")],
            config=config or LogConfig(segment_bytes=1 << 20, segment_index_bytes=4096),
        )
        ports = ReplicaPorts(
            FOLLOWER, self.clock.monotonic_ms, lambda _: None, _refuse, 1_000, _refuse
        )
        self.replicas = Replicas(self.store, ports, lambda _: LeaderSettings())
        self.lanes: list[ScriptedLane] = []
        self.flushes: list[tuple[list[TopicPartition], Callable[[list[TopicPartition]], None]]] = []
        self.looks_at_directories = 0
        self.errors: list[str] = []
        known = {**CONFIGS, **{name.replace("_", "."): value for name, value in configs.items()}}
        broker: Any = SimpleNamespace(
            config=SimpleNamespace(integer=known.__getitem__),
            node_id=FOLLOWER,
            broker_epoch=BROKER_EPOCH,
            clock=self.clock,
            image=ClusterImage(),
            replicas=self.replicas,
            slices=Slices(self.clock.monotonic_us, self.node.loop.call_soon),
            peers=SimpleNamespace(open_lane=self._open_lane),
            call_when_flushed=lambda keys, then: self.flushes.append((list(keys), then)),
            look_at_directories=self._look,
            throttles=SimpleNamespace(follower=ReplicationQuota(samples=11, sample_ms=1_000)),
        )
        self.fetchers = Fetchers(broker)
        self.node.loop.set_exception_handler(
            lambda _loop, context: self.errors.append(context["message"])
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.world.close()

    @property
    def clock(self) -> Any:
        return self.node.clock

    def _open_lane(self, _purpose: str, _leader: int, settings: LaneSettings) -> ScriptedLane:
        self.lanes.append(ScriptedLane(settings))
        return self.lanes[-1]

    def _look(self) -> None:
        self.looks_at_directories += 1

    # What the metadata says.

    def do(self, work: Callable[[], object]) -> None:
        """Do something on the loop, and all that follows from it now."""
        self.node.loop.call_soon(work)
        self.world.run_for(0)

    def follow(
        self,
        *numbers: int,
        epoch: int = 0,
        leader: int = LEADER,
        topic: str = "t",
        topic_id: Uuid = TOPIC_ID,
    ) -> list[Partition]:
        followed: list[Partition] = []

        def follow() -> None:
            self.replicas.add_topic(topic, topic_id, 1_000)
            for number in numbers:
                at = TopicPartition(topic, number)
                partition = self.replicas.follow(at, topic_id, leader, epoch, self.clock.now_ms())
                self.fetchers.follow(partition)
                followed.append(partition)

        self.do(follow)
        return followed

    def remove(self, number: int, topic: str = "t") -> None:
        self.do(lambda: self.fetchers.remove(TopicPartition(topic, number)))

    # What the leader says.

    @property
    def sent(self) -> list[Sent]:
        return [each for lane in self.lanes for each in lane.sent]

    def fetch(self) -> FetchRequest:
        """Return the one request that waits for an answer."""
        (only,) = self.sent
        assert isinstance(only.request, FetchRequest), only.request
        return only.request

    def offsets_asked(self) -> list[ListOffsetsRequest]:
        return [each.request for each in self.sent if isinstance(each.request, ListOffsetsRequest)]

    def _take(self) -> Sent:
        lane = next(lane for lane in self.lanes if lane.sent)
        return lane.sent.pop(0)

    def answer(self, *answers: PartitionData, session_id: int = SESSION, error: int = 0) -> None:
        """Answer the fetch that waits; all partitions are of the one topic."""
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(answers))
        response = FetchResponse(
            session_id=session_id, error_code=error, responses=[topic] if answers else []
        )
        sent = self._take()
        assert isinstance(sent.request, FetchRequest)
        self.do(lambda: sent.then(response))

    def answer_offset(self, offset: int, error: int = 0) -> None:
        """Answer the ListOffsets that waits with one offset for all its partitions."""
        sent = self._take()
        assert isinstance(sent.request, ListOffsetsRequest)
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=offset, error_code=error
                    )
                    for each in topic.partitions
                ],
            )
            for topic in sent.request.topics
        ]
        self.do(lambda: sent.then(ListOffsetsResponse(topics=topics)))

    def lose(self) -> None:
        """Break the lane: all that waits fails."""
        lost = [lane.sent.pop(0) for lane in self.lanes for _ in list(lane.sent)]
        error = LaneError(LaneFailure.LOST, "the test cut it")
        for each in lost:
            self.do(lambda each=each: each.failed(error))  # type: ignore[misc]

    def finish_flush(self, *failed: TopicPartition) -> list[TopicPartition]:
        keys, then = self.flushes.pop(0)
        for key in keys:
            log = self.store.get(key)
            assert log is not None
            if key not in failed:
                log.flush()
        self.do(lambda: then(list(failed)))
        return keys


def _refuse(_partition: Partition, _proposal: object = None) -> None:
    raise AssertionError("a follower proposes nothing")


def asked(request: FetchRequest) -> dict[int, FetchPartition]:
    """Return what a request names, of all topics."""
    return {each.partition: each for topic in request.topics for each in topic.partitions}


def offsets(request: FetchRequest) -> dict[int, int]:
    return {number: each.fetch_offset for number, each in asked(request).items()}


def forgotten(request: FetchRequest) -> list[int]:
    return [number for topic in request.forgotten_topics_data for number in topic.partitions]


def records(*values: bytes, at: int, epoch: int = 0) -> bytes:
    return bytes(make_batch(list(values), base_offset=at, leader_epoch=epoch))


def data(
    number: int = 0,
    payload: bytes = b"",
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    error: int = 0,
    diverging: tuple[int, int] | None = None,
) -> PartitionData:
    parts = PartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=payload,
    )
    if diverging is not None:
        parts.diverging_epoch = EpochEndOffset(epoch=diverging[0], end_offset=diverging[1])
    return parts


def ends(partitions: Sequence[Partition]) -> list[int]:
    return [each.log.log_end_offset for each in partitions]
