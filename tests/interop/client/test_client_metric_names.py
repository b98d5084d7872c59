"""What clients say of themselves: names that Kafka's have too, and figures that add up."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.blocking.producer import BlockingProducer
from odradek.client.consumer import Consumer, TopicPartition
from odradek.client.errors import BrokerError
from odradek.client.metrics import MetricName, Metrics
from odradek.client.producer import Producer
from odradek.testing.broker import Broker
from tests.interop.client.consumer_session import fill, fresh, make_topic, produce, read, run
from tests.interop.kafka_peer import kafka_tool
from tests.interop.odradek_tool import odradek_tool

LINE = re.compile(r"([a-z-]+):([a-z-]+):\{.*\} +: ")


def value(metrics: Metrics, group: str, name: str, **tags: str) -> float:
    """Return the one that has these tags beside that of the client."""
    wanted = tuple((tag, each) for tag, each in tags.items())
    found = [
        each
        for metric, each in metrics.items()
        if (metric.group, metric.name) == (group, name) and metric.tags[1:] == wanted
    ]
    assert len(found) == 1, (group, name, tags)
    return found[0]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True) as started:
        yield started


def test_a_producer_counts_what_it_sends(cluster_address: str) -> None:
    topic = make_topic(cluster_address)

    async def scenario() -> None:
        given: dict[str, Any] = {"bootstrap_servers": cluster_address, "client_id": "counted"}
        producer = Producer(**given)
        assert producer.metrics() == {}
        async with producer:
            for _ in range(100):
                await producer.send(topic, b"x" * 100)
            await producer.flush()
            metrics = producer.metrics()
        name = MetricName("producer-metrics", "record-send-total", (("client-id", "counted"),))
        assert metrics[name] == 100
        assert value(metrics, "producer-topic-metrics", "record-send-total", topic=topic) == 100
        sent = value(metrics, "producer-topic-metrics", "byte-total", topic=topic)
        assert 10_000 < sent < 12_000
        assert value(metrics, "producer-metrics", "record-send-rate") > 0
        assert value(metrics, "producer-metrics", "batch-size-max") <= sent
        assert value(metrics, "producer-metrics", "batch-size-avg") > 0
        assert value(metrics, "producer-metrics", "records-per-request-avg") > 0
        assert value(metrics, "producer-metrics", "record-error-total") == 0
        assert value(metrics, "producer-metrics", "request-latency-max") > 0
        assert value(metrics, "producer-metrics", "requests-in-flight") == 0
        total = value(metrics, "producer-metrics", "buffer-total-bytes")
        assert value(metrics, "producer-metrics", "buffer-available-bytes") == total
        assert value(metrics, "producer-metrics", "outgoing-byte-total") > sent
        assert value(metrics, "producer-metrics", "connection-count") == 2
        closed = producer.metrics()
        assert value(closed, "producer-metrics", "connection-count") == 0

    run(scenario)


def test_errors_and_retries_of_a_producer_are_counted(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers)

    async def scenario() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            broker.fail("Produce", "NOT_ENOUGH_REPLICAS", times=1, topic=topic)
            await (await producer.send(topic, b"again"))
            broker.fail("Produce", "INVALID_RECORD", times=1, topic=topic)
            refused = await producer.send(topic, b"never")
            with pytest.raises(BrokerError):
                await refused
            metrics = producer.metrics()
        assert value(metrics, "producer-metrics", "record-retry-total") == 1
        assert value(metrics, "producer-metrics", "record-error-total") == 1
        assert value(metrics, "producer-topic-metrics", "record-error-total", topic=topic) == 1

    run(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_counts_what_it_reads(cluster_address: str, protocol: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    fill(cluster_address, topic, 10, 1)
    manager = "consumer-fetch-manager-metrics"

    async def scenario() -> None:
        given: dict[str, Any] = {"group_protocol": protocol, "auto_offset_reset": "earliest"}
        given |= {"bootstrap_servers": cluster_address, "group_id": group, "max_poll_records": 5}
        given["enable_auto_commit"] = False  # after five seconds there would be one more commit
        if protocol == "classic":
            given["heartbeat_interval_ms"] = 50
        async with Consumer(topic, **given) as consumer:
            records = (await consumer.poll())[TopicPartition(topic, 0)]
            assert len(records) == 5
            lag = value(consumer.metrics(), manager, "records-lag", topic=topic, partition="0")
            assert lag == 5
            await read(consumer, 5)
            await consumer.commit()
            await heartbeat_of(consumer)
            metrics = consumer.metrics()
        assert value(metrics, manager, "records-consumed-total") == 10
        assert value(metrics, manager, "records-consumed-total", topic=topic) == 10
        assert value(metrics, manager, "bytes-consumed-total") > 30
        assert value(metrics, manager, "records-lag-max") == 0
        assert value(metrics, manager, "fetch-total") >= 1
        assert value(metrics, manager, "fetch-latency-max") > 0
        coordinator = "consumer-coordinator-metrics"
        assert value(metrics, coordinator, "commit-total") == 1
        assert value(metrics, coordinator, "commit-latency-avg") > 0
        assert value(metrics, coordinator, "assigned-partitions") == 1
        joins = value(metrics, coordinator, "join-total")
        assert (joins > 0) == (protocol == "classic")
        assert value(metrics, "consumer-metrics", "last-poll-seconds-ago") >= 0

    async def heartbeat_of(consumer: Consumer) -> None:
        while not value(consumer.metrics(), "consumer-coordinator-metrics", "heartbeat-total"):
            await consumer.poll(0.05)

    run(scenario)


def test_an_admin_and_a_blocking_producer_tell_too(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers)

    async def scenario() -> None:
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.list_topics()
            metrics = admin.metrics()
            assert value(metrics, "admin-client-metrics", "request-total") > 0
            assert value(metrics, "admin-client-metrics", "response-total") > 0

    run(scenario)
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send(topic, b"x").result(90)
        assert value(producer.metrics(), "producer-metrics", "record-send-total") == 1


def names_in(said: str) -> set[tuple[str, str]]:
    return {(match[1], match[2]) for match in map(LINE.match, said.splitlines()) if match}


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("kafka_libs")
@pytest.mark.parametrize("tool", ["producer-perf-test", "consumer-perf-test"])
def test_names_are_those_of_kafka(broker: Broker, tool: str) -> None:
    topic = make_topic(broker.bootstrap_servers)
    produce(broker.bootstrap_servers, topic, [b"x"] * 100)
    asked = ["--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--print-metrics"]
    asked += ["--num-records", "100"]
    if tool == "producer-perf-test":
        asked += ["--record-size", "10", "--throughput", "-1"]
    theirs = names_in(kafka_tool(tool, *asked).stdout)
    ours = names_in(odradek_tool(tool, *asked).stdout)
    assert len(ours) > 50
    assert ours <= theirs
