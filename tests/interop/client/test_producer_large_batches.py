"""A producer that sends faster than it can: batches grow, and topics that want none get none."""

import asyncio
from collections.abc import Iterator, Mapping

import pytest

from odradek.client.producer import Producer
from odradek.client.settings import as_settings
from odradek.testing.broker import Broker
from tests.interop.client.produced_records import new_topic, read_topic

SECONDS_MAX = 120
BATCH_SIZE = 16_384
VALUES = [b"%01000d" % number for number in range(400)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


def produce(servers: str, topic: str, settings: Mapping[str, int]) -> dict[str, float]:
    """Send all in one go; return metrics by their names."""

    async def main() -> dict[str, float]:
        async with (
            asyncio.timeout(SECONDS_MAX),
            Producer(as_settings(settings), bootstrap_servers=servers) as producer,
        ):
            futures = [await producer.send(topic, value) for value in VALUES]
            await producer.flush()
            assert [each.result().offset for each in futures] == list(range(len(VALUES)))
            return {
                each.name: value
                for each, value in producer.metrics().items()
                if each.group == "producer-metrics"
            }

    return asyncio.run(main())


@pytest.mark.parametrize("settings", [{}, {"batch.size": BATCH_SIZE}], ids=["default", "chosen"])
def test_batches_grow_unless_their_size_was_chosen(
    broker: Broker, settings: Mapping[str, int]
) -> None:
    topic = new_topic(broker.bootstrap_servers)
    metrics = produce(broker.bootstrap_servers, topic, settings)
    assert [each.value for each in read_topic(broker.bootstrap_servers, topic)] == VALUES
    largest = metrics["batch-size-max"]
    assert largest <= BATCH_SIZE if settings else BATCH_SIZE < largest <= 4 * BATCH_SIZE


def test_a_topic_that_takes_no_large_batches_gets_all_its_records(broker: Broker) -> None:
    topic = new_topic(broker.bootstrap_servers, configs={"max.message.bytes": "20000"})
    metrics = produce(broker.bootstrap_servers, topic, {})
    assert [each.value for each in read_topic(broker.bootstrap_servers, topic)] == VALUES
    assert metrics["batch-split-total"] >= 1
