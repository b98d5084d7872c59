"""Clients that cannot reach what they need say so, soon, and end when they were told to."""

import asyncio
import gc
import logging
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.consumer import Consumer
from odradek.client.errors import KafkaTimeoutError
from odradek.client.producer import Producer
from odradek.testing.broker import Broker
from tests.certificates import make_pki
from tests.interop.client.consumer_session import poll_until, run
from tests.interop.ports import free_ports

DEADLINE_MS = 1_500
SECONDS_MAX = 45
"""Less than the minute that clients wait if nobody tells them otherwise."""


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """Return a function for the warnings of clients that have something in them."""
    caplog.set_level(logging.WARNING, "odradek")

    def find(part: str) -> list[str]:
        return [
            each.getMessage()
            for each in caplog.records
            if each.levelno >= logging.WARNING and part in each.getMessage()
        ]

    return find


def fail_to_start(client: Producer | Consumer | Admin) -> str:
    async def scenario() -> str:
        with pytest.raises(KafkaTimeoutError) as raised:
            await client.start()
        return str(raised.value)

    return run(scenario, SECONDS_MAX)


def test_a_port_where_nobody_listens_is_told_once(lines: Callable[[str], list[str]]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    said = fail_to_start(Producer(bootstrap_servers=address, max_block_ms=DEADLINE_MS))
    assert address in said
    assert str(DEADLINE_MS) in said
    assert len(lines(address)) == 1
    assert "refused" in lines(address)[0].lower()


@pytest.mark.parametrize("kind", [Consumer, Admin])
def test_other_clients_obey_their_own_deadline(
    kind: type[Consumer] | type[Admin], lines: Callable[[str], list[str]]
) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    fail_to_start(kind(bootstrap_servers=address, default_api_timeout_ms=DEADLINE_MS))
    assert len(lines(address)) == 1


def test_a_host_that_does_not_exist_is_told(lines: Callable[[str], list[str]]) -> None:
    fail_to_start(Producer(bootstrap_servers="no-such.invalid:9092", max_block_ms=5_000))
    assert lines("no-such.invalid:9092")


def test_one_that_takes_connections_and_never_answers_is_told_before_the_deadline(
    lines: Callable[[str], list[str]],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        client = Producer(
            bootstrap_servers=address,
            max_block_ms=4_000,
            socket_connection_setup_timeout_ms=600_000,
        )
        assert address in fail_to_start(client)
    (line,) = lines(address)
    assert "no answer yet" in line


def test_tls_to_a_plaintext_port_is_told(lines: Callable[[str], list[str]]) -> None:
    with Broker(memory=True) as broker:
        fail_to_start(
            Producer(
                bootstrap_servers=broker.bootstrap_servers,
                security_protocol="SSL",
                max_block_ms=DEADLINE_MS,
            )
        )
        assert any("security.protocol" in each for each in lines(broker.bootstrap_servers))


@pytest.fixture
def tls_broker(tmp_path: Path) -> Iterator[Broker]:
    pki = make_pki(tmp_path)
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
    }
    with Broker(config=config) as started:
        yield started


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
def test_plaintext_to_a_tls_port_is_told(
    tls_broker: Broker, lines: Callable[[str], list[str]]
) -> None:
    address = f"127.0.0.1:{tls_broker.node.server.endpoints['TLS'][1]}"
    fail_to_start(Producer(bootstrap_servers=address, max_block_ms=DEADLINE_MS))
    assert any("security.protocol" in each for each in lines(address))


@pytest.mark.parametrize("group", [{"group_id": "g"}, {}])
def test_a_topic_that_does_not_exist_is_told(
    group: dict[str, str], lines: Callable[[str], list[str]]
) -> None:
    async def scenario(address: str) -> None:
        settings: dict[str, Any] = {**group, "allow_auto_create_topics": False}
        async with Consumer(bootstrap_servers=address, **settings) as consumer:
            consumer.subscribe("nosuch")
            await poll_until(lambda: bool(lines("nosuch")), consumer)

    with Broker(memory=True) as broker:
        run(lambda: scenario(broker.bootstrap_servers), SECONDS_MAX)
    assert len(lines("nosuch")) == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION" in lines("nosuch")[0]


def test_a_topic_that_is_created_when_asked_for_is_not(
    lines: Callable[[str], list[str]],
) -> None:
    async def scenario(address: str) -> None:
        async with Producer(bootstrap_servers=address) as producer:
            await (await producer.send("comes", b"1"))

    with Broker(memory=True, config={"auto.create.topics.enable": "true"}) as broker:
        run(lambda: scenario(broker.bootstrap_servers), SECONDS_MAX)
    assert lines("") == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_coordinator_that_cannot_be_is_told_by_client_and_node(
    protocol: str, lines: Callable[[str], list[str]]
) -> None:
    def find() -> list[str]:
        return lines("__consumer_offsets cannot be created")

    async def scenario(address: str) -> None:
        async with Consumer(
            bootstrap_servers=address, group_id="g", group_protocol=protocol
        ) as consumer:
            consumer.subscribe("t")
            await poll_until(lambda: len(find()) >= 2, consumer)
            await consumer.poll(1)

    config = {"offsets.topic.replication.factor": "3"}
    with Broker(memory=True, topics=["t"], config=config) as broker:
        run(lambda: scenario(broker.bootstrap_servers), SECONDS_MAX)
    # Once by the node, once by the client, however often it was asked.
    node, client = sorted(find(), key=lambda each: "coordinator of" in each)
    assert "internal topic" in node
    assert "offsets.topic.replication.factor" in node
    assert "COORDINATOR_NOT_AVAILABLE" in client


def test_no_task_is_forgotten_while_the_broker_is_away() -> None:
    forgotten: list[dict[str, Any]] = []

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, told: forgotten.append(told))
        broker = Broker(memory=True, topics=["t"])
        async with broker:
            address = broker.bootstrap_servers
            consumer = Consumer(bootstrap_servers=address, group_id="g", fetch_max_wait_ms=50)
            producer = Producer(bootstrap_servers=address, max_block_ms=300, linger_ms=0)
            await consumer.start()
            await producer.start()
            consumer.subscribe("t")
            await poll_until(lambda: bool(consumer.assignment()), consumer)
        for _ in range(5):
            # Who waits gives up before the connection does.
            with pytest.raises(KafkaTimeoutError):
                await consumer.end_offsets(consumer.assignment(), timeout=0.02)
            await consumer.poll(0.05)
            gc.collect()
        await producer.close(0.2)
        await consumer.close(0.2)
        for _ in range(20):
            await asyncio.sleep(0.01)
        gc.collect()

    run(scenario)
    gc.collect()
    assert forgotten == []
