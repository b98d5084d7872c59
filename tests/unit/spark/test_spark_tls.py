"""Brokers that want TLS, reached with the options that Kafka's clients have for it."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import ConfigurationError, KafkaError
from odradek.testing.broker import Broker
from tests.certificates import make_pki
from tests.spark_reading import produce, read_batch, values

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("spark-pki"))


@pytest.fixture(scope="module")
def servers(pki: Path) -> Iterator[str]:
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with Broker(config=config, topics=["t"], memory=True) as broker:
        produce(broker.bootstrap_servers, "t", [b"secret"])
        yield f"127.0.0.1:{broker.node.server.endpoints['MUTUAL'][1]}"


def options(servers: str, **more: str) -> dict[str, str]:
    given = {f"kafka.{name.replace('_', '.')}": text for name, text in more.items()}
    fixed = {"subscribe": "t", "fetchOffset.numRetries": "1"}
    return {"kafka.bootstrap.servers": servers, "kafka.security.protocol": "SSL", **fixed, **given}


def test_certificates_from_files(servers: str, pki: Path) -> None:
    files = {
        "ssl_truststore_location": str(pki / "ca.pem"),
        "ssl_keystore_location": str(pki / "client.both.pem"),
    }
    assert values(read_batch(options(servers, **files))) == [b"secret"]


def test_certificates_as_text(servers: str, pki: Path) -> None:
    texts = {
        "ssl_truststore_certificates": (pki / "ca.pem").read_text(),
        "ssl_keystore_certificate_chain": (pki / "client.pem").read_text(),
        "ssl_keystore_key": (pki / "client.key").read_text(),
    }
    assert values(read_batch(options(servers, **texts))) == [b"secret"]


def test_a_broker_that_nobody_vouches_for_is_not_read(servers: str, pki: Path) -> None:
    stranger = {
        "ssl_truststore_location": str(pki / "other.pem"),
        "ssl_keystore_location": str(pki / "client.both.pem"),
        "default_api_timeout_ms": "200",
    }
    with pytest.raises(KafkaError, match="CERTIFICATE_VERIFY_FAILED"):
        read_batch(options(servers, **stranger))


def test_a_file_that_is_not_there_is_told_of(servers: str, pki: Path) -> None:
    missing = {"ssl_truststore_location": str(pki / "nothing.pem")}
    with pytest.raises(ConfigurationError, match="keys and certificates are PEM"):
        read_batch(options(servers, **missing))
