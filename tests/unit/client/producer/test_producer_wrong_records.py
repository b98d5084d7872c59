"""A record that cannot be sent is refused in words that say what to change, and where."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client import BlockingProducer, BrokerError, ErrorCode, Producer
from odradek.client.settings import as_settings
from odradek.testing.broker import Broker

SECONDS_MAX = 120
WRONG_HEADERS = [
    ({"trace": b"1"}, r"headers.*pairs.*not dict.*list\(headers\.items\(\)\)"),
    ({"ab": b"1"}, r"headers.*pairs.*not dict"),
    ("ab", r"headers.*pairs.*not str"),
    ([("trace", "1")], r"header 'trace'.*value.*bytes or None, not str.*encode\(\)"),
    ([("trace", 1)], r"header 'trace'.*value.*bytes or None, not int"),
    ([("trace",)], r"header 0.*pair.*not \('trace',\)"),
    ([("a", b"1"), "bc"], r"header 1.*pair.*not 'bc'"),
    ([(5, b"1")], r"header 0.*key.*str or bytes, not int"),
    ((pair for pair in [("a", b"1")]), r"headers.*list.*generator"),
    (5, r"headers.*pairs.*not int"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True, topics=["t"]) as started:
        yield started


@pytest.mark.parametrize(("headers", "words"), WRONG_HEADERS, ids=lambda each: repr(each)[:20])
def test_headers_of_a_wrong_shape_are_refused_in_our_words(
    broker: Broker, headers: Any, words: str
) -> None:
    async def send() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(2):  # into a new batch, and one that may be open
                with pytest.raises(TypeError, match=words):
                    await producer.send("t", b"x", headers=headers)
                await producer.send("t", b"x", headers=[("fine", b"1"), (b"too", None)])
                await producer.send("t", b"x", headers=None)

    asyncio.run(asyncio.wait_for(send(), SECONDS_MAX))


def test_a_blocking_producer_tells_of_wrong_headers_by_the_future(broker: Broker) -> None:
    wrong: Any = {"ab": b"1"}
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for _ in range(2):
            with pytest.raises(TypeError, match=r"pairs.*not dict"):
                producer.send("t", b"x", headers=wrong).result(SECONDS_MAX)
            producer.send("t", b"x", headers=[("fine", b"1")])


def test_a_record_over_a_limit_of_the_producer_names_that_limit_and_not_the_topics(
    broker: Broker,
) -> None:
    address = broker.bootstrap_servers

    async def refusal(name: str, limit: int) -> str:
        async with Producer(as_settings({name: limit, "bootstrap.servers": address})) as producer:
            with pytest.raises(BrokerError) as told:
                await producer.send("t", bytes(3_000))
            assert told.value.code is ErrorCode.MESSAGE_TOO_LARGE
            return str(told.value)

    async def both() -> list[str]:
        return [await refusal("max.request.size", 2_000), await refusal("buffer.memory", 1_000)]

    request, memory = asyncio.run(asyncio.wait_for(both(), SECONDS_MAX))
    assert "max.request.size (2000)" in request
    assert "raise max.request.size of the producer" in request
    assert "buffer.memory (1000)" in memory
    assert "raise buffer.memory of the producer" in memory
    assert "raise max.message.bytes" not in request + memory


def test_a_record_over_the_topics_limit_still_names_that_one(broker: Broker) -> None:
    broker.create_topic("small", max_message_bytes="1000")

    async def refusal() -> str:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(BrokerError) as told:
                await (await producer.send("small", bytes(3_000)))
            return str(told.value)

    told = asyncio.run(asyncio.wait_for(refusal(), SECONDS_MAX))
    assert "raise max.message.bytes of the topic" in told
