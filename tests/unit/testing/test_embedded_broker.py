"""The broker in pytest: as users write their tests."""

import asyncio
import gc
import tempfile
import threading
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

from odradek.core.config import ConfigError
from odradek.testing.broker import Broker

DEADLINE_SECONDS = 120


def produce(servers: str, topic: str, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(servers: str, topic: str, count: int) -> list[bytes | None]:
    # There are no groups yet: a consumer that wants to commit would wait for a coordinator.
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "unused", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    try:
        messages = consumer.consume(count, timeout=DEADLINE_SECONDS)
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_fixtures_give_a_broker_and_a_fresh_topic(
    odradek_broker: Broker, odradek_topic: str
) -> None:
    produce(odradek_broker.bootstrap_servers, odradek_topic, b"a", b"b")
    assert consume(odradek_broker.bootstrap_servers, odradek_topic, 2) == [b"a", b"b"]


def test_each_test_has_a_topic_of_its_own(odradek_broker: Broker, odradek_topic: str) -> None:
    produce(odradek_broker.bootstrap_servers, odradek_topic, b"mine")
    assert consume(odradek_broker.bootstrap_servers, odradek_topic, 1) == [b"mine"]


def test_topics_and_configs_can_be_given() -> None:
    with Broker(topics={"t": 3}, config={"num.partitions": "5"}) as broker:
        broker.create_topic("small", segment_bytes="1000")
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        topics = admin.list_topics(timeout=DEADLINE_SECONDS).topics
    assert {name: len(topic.partitions) for name, topic in topics.items()} == {"t": 3, "small": 1}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("num.partition", "num.partitions"),
        ("num_partitions", "num.partitions"),
        ("auto.create.topic.enable", "auto.create.topics.enable"),
        ("segment.bytes", "log.segment.bytes"),
    ],
)
def test_a_config_that_does_not_exist_is_refused_with_the_nearest(name: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown config '{name}'; did you mean '{meant}'"):
        Broker(config={name: "3"})


def test_a_config_like_none_and_one_of_a_plugin() -> None:
    with pytest.raises(ConfigError, match=r"unknown config 'xyzzy'.*docs/configs\.md"):
        Broker(config={"xyzzy": "3"})
    Broker(config={"listener.name.plaintext.ssl.keystore.type": "PEM"})


def test_a_wrong_topic_is_refused_with_a_reason() -> None:
    with Broker() as broker, pytest.raises(ValueError, match="a/b"):
        broker.create_topic("a/b")


def test_data_outlives_the_broker_if_it_has_a_place(tmp_path: object) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        produce(broker.bootstrap_servers, "t", b"kept")
    with Broker(data_dir=str(tmp_path)) as broker:
        assert consume(broker.bootstrap_servers, "t", 1) == [b"kept"]


def test_two_brokers_do_not_know_each_other() -> None:
    with Broker(topics=["t"]) as first, Broker(topics=["t"]) as second:
        produce(first.bootstrap_servers, "t", b"first")
        produce(second.bootstrap_servers, "t", b"second")
        assert consume(second.bootstrap_servers, "t", 1) == [b"second"]


def test_it_works_inside_an_event_loop_too() -> None:
    async def story() -> list[bytes | None]:
        async with Broker(topics=["t"]) as broker:
            await asyncio.to_thread(produce, broker.bootstrap_servers, "t", b"x")
            return await asyncio.to_thread(consume, broker.bootstrap_servers, "t", 1)

    assert asyncio.run(story()) == [b"x"]


def test_it_can_run_on_the_callers_loop() -> None:
    async def story() -> list[bytes | None]:
        before = set(threading.enumerate())
        async with Broker(topics=["t"], own_thread=False) as broker:
            new = set(threading.enumerate()) - before
            assert "odradek-broker" not in {thread.name for thread in new}
            await broker.create_topic_async("u")
            await asyncio.to_thread(produce, broker.bootstrap_servers, "u", b"x")
            return await asyncio.to_thread(consume, broker.bootstrap_servers, "u", 1)

    assert asyncio.run(story()) == [b"x"]


def test_blocking_the_loop_it_runs_on_is_refused() -> None:
    async def story() -> None:
        async with Broker(own_thread=False) as broker:
            with pytest.raises(RuntimeError, match="_async"):
                broker.create_topic("t")
            with pytest.raises(RuntimeError, match="_async"):
                broker.clock.advance(1)

    asyncio.run(story())


def test_without_a_loop_it_needs_a_thread() -> None:
    with pytest.raises(RuntimeError, match="async with"), Broker(own_thread=False):
        pass


@pytest.mark.parametrize("own_thread", [True, False])
def test_a_broker_that_cannot_start_leaves_nothing_behind(
    own_thread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def story(port: int) -> None:
        async with Broker(port=port, own_thread=own_thread):
            pass

    with Broker(memory=True) as first, pytest.raises(OSError, match="in use"):
        asyncio.run(story(first.port))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("own_thread", [True, False])
def test_nor_does_one_whose_topics_cannot_be(
    own_thread: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    async def story() -> None:
        async with Broker(topics=["a/b"], own_thread=own_thread):
            pass

    with pytest.raises(ValueError, match="a/b"):
        asyncio.run(story())
    assert list(tmp_path.iterdir()) == []
    gc.collect()  # a socket that was left open would be complained of


def test_it_can_be_started_again(tmp_path: Path) -> None:
    broker = Broker(topics=["t"], data_dir=str(tmp_path))
    with broker:
        produce(broker.bootstrap_servers, "t", b"kept")
        broker.fail("Fetch", "UNKNOWN_SERVER_ERROR", times=None)
    with broker:
        assert broker.faults == ()
        assert consume(broker.bootstrap_servers, "t", 1) == [b"kept"]


def test_clients_survive_dropped_connections() -> None:
    with Broker(topics=["t"]) as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})
        producer.produce("t", b"before")
        assert producer.flush(DEADLINE_SECONDS) == 0
        broker.drop_connections()
        producer.produce("t", b"after")
        assert producer.flush(DEADLINE_SECONDS) == 0
        assert consume(broker.bootstrap_servers, "t", 2) == [b"before", b"after"]
