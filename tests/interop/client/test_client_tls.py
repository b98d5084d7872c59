"""Clients over TLS, by Kafka's own settings: trusted files, inline PEM, certificates of clients."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.errors import ConfigurationError, KafkaTimeoutError
from odradek.client.producer import Producer
from odradek.testing.broker import Broker
from tests.certificates import make_pki
from tests.interop.client.produced_records import values_in

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("client-pki"))


@pytest.fixture(scope="module")
def broker(pki: Path) -> Iterator[Broker]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
    }
    with Broker(config=config, topics=["secret"]) as started:
        yield started


def produce(broker: Broker, listener: str, value: bytes, **settings: Any) -> None:
    address = f"127.0.0.1:{broker.node.server.endpoints[listener][1]}"

    async def main() -> None:
        async with Producer(
            bootstrap_servers=address,
            security_protocol="SSL",
            default_api_timeout_ms=500,
            **settings,
        ) as producer:
            await (await producer.send("secret", value))

    asyncio.run(main())


def test_records_go_through_tls_with_files_and_with_inline_pem(broker: Broker, pki: Path) -> None:
    trusted = str(pki / "ca.pem")
    produce(broker, "TLS", b"file", ssl_truststore_location=trusted)
    produce(broker, "TLS", b"inline", ssl_truststore_certificates=Path(trusted).read_text())
    produce(
        broker,
        "MUTUAL",
        b"mutual",
        ssl_truststore_location=trusted,
        ssl_keystore_location=str(pki / "client.both.pem"),
    )
    produce(
        broker,
        "MUTUAL",
        b"mutual inline",
        ssl_truststore_location=trusted,
        ssl_keystore_certificate_chain=(pki / "client.pem").read_text(),
        ssl_keystore_key=(pki / "client.key").read_text(),
    )
    found = values_in(broker.bootstrap_servers, "secret")
    assert found == [b"file", b"inline", b"mutual", b"mutual inline"]


def test_strangers_are_not_talked_to(broker: Broker, pki: Path) -> None:
    with pytest.raises(KafkaTimeoutError, match="certificate"):
        produce(broker, "TLS", b"x", ssl_truststore_location=str(pki / "other.pem"))
    with pytest.raises(KafkaTimeoutError):
        produce(broker, "MUTUAL", b"x", ssl_truststore_location=str(pki / "ca.pem"))


def test_a_file_that_is_no_pem_is_a_configuration_error(broker: Broker, tmp_path: Path) -> None:
    wrong = tmp_path / "trust.jks"
    wrong.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigurationError, match="PEM"):
        produce(broker, "TLS", b"x", ssl_truststore_location=str(wrong))
