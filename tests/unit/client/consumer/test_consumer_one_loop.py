"""One fetch at a time serves all partitions of a broker, and a slow one does not hold up others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client import Consumer, Producer
from odradek.core.ids import TopicPartition
from odradek.testing.broker import Broker

PARTITIONS = 8
SLOW, *OTHERS = [TopicPartition("t", number) for number in range(PARTITIONS)]
LOOK_SECONDS = 0.01


async def send(broker: Broker, partitions: list[TopicPartition]) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for partition in partitions:
            await (await producer.send("t", b"x", partition=partition.partition))


async def read(consumer: Consumer, count: int) -> set[TopicPartition]:
    found: list[TopicPartition] = []
    while len(found) < count:
        for partition, records in (await consumer.poll(60)).items():
            found += [partition] * len(records)
    return set(found)


@asynccontextmanager
async def reading(broker: Broker, **settings: Any) -> AsyncIterator[Consumer]:
    """Yield a consumer that has read one record of each partition."""
    async with (
        asyncio.timeout(120),
        Consumer(bootstrap_servers=broker.bootstrap_servers, **settings) as consumer,
    ):
        consumer.assign([SLOW, *OTHERS])
        consumer.seek_to_beginning()
        await send(broker, [SLOW, *OTHERS])
        assert await read(consumer, PARTITIONS) == {SLOW, *OTHERS}
        yield consumer


@pytest.mark.seed_row("2.4")
def test_one_fetch_asks_a_broker_for_all_its_partitions() -> None:
    async def scenario(broker: Broker) -> None:
        async with reading(broker, fetch_max_wait_ms=60_000) as consumer:
            for partition in (SLOW, *OTHERS):
                while len(broker.node.broker.delayed) != 1:
                    await asyncio.sleep(LOOK_SECONDS)
                await send(broker, [partition])  # the one that waits brings it
                assert await read(consumer, 1) == {partition}

    with Broker(topics={"t": PARTITIONS}, memory=True) as broker:
        asyncio.run(scenario(broker))


@pytest.mark.seed_row("2.4")
def test_a_partition_that_the_application_is_slow_with_holds_up_no_other() -> None:
    async def scenario(broker: Broker) -> None:
        async with reading(broker) as consumer:
            consumer.pause([SLOW])
            for _ in range(5):
                await send(broker, [SLOW, *OTHERS])
                assert await read(consumer, len(OTHERS)) == set(OTHERS)
            consumer.resume([SLOW])
            assert await read(consumer, 5) == {SLOW}

    with Broker(topics={"t": PARTITIONS}, memory=True) as broker:
        asyncio.run(scenario(broker))
