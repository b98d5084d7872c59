"""Questions to coordinators of transactions that answer, refuse, vanish, or are asked twice."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker import verification_sender
from odradek.broker.transaction_coordinator import TransactionCoordinator
from odradek.broker.verification_sender import Errors, Question, VerificationSender
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from odradek.wire.lane import LaneFailure
from tests.unit.broker.scripted_peers import NODE_ID, ScriptedBroker, ScriptedLane, until

NONE = ErrorCode.NONE
FENCED = ErrorCode.INVALID_PRODUCER_EPOCH
AGAIN = ErrorCode.NETWORK_EXCEPTION
NOT_AVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene:
    def __init__(self) -> None:
        self.broker = ScriptedBroker(asyncio.get_running_loop().call_soon)
        self.coordinators: dict[str, int | None] = {"tx": 2, "ty": 2, "tz": 3}
        self.asked_here: list[tuple[Any, ...]] = []
        self.sender = VerificationSender(cast("Any", self.broker))
        self._transactions: Any = SimpleNamespace(
            _broker=self.broker,
            _questions=self.sender,
            leader_for=self.coordinators.get,
            add_or_verify=self._add_or_verify,
        )
        self.answers: list[tuple[str, int, Errors]] = []

    def _add_or_verify(self, *asked: Any, is_add: bool, version: int) -> None:
        self.asked_here.append((*asked[:3], is_add, version))
        asked[4](dict.fromkeys(asked[3], NONE))

    def ask(
        self,
        transactional_id: str = "tx",
        *partitions: TopicPartition,
        producer_id: int = 7,
        epoch: int = 0,
        is_add: bool = False,
    ) -> None:
        def then(errors: Errors) -> None:
            self.answers.append((transactional_id, epoch, errors))

        version = 2 if is_add else 0
        wanted = list(partitions or (T0,))
        asked = transactional_id, producer_id, epoch, wanted, then
        TransactionCoordinator.ask_coordinator(
            self._transactions, *asked, is_add=is_add, version=version
        )

    async def lane(self, broker_id: int = 2, requests: int = 1) -> ScriptedLane:
        lanes = self.broker.lanes
        await until(lambda: broker_id in lanes and len(lanes[broker_id].sent) >= requests)
        return lanes[broker_id]

    async def busy(self) -> ScriptedLane:
        """Return the lane to a broker that has a request already; what is asked now waits."""
        self.ask("ty")
        return await self.lane()

    @property
    def codes(self) -> list[tuple[str, int, set[ErrorCode]]]:
        return [(name, epoch, set(errors.values())) for name, epoch, errors in self.answers]


def request_of(lane: ScriptedLane) -> AddPartitionsToTxnRequest:
    request = lane.sent[-1]
    assert isinstance(request, AddPartitionsToTxnRequest)
    return request


def answer(lane: ScriptedLane, **codes: ErrorCode) -> None:
    """Answer the last request, each transaction with one code for all its partitions."""
    results = [
        AddPartitionsToTxnResult(
            transactional_id=each.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=number,
                            partition_error_code=codes.get(each.transactional_id, NONE),
                        )
                        for number in topic.partitions
                    ],
                )
                for topic in each.topics
            ],
        )
        for each in request_of(lane).transactions
    ]
    lane.answer(AddPartitionsToTxnResponse(results_by_transaction=results))


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def told(story: Story) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await story(Scene())

        asyncio.run(run())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@told
async def test_questions_about_many_transactions_go_in_one_request(scene: Scene) -> None:
    scene.ask("tx", T0, T1, producer_id=7, epoch=4)
    scene.ask("ty", T1, producer_id=8, is_add=True)
    scene.ask("tz")
    lane = await scene.lane(2)
    first, second = request_of(lane).transactions
    assert (first.transactional_id, first.producer_id, first.producer_epoch) == ("tx", 7, 4)
    assert (first.verify_only, first.topics[0].partitions) == (True, [0, 1])
    assert (second.transactional_id, second.verify_only) == ("ty", False)
    answer(lane, ty=ErrorCode.CONCURRENT_TRANSACTIONS)
    assert scene.answers == [
        ("tx", 4, {T0: NONE, T1: NONE}),
        ("ty", 0, {T1: ErrorCode.CONCURRENT_TRANSACTIONS}),
    ]
    answer(await scene.lane(3))
    assert scene.codes[2] == ("tz", 0, {NONE})


@told
async def test_one_request_is_under_way_to_a_coordinator(scene: Scene) -> None:
    lane = await scene.busy()
    scene.ask("tx")
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(lane.sent) == 1
    answer(lane)
    await scene.lane(requests=2)
    assert [each.transactional_id for each in request_of(lane).transactions] == ["tx"]


@told
async def test_this_brokers_own_shard_is_asked_without_a_request(scene: Scene) -> None:
    scene.coordinators["tx"] = NODE_ID
    scene.ask("tx", epoch=3, is_add=True)
    assert scene.asked_here == [("tx", 7, 3, True, 2)]
    assert scene.codes == [("tx", 3, {NONE})]
    assert not scene.broker.lanes


@told
async def test_without_a_coordinator_none_is_asked(scene: Scene) -> None:
    scene.coordinators["tx"] = None
    scene.ask("tx")
    assert scene.codes == [("tx", 0, {NOT_AVAILABLE})]


@told
async def test_a_newer_epoch_takes_the_place_of_one_that_waits(scene: Scene) -> None:
    lane = await scene.busy()
    scene.ask("tx", epoch=1)
    scene.ask("tx", epoch=2)
    assert scene.codes == [("tx", 1, {FENCED})]
    answer(lane)
    await scene.lane(requests=2)
    (asked,) = request_of(lane).transactions
    assert asked.producer_epoch == 2
    answer(lane)
    assert scene.codes[-1] == ("tx", 2, {NONE})


@told
async def test_the_same_epoch_again_has_the_first_try_again(scene: Scene) -> None:
    lane = await scene.busy()
    scene.ask("tx", T0, epoch=1)
    scene.ask("tx", T1, epoch=1)
    assert scene.answers == [("tx", 1, {T0: AGAIN})]
    answer(lane)
    await scene.lane(requests=2)
    answer(lane)
    assert scene.answers[-1] == ("tx", 1, {T1: NONE})


@told
async def test_an_older_epoch_is_not_asked_about(scene: Scene) -> None:
    lane = await scene.busy()
    scene.ask("tx", epoch=2)
    scene.ask("tx", epoch=1)
    assert scene.codes == [("tx", 1, {FENCED})]
    answer(lane)
    await scene.lane(requests=2)
    assert request_of(lane).transactions[0].producer_epoch == 2


@told
async def test_epochs_of_different_producer_ids_fence_nothing(scene: Scene) -> None:
    """After the last epoch comes the first of another producer id."""
    await scene.busy()
    scene.ask("tx", producer_id=7, epoch=32_767)
    scene.ask("tx", producer_id=9, epoch=0)
    assert scene.codes == [("tx", 32_767, {AGAIN})]


@told
async def test_a_client_that_asks_again_at_once_is_answered_once_for_each(scene: Scene) -> None:
    """Its answer brings the next request of its connection, from inside."""
    await scene.busy()
    heard: list[ErrorCode] = []

    def again(errors: Errors) -> None:
        heard.append(errors[T0])
        scene.ask("tx", epoch=1)

    scene.sender.ask(2, Question("tx", 7, 1, [T0], False, 0, again))
    scene.ask("tx", epoch=1)
    assert heard == [AGAIN]
    assert scene.codes == [("tx", 1, {AGAIN})]


@told
async def test_an_answer_that_does_not_come_is_to_be_tried_again(scene: Scene) -> None:
    scene.ask("tx", T0, T1)
    (await scene.lane()).fail()
    assert scene.answers == [("tx", 0, {T0: AGAIN, T1: AGAIN})]
    scene.ask("tx")
    answer(await scene.lane(requests=2))
    assert scene.codes[-1] == ("tx", 0, {NONE})


@told
async def test_a_coordinator_that_is_fenced_keeps_no_question(scene: Scene) -> None:
    scene.ask("tx")
    lane = await scene.lane()
    scene.sender.on_update()
    assert lane.in_flight == 1
    scene.broker.fenced = {2}
    scene.sender.on_update()
    assert scene.codes == [("tx", 0, {AGAIN})]


@told
async def test_what_an_answer_leaves_out_may_not_be_written(scene: Scene) -> None:
    scene.ask("tx", T0, T1)
    scene.ask("ty")
    result = AddPartitionsToTxnPartitionResult(partition_index=0)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[result])
    only = AddPartitionsToTxnResult(transactional_id="tx", topic_results=[topic])
    (await scene.lane()).answer(AddPartitionsToTxnResponse(results_by_transaction=[only]))
    assert scene.answers == [("tx", 0, {T0: NONE, T1: AGAIN}), ("ty", 0, {T0: AGAIN})]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1_234, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_request_that_is_refused_as_a_whole(code: int, expected: ErrorCode) -> None:
    async def story() -> None:
        scene = Scene()
        scene.ask("tx")
        (await scene.lane()).answer(AddPartitionsToTxnResponse(error_code=code))
        assert scene.codes == [("tx", 0, {expected})]

    asyncio.run(story())


@pytest.mark.parametrize(("is_add", "code"), [(False, NONE), (True, AGAIN)])
def test_a_coordinator_that_cannot_verify_is_trusted_but_adds_nothing(
    is_add: bool, code: ErrorCode
) -> None:
    async def story() -> None:
        scene = Scene()
        scene.ask("tx", is_add=is_add)
        (await scene.lane()).fail(LaneFailure.UNSUPPORTED)
        assert scene.codes == [("tx", 0, {code})]

    asyncio.run(story())


def test_there_is_a_limit_to_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification_sender, "WAITING_MAX", 1)
    monkeypatch.setattr(verification_sender, "PER_REQUEST_MAX", 1)

    async def story() -> None:
        scene = Scene()
        await scene.busy()
        scene.coordinators.update(a=2, b=2)
        scene.ask("a")
        scene.ask("b")
        assert scene.codes == [("b", 0, {NOT_AVAILABLE})]
        scene.ask("a")
        assert scene.codes[1:] == [("a", 0, {AGAIN})]

    asyncio.run(story())


@told
async def test_a_broker_that_stops_answers_what_waits_and_asks_no_more(scene: Scene) -> None:
    await scene.busy()
    scene.ask("tx")
    scene.sender.close()
    assert sorted(scene.codes) == [("tx", 0, {NOT_AVAILABLE}), ("ty", 0, {AGAIN})]
    scene.ask("tz")
    assert scene.codes[-1] == ("tz", 0, {NOT_AVAILABLE})
