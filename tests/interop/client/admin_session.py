"""Runs a piece of admin work to its end, with a deadline, and hands out names of its own."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, TypeVar

import confluent_kafka

from odradek.client.admin.admin import Admin

T = TypeVar("T")

SECONDS_MAX = 120
_numbers = count(1)


def fresh(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"


def with_admin(address: str, work: Callable[[Admin], Awaitable[T]], **settings: Any) -> T:
    async def main() -> T:
        async with Admin(bootstrap_servers=address, **settings) as admin:
            return await work(admin)

    return asyncio.run(asyncio.wait_for(main(), SECONDS_MAX))


def produce(address: str, topic: str, values: list[bytes], **settings: Any) -> None:
    """Write records with librdkafka, to partition 0, with timestamps 1000, 2000, …"""
    # What Kafka refuses, because it does not lead a new topic yet, is neither doubled nor mixed up.
    own = {"bootstrap.servers": address, "enable.idempotence": True}
    producer = confluent_kafka.Producer({**own, **settings})
    for number, value in enumerate(values, 1):
        producer.produce(topic, value, partition=0, timestamp=number * 1000)
    assert producer.flush(SECONDS_MAX) == 0


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what brokers hear of later than the controller does."""
    deadline = asyncio.get_running_loop().time() + SECONDS_MAX
    while not await holds():
        assert asyncio.get_running_loop().time() < deadline, "it never came to be"
        await asyncio.sleep(0.02)
