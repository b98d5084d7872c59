"""Markers on their way to leaders that answer, refuse, move, vanish and come back."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, cast

import pytest

from odradek.broker import marker_sender
from odradek.broker.marker_sender import MarkerSender, MarkerWriting
from odradek.coordinator.transaction.markers import MarkersToWrite
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.unit.broker.scripted_peers import ScriptedBroker, ScriptedLane, until

T = [TopicPartition("t", number) for number in range(6)]
NO_LEADER = -1


class Scene:
    def __init__(self) -> None:
        self.broker = ScriptedBroker(asyncio.get_running_loop().call_soon)
        self.sender = MarkerSender(cast("Any", self.broker))
        self.is_over = False
        self.written: list[tuple[int, TopicPartition]] = []

    def send(self, producer_id: int, *partitions: TopicPartition, epoch: int = 3) -> MarkerWriting:
        markers = MarkersToWrite(f"tx-{producer_id}", producer_id, 5, True, epoch, partitions, 2, 0)

        def written(done: Iterable[TopicPartition]) -> None:
            self.written += [(producer_id, each) for each in done]

        return self.sender.send(markers, lambda: self.is_over, written)

    def lead(self, leaders: dict[TopicPartition, int]) -> None:
        """Let the image say who leads, and the sender hear of it."""
        self.broker.leaders = leaders
        self.sender.on_update()

    async def lane(self, broker_id: int, requests: int = 1) -> ScriptedLane:
        """Return the lane to a broker when so many requests were sent."""
        lanes = self.broker.lanes
        await until(lambda: broker_id in lanes and len(lanes[broker_id].sent) >= requests)
        return lanes[broker_id]


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def asked(lane: ScriptedLane) -> dict[int, list[TopicPartition]]:
    """Return what the last request on a lane wants marked, by producer id."""
    request = lane.sent[-1]
    assert isinstance(request, WriteTxnMarkersRequest)
    return {
        marker.producer_id: [
            TopicPartition(topic.name, number)
            for topic in marker.topics
            for number in topic.partition_indexes
        ]
        for marker in request.markers
    }


def answer(lane: ScriptedLane, codes: dict[TopicPartition, ErrorCode] | None = None) -> None:
    """Answer the last request; partitions that ``codes`` does not name have their marker."""
    results = []
    for producer_id, partitions in asked(lane).items():
        topics = [
            WritableTxnMarkerTopicResult(
                name=each.topic,
                partitions=[
                    WritableTxnMarkerPartitionResult(
                        partition_index=each.partition, error_code=(codes or {}).get(each, 0)
                    )
                ],
            )
            for each in partitions
        ]
        results.append(WritableTxnMarkerResult(producer_id=producer_id, topics=topics))
    lane.answer(WriteTxnMarkersResponse(markers=results))


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def told(story: Story) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await story(Scene())

        asyncio.run(run())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@told
async def test_markers_of_many_transactions_go_to_a_broker_in_one_request(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2, T[1]: 2, T[2]: 3}
    scene.send(7, T[0], T[1], T[2])
    scene.send(8, T[1])
    second, third = await scene.lane(2), await scene.lane(3)
    assert asked(second) == {7: [T[0], T[1]], 8: [T[1]]}
    assert asked(third) == {7: [T[2]]}
    marker = cast("WriteTxnMarkersRequest", third.sent[0]).markers[0]
    assert (marker.producer_epoch, marker.coordinator_epoch) == (5, 3)
    assert (marker.transaction_result, marker.transaction_version) == (True, 2)
    assert scene.written == []
    answer(second)
    answer(third)
    assert sorted(scene.written) == [(7, T[0]), (7, T[1]), (7, T[2]), (8, T[1])]


@told
async def test_one_request_is_under_way_and_the_rest_goes_with_the_next(scene: Scene) -> None:
    scene.broker.leaders = dict.fromkeys(T, 2)
    scene.send(7, T[0])
    lane = await scene.lane(2)
    scene.send(8, T[1])
    scene.send(9, T[2])
    await turns()
    assert len(lane.sent) == 1
    answer(lane)
    await scene.lane(2, requests=2)
    assert asked(lane) == {8: [T[1]], 9: [T[2]]}


def test_a_request_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(marker_sender, "PARTITIONS_PER_REQUEST_MAX", 2)

    async def story() -> None:
        scene = Scene()
        scene.broker.leaders = dict.fromkeys(T, 2)
        scene.send(7, *T[:3])
        scene.send(8, T[0])
        sizes = []
        for number in range(1, 4):
            lane = await scene.lane(2, requests=number)
            sizes.append(sum(len(each) for each in asked(lane).values()))
            answer(lane)
            if len(scene.written) == 4:
                break
        assert sizes == [2, 2]
        assert len(scene.written) == 4

    asyncio.run(story())


@told
async def test_this_brokers_own_partitions_are_written_without_a_request(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 1}
    scene.send(7, T[0])
    own = scene.broker.leader(T[0])
    assert own.log.log_end_offset == 1
    assert scene.written == [], "it counts when it is committed"
    own.commit()
    assert scene.written == [(7, T[0])]
    assert not scene.broker.lanes


@told
async def test_a_partition_that_is_lost_before_the_commit_is_marked_by_its_new_leader(
    scene: Scene,
) -> None:
    scene.broker.leaders = {T[0]: 1}
    scene.send(7, T[0])
    scene.lead({T[0]: 2})
    scene.broker.leader(T[0]).commit(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    answer(await scene.lane(2))
    assert scene.written == [(7, T[0])]


RETRIED = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
]


@pytest.mark.parametrize("code", RETRIED)
def test_a_refused_marker_is_sent_again_without_those_that_are_written(code: ErrorCode) -> None:
    async def story() -> None:
        scene = Scene()
        scene.broker.leaders = {T[0]: 2, T[1]: 2}
        scene.send(7, T[0], T[1])
        lane = await scene.lane(2)
        answer(lane, {T[1]: code})
        assert scene.written == [(7, T[0])]
        assert scene.sender.retries == 1
        await scene.lane(2, requests=2)
        assert asked(lane) == {7: [T[1]]}
        answer(lane)
        assert scene.written == [(7, T[0]), (7, T[1])]
        assert scene.sender.retries == 0

    asyncio.run(story())


@told
async def test_a_partition_without_an_answer_is_tried_again(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2}
    scene.send(7, T[0])
    lane = await scene.lane(2)
    lane.answer(WriteTxnMarkersResponse(markers=[]))
    assert scene.written == []
    answer(await scene.lane(2, requests=2))
    assert scene.written == [(7, T[0])]


@told
async def test_an_answer_that_is_lost_is_asked_for_again(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2}
    scene.send(7, T[0])
    (await scene.lane(2)).fail()
    answer(await scene.lane(2, requests=2))
    assert scene.written == [(7, T[0])]


@pytest.mark.parametrize("code", sorted(marker_sender.HAS_MARKER - {ErrorCode.NONE}))
def test_what_no_marker_can_help_counts_as_marked(code: ErrorCode) -> None:
    async def story() -> None:
        scene = Scene()
        scene.broker.leaders = {T[0]: 2}
        scene.send(7, T[0])
        answer(await scene.lane(2), {T[0]: code})
        assert scene.written == [(7, T[0])]

    asyncio.run(story())


@told
async def test_a_fenced_coordinator_gives_a_transaction_up_and_no_other(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2, T[1]: 2, T[2]: 2, T[3]: 3}
    scene.send(7, T[0], T[1], T[3])
    scene.send(8, T[2])
    second, third = await scene.lane(2), await scene.lane(3)
    fenced = ErrorCode.TRANSACTION_COORDINATOR_FENCED
    answer(second, {T[0]: fenced, T[1]: ErrorCode.NOT_ENOUGH_REPLICAS})
    answer(third, {T[3]: ErrorCode.NOT_ENOUGH_REPLICAS})
    assert scene.written == [(8, T[2])]
    assert scene.sender.retries == 0


@told
async def test_a_partition_without_a_leader_waits_for_one(scene: Scene) -> None:
    """Kafka takes it for deleted: the transaction would stay open in it for ever."""
    scene.broker.leaders = {T[0]: NO_LEADER, T[1]: 2}
    scene.send(7, T[0], T[1])
    answer(await scene.lane(2))
    scene.lead({T[0]: NO_LEADER, T[1]: 2})
    await turns()
    assert scene.written == [(7, T[1])]
    assert scene.sender.retries == 1
    scene.lead({T[0]: 3, T[1]: 2})
    answer(await scene.lane(3))
    assert scene.written == [(7, T[1]), (7, T[0])]


@told
async def test_a_leader_without_an_address_is_none(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2}
    scene.broker.fenced = {2}
    scene.send(7, T[0])
    await turns()
    assert not scene.broker.lanes
    scene.broker.fenced = set()
    scene.lead({T[0]: 2})
    answer(await scene.lane(2))
    assert scene.written == [(7, T[0])]


@told
async def test_a_partition_that_is_gone_needs_no_marker(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: NO_LEADER}
    scene.send(7, T[0], T[1])
    assert scene.written == [(7, T[1])]
    scene.lead({})
    assert scene.written == [(7, T[1]), (7, T[0])]


@told
async def test_what_waits_for_a_broker_goes_to_the_new_leader(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2, T[1]: 2}
    scene.send(7, T[0])
    second = await scene.lane(2)
    scene.send(8, T[1])
    scene.lead({T[0]: 2, T[1]: 3})
    answer(second)
    answer(await scene.lane(3))
    assert scene.written == [(7, T[0]), (8, T[1])]
    assert len(second.sent) == 1


@told
async def test_a_broker_that_is_fenced_keeps_nothing(scene: Scene) -> None:
    """A process that is stopped neither answers nor closes its connection."""
    scene.broker.leaders = {T[0]: 2}
    scene.send(7, T[0])
    second = await scene.lane(2)
    scene.broker.fenced = {2}
    scene.lead({T[0]: 3})
    assert second.drops
    answer(await scene.lane(3))
    assert scene.written == [(7, T[0])]


@told
async def test_a_coordinator_that_lost_its_shard_sends_and_takes_nothing_more(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2, T[1]: 2, T[2]: NO_LEADER}
    scene.send(7, T[0])
    lane = await scene.lane(2)
    scene.send(8, T[1], T[2])
    scene.is_over = True
    answer(lane)
    scene.lead(dict.fromkeys(T, 2))
    await turns()
    assert len(lane.sent) == 1
    assert scene.written == []
    assert scene.sender.retries == 0


@told
async def test_markers_of_two_epochs_of_a_coordinator_do_not_mix(scene: Scene) -> None:
    """Answers name producer ids only."""
    scene.broker.leaders = {T[0]: 2, T[1]: 2}
    scene.send(7, T[0], epoch=3)
    scene.send(7, T[1], epoch=4)
    lane = await scene.lane(2)
    assert asked(lane) == {7: [T[0]]}
    answer(lane)
    await scene.lane(2, requests=2)
    assert asked(lane) == {7: [T[1]]}


@told
async def test_what_is_under_way_when_the_broker_stops_is_dropped(scene: Scene) -> None:
    scene.broker.leaders = {T[0]: 2, T[1]: NO_LEADER}
    scene.send(7, T[0], T[1])
    lane = await scene.lane(2)
    scene.sender.close()
    assert lane.is_closed
    scene.lead({T[0]: 3, T[1]: 3})
    await turns()
    assert list(scene.broker.lanes) == [2]
    assert scene.written == []


def test_a_transaction_of_many_partitions_is_looked_at_in_steps() -> None:
    async def story() -> None:
        scene = Scene()
        partitions = [TopicPartition("t", number) for number in range(1_000)]
        scene.broker.leaders = dict.fromkeys(partitions, 1)
        steps = scene.sender._route_in_steps(scene.send(7), partitions)
        count = sum(1 for _ in steps)
        assert count == 1_000 // marker_sender.PARTITIONS_PER_STEP

    asyncio.run(story())
