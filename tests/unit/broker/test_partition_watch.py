"""A leader logs once that its partitions lack replicas, that one flaps, and what moves wait for."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from odradek.broker.broker_server import BrokerServer
from odradek.core.event import Event
from odradek.core.ids import Uuid
from odradek.protocol.generated.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.unit.broker.test_replica_changes import MINE, OTHER, created, take_effect

TOPIC_ID = Uuid(b"a-watched-topic!")
PARTITIONS = 12
REPLICAS = {
    "replicas": [MINE, OTHER],
    "isr": [MINE, OTHER],
    "leader_epoch": 0,
    "partition_epoch": 0,
}
Apply = Callable[..., Awaitable[None]]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "odradek.replication")
    return caplog


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, dict[str, object]]]:
    """Return what was logged since the last call: the beginnings of names, and fields."""
    found = [each.msg for each in caplog.records if each.name == "odradek.replication"]
    caplog.clear()
    return [
        (each.name.partition(":")[0], dict(each.fields))
        for each in found
        if isinstance(each, Event)
    ]


def run(story: Callable[[BrokerServer, Apply], Awaitable[None]]) -> None:
    async def main() -> None:
        config = {"node.id": str(MINE), "min.insync.replicas": "2"}
        async with Broker(memory=True, own_thread=False, config=config) as broker:
            server = broker.node.broker
            image = server.image

            async def apply(*records: Message) -> None:
                nonlocal image
                update = image.advance(records)
                image = update.image
                await take_effect(server, update)

            await apply(*created("t", TOPIC_ID, PARTITIONS, **REPLICAS))
            await story(server, apply)

    asyncio.run(main())


def isr(*members: int, number: int = 0) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPIC_ID, partition_id=number, isr=list(members))


def test_partitions_under_min_isr_are_one_line_when_it_begins_and_one_when_it_is_over(
    lines: pytest.LogCaptureFixture,
) -> None:
    async def story(_: BrokerServer, apply: Apply) -> None:
        assert events(lines) == []
        await apply(*(isr(MINE, number=number) for number in range(PARTITIONS)))
        ((name, fields),) = events(lines)
        assert name.startswith("partitions are under min.insync.replicas")
        assert (fields["count"], fields["missing"]) == (PARTITIONS, [str(OTHER)])
        assert fields["partitions"] == sorted(f"t-{number}" for number in range(10))
        await apply(isr(MINE))
        await apply(isr(MINE, OTHER))
        assert events(lines) == [], "others still are"
        await apply(*(isr(MINE, OTHER, number=number) for number in range(1, PARTITIONS)))
        ((name, _fields),) = events(lines)
        assert name == "no partition that is led here is under min.insync.replicas any more"

    run(story)


def test_a_topic_that_is_deleted_is_under_nothing_any_more(
    lines: pytest.LogCaptureFixture,
) -> None:
    async def story(_: BrokerServer, apply: Apply) -> None:
        other = Uuid(b"another-topic-id")
        await apply(isr(MINE), *created("u", other, 1, **REPLICAS))
        await apply(RemoveTopicRecord(topic_id=TOPIC_ID))
        events(lines)
        await apply(PartitionChangeRecord(topic_id=other, partition_id=0, isr=[MINE]))
        await apply(PartitionChangeRecord(topic_id=other, partition_id=0, isr=[MINE, OTHER]))
        assert [name[:14] for name, _ in events(lines)] == ["partitions are", "no partition t"]

    run(story)


def test_a_replica_that_leaves_and_rejoins_is_one_line(lines: pytest.LogCaptureFixture) -> None:
    async def story(_: BrokerServer, apply: Apply) -> None:
        for _round in range(2):
            await apply(isr(MINE))
            await apply(isr(MINE, OTHER))
        assert not any("repeatedly" in name for name, _ in events(lines))
        for _round in range(3):
            await apply(isr(MINE))
            await apply(isr(MINE, OTHER))
        ((_name, fields),) = [each for each in events(lines) if "repeatedly" in each[0]]
        assert (fields["broker_id"], fields["times"], fields["partitions"]) == (7, 3, ["t-0"])

    run(story)


def test_a_move_to_a_broker_that_is_fenced_is_one_line_until_it_is_back(
    lines: pytest.LogCaptureFixture,
) -> None:
    def fencing(value: int) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(broker_id=9, broker_epoch=5, fenced=value)

    def move(number: int) -> PartitionChangeRecord:
        return PartitionChangeRecord(
            topic_id=TOPIC_ID,
            partition_id=number,
            replicas=[MINE, OTHER, 9],
            adding_replicas=[9],
            removing_replicas=[],
        )

    async def story(_: BrokerServer, apply: Apply) -> None:
        await apply(RegisterBrokerRecord(broker_id=9, broker_epoch=5, fenced=False))
        await apply(move(0))
        assert events(lines) == []
        await apply(fencing(1))
        ((name, fields),) = events(lines)
        assert name == "moves of partitions wait for a broker that is fenced"
        assert (fields["broker_id"], fields["partitions"]) == (9, ["t-0"])
        await apply(move(1))
        await apply(fencing(-1))
        assert events(lines) == []
        await apply(fencing(1))
        ((_name, fields),) = events(lines)
        assert fields["partitions"] == ["t-0", "t-1"]

    run(story)
