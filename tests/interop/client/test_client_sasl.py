"""Clients log in to a real Kafka: every mechanism, TLS below it, refusals, sessions that end."""

import asyncio
import base64
import json
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.blocking.admin import BlockingAdmin
from odradek.client.consumer import Consumer
from odradek.client.errors import AuthenticationError, UnsupportedError
from odradek.client.producer import Producer
from odradek.testing.broker import Broker
from odradek.wire import connection
from tests.certificates import make_pki
from tests.interop.client.produced_records import new_topic
from tests.interop.kafka_peer import KafkaNode, PeerUnavailableError, resolve_jars

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECONDS_MAX = 120
SESSION_MS = 40_000
PASSWORD = "p=ss word"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


def token(subject: str = "carol", seconds: int = 3600) -> str:
    """A token that nobody signed, as Kafka's default validator takes them."""
    now = int(time.time())
    claims = {"sub": subject, "iat": now - 60, "exp": now + seconds}
    parts = [json.dumps(each).encode() for each in ({"alg": "none"}, claims)]
    return ".".join(base64.urlsafe_b64encode(each).decode().rstrip("=") for each in parts) + "."


def credentials(mechanism: str) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_oauthbearer_token": token()}
    if mechanism == "PLAIN":
        return {"sasl_username": "alice", "sasl_password": "alice-secret"}
    return {"sasl_username": "bob", "sasl_password": PASSWORD}


def listener_configs(listener: str, mechanisms: tuple[str, ...]) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}"
    modules = {
        "PLAIN": f'{PLAIN_MODULE} required user_alice="alice-secret";',
        "SCRAM-SHA-256": f"{SCRAM_MODULE} required;",
        "SCRAM-SHA-512": f"{SCRAM_MODULE} required;",
        "OAUTHBEARER": f'{OAUTH_MODULE} required unsecuredLoginStringClaim_sub="broker";',
    }
    return {f"{prefix}.sasl.enabled.mechanisms": ",".join(mechanisms)} | {
        f"{prefix}.{each.lower()}.sasl.jaas.config": modules[each] for each in mechanisms
    }


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    return make_pki(tmp_path_factory.mktemp("sasl-pki"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, pki: Path) -> Iterator[KafkaNode]:
    try:
        resolve_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
    configs = {
        **listener_configs("OPEN", MECHANISMS),
        **listener_configs("SECURE", ("SCRAM-SHA-512",)),
        **listener_configs("SHORT", ("OAUTHBEARER",)),
        "listener.name.short.oauthbearer.connections.max.reauth.ms": str(SESSION_MS),
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(pki / "server.both.pem"),
    }
    users = [f'{each}=[name="bob",password="{PASSWORD}"]' for each in MECHANISMS[1:3]]
    with KafkaNode(
        tmp_path_factory.mktemp("sasl") / "data",
        configs,
        listeners={"OPEN": "SASL_PLAINTEXT", "SECURE": "SASL_SSL", "SHORT": "SASL_PLAINTEXT"},
        format_arguments=[argument for user in users for argument in ("--add-scram", user)],
    ) as started:
        yield started
        started.kill()


def settings(node: KafkaNode, mechanism: str, **others: Any) -> dict[str, Any]:
    return {
        "bootstrap_servers": node.address("OPEN"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "default_api_timeout_ms": SECONDS_MAX * 1000,
        "request_timeout_ms": SECONDS_MAX * 1000,
        "socket_connection_setup_timeout_ms": SECONDS_MAX * 1000,
        **others,
    }


async def there_and_back(topic: str, value: bytes, given: dict[str, Any]) -> None:
    async with Producer(**given, delivery_timeout_ms=2 * SECONDS_MAX * 1000) as producer:
        await (await producer.send(topic, value))
    async with Admin(**given) as admin:
        assert topic in {each.name for each in await admin.list_topics()}
    given = {**given, "group_id": f"g-{topic}", "auto_offset_reset": "earliest"}
    async with Consumer(topic, **given) as consumer:
        async with asyncio.timeout(SECONDS_MAX):
            assert (await anext(aiter(consumer))).value == value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_all_clients_log_in(node: KafkaNode, mechanism: str) -> None:
    topic = new_topic(node.bootstrap_servers)
    given = settings(node, mechanism, **credentials(mechanism))
    asyncio.run(there_and_back(topic, mechanism.encode(), given))


def test_javas_configuration_logs_in_through_tls(node: KafkaNode, pki: Path) -> None:
    topic = new_topic(node.bootstrap_servers)
    given = settings(
        node,
        "SCRAM-SHA-512",
        bootstrap_servers=node.address("SECURE"),
        security_protocol="SASL_SSL",
        ssl_truststore_location=str(pki / "ca.pem"),
        sasl_jaas_config=f'{SCRAM_MODULE} required username="bob" password="{PASSWORD}";',
    )
    asyncio.run(there_and_back(topic, b"tls", given))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_is_not_believed_is_told_at_once(node: KafkaNode, mechanism: str) -> None:
    wrong = {"sasl_username": "bob", "sasl_password": "not-the-password"}
    if mechanism == "OAUTHBEARER":
        wrong = {"sasl_oauthbearer_token": token(seconds=-30)}
    admin = BlockingAdmin(**settings(node, mechanism, **wrong))
    with pytest.raises(AuthenticationError) as refused:
        admin.start()
    admin.close()
    assert not any(secret in str(refused.value) for secret in list(wrong.values())[-1:])


def test_a_mechanism_that_a_listener_has_not_is_told_with_those_it_has(node: KafkaNode) -> None:
    given = settings(node, "PLAIN", bootstrap_servers=node.address("SHORT"), **credentials("PLAIN"))
    with pytest.raises(AuthenticationError, match="OAUTHBEARER"), BlockingAdmin(**given):
        pass


def test_a_listener_without_sasl_says_so(node: KafkaNode) -> None:
    given = settings(node, "PLAIN", **credentials("PLAIN"))
    given["bootstrap_servers"] = node.bootstrap_servers
    with pytest.raises(UnsupportedError), BlockingAdmin(**given):
        pass
    with Broker() as broker:
        given["bootstrap_servers"] = broker.bootstrap_servers
        with pytest.raises(UnsupportedError), BlockingAdmin(**given):
            pass


def test_a_session_is_renewed_on_its_connection(
    node: KafkaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before it ends, so that a slow machine is not too late."""
    monkeypatch.setattr(connection, "_SESSION_SHARE", 0.1)
    topic = new_topic(node.bootstrap_servers)
    issued: list[str] = []

    async def provider() -> str:
        issued.append(token())
        return issued[-1]

    async def sent(producer: Producer, until: int) -> AsyncIterator[int]:
        while len(issued) < until:
            yield (await (await producer.send(topic, b"x"))).offset

    async def main() -> None:
        given = settings(
            node,
            "OAUTHBEARER",
            bootstrap_servers=node.address("SHORT"),
            sasl_oauthbearer_token_provider=provider,
            delivery_timeout_ms=2 * SECONDS_MAX * 1000,
        )
        async with Producer(**given) as producer, asyncio.timeout(SECONDS_MAX):
            await (await producer.send(topic, b"first"))
            used = await producer._cluster.connection(1)
            # Two connections, the bootstrap server's and the broker's: each is renewed.
            offsets = [each async for each in sent(producer, 2 * len(issued))]
            await (await producer.send(topic, b"last"))
            assert offsets == list(range(1, len(offsets) + 1))
            assert await producer._cluster.connection(1) is used

    asyncio.run(main())
