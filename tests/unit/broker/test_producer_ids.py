"""Producer ids out of blocks, from a controller that is slow, refuses, or loses its answers."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker import producer_ids
from odradek.broker.controller_port import Failed, Then
from odradek.broker.producer_ids import ProducerIds
from odradek.core.errors import ApiError, ErrorCode
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.message import Message
from tests.unit.broker.scripted_peers import until

BLOCK = 10
PREFETCHED_AT = 10
"""The ninth tenth is used with the ninth id; the tenth asks."""
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Scene:
    """A controller that gives blocks in order; questions wait for ``answer``, ``lose``, ..."""

    def __init__(self) -> None:
        self.next_block = 0
        self.requests: list[AllocateProducerIdsRequest] = []
        self.given: list[int] = []
        self.refused: list[ErrorCode] = []
        self.broker = SimpleNamespace(node_id=1, broker_epoch=5, controller=self)
        self.ids = ProducerIds(cast("Any", self.broker))
        self._waiting: list[tuple[Then, Failed]] = []

    def ask(self, request: Message, then: Then, failed: Failed) -> None:
        assert isinstance(request, AllocateProducerIdsRequest)
        self.requests.append(request)
        self._waiting.append((then, failed))

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            self.ids.next(self.given.append, self.refused.append)

    def reply(self, start: int, count: int = BLOCK, error_code: int = 0) -> None:
        then, _ = self._waiting.pop(0)
        then(
            AllocateProducerIdsResponse(
                producer_id_start=start, producer_id_len=count, error_code=error_code
            )
        )

    def answer(self) -> None:
        start = self.next_block
        self.next_block += BLOCK
        self.reply(start)

    def refuse(self, code: ErrorCode) -> None:
        self.reply(-1, 0, code)

    def lose(self) -> None:
        """Lose the answer: the controller has given the block away."""
        self.next_block += BLOCK
        _, failed = self._waiting.pop(0)
        failed(ApiError(ErrorCode.REQUEST_TIMED_OUT))

    async def asked(self, requests: int) -> None:
        await until(lambda: len(self.requests) >= requests)


Story = Callable[[Scene], Coroutine[Any, Any, None]]


def told(story: Story) -> Callable[[], None]:
    def test() -> None:
        async def run() -> None:
            await story(Scene())

        asyncio.run(run())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@told
async def test_clients_wait_for_the_first_block_and_one_request_is_under_way(scene: Scene) -> None:
    scene.take(3)
    assert scene.given == []
    assert len(scene.requests) == 1
    assert (scene.requests[0].broker_id, scene.requests[0].broker_epoch) == (1, 5)
    scene.answer()
    assert scene.given == [0, 1, 2]


@told
async def test_the_next_block_is_asked_for_before_this_one_is_used_up(scene: Scene) -> None:
    scene.take()
    scene.answer()
    scene.take(PREFETCHED_AT - 2)
    assert len(scene.requests) == 1
    scene.take()
    assert len(scene.requests) == 2
    scene.answer()
    scene.take(5)
    assert scene.given == list(range(PREFETCHED_AT + 5))
    assert len(scene.requests) == 2


@told
async def test_who_comes_before_the_next_block_waits(scene: Scene) -> None:
    scene.take()
    scene.answer()
    scene.take(BLOCK + 2)
    assert len(scene.given) == BLOCK
    scene.answer()
    assert scene.given == list(range(BLOCK + 3))


@told
async def test_a_lost_answer_wastes_a_block(scene: Scene) -> None:
    scene.take()
    scene.lose()
    assert scene.refused == [LOADING]
    scene.take()
    await scene.asked(2)
    scene.answer()
    assert scene.given == [BLOCK]


@told
async def test_after_a_stale_epoch_it_is_asked_with_the_new_one(scene: Scene) -> None:
    scene.take()
    scene.broker.broker_epoch = 9
    scene.refuse(ErrorCode.STALE_BROKER_EPOCH)
    assert scene.refused == [LOADING]
    scene.take()
    assert len(scene.requests) == 1, "it waits a moment"
    await scene.asked(2)
    assert scene.requests[1].broker_epoch == 9
    scene.answer()
    assert scene.given == [0]


@pytest.mark.parametrize(
    ("start", "count"), [(0, BLOCK), (BLOCK - 1, BLOCK), (-5, 3), (2 * BLOCK, 0), (2**63 - 5, 10)]
)
def test_a_block_that_makes_no_sense_is_not_used(start: int, count: int) -> None:
    """A controller that gives a block twice has forgotten what it gave."""

    async def story() -> None:
        scene = Scene()
        scene.take()
        scene.answer()
        scene.take(BLOCK)
        scene.reply(start, count)
        assert scene.given == list(range(BLOCK))
        assert scene.refused == [LOADING]

    asyncio.run(story())


def test_there_is_a_limit_to_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_ids, "WAITING_MAX", 2)

    async def story() -> None:
        scene = Scene()
        scene.take(3)
        assert scene.refused == [LOADING]
        scene.answer()
        assert scene.given == [0, 1]

    asyncio.run(story())


@told
async def test_a_broker_that_stops_asks_no_more(scene: Scene) -> None:
    scene.ids.close()
    scene.take()
    assert scene.requests == []
