"""Certificates of a TLS listener are replaced by the same requests as in a real Kafka."""

import shutil
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import TIMEOUT_SECONDS, BrokerConnection
from tests.certificates import make_pki, sign
from tests.interop.kafka_peer import KafkaNode

pytestmark = [
    pytest.mark.slow,
    pytest.mark.kafka,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

SECONDS_MAX = 90
LOCATION = "listener.name.tls.ssl.keystore.location"
REFUSED = "Validation of dynamic config update of SSLFactory failed"
Told = tuple[ErrorCode, bool, bool]
"""The code, and whether it was the factory's refusal, and because of the name."""


def configs(pki: Path) -> dict[str, str]:
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki / "ca.pem"),
    }


def shown(port: int) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as plain,
        context.wrap_socket(plain) as wrapped,
    ):
        return wrapped.getpeercert(binary_form=True) or b""


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)  # between questions; a Kafka answers before it has loaded anything


def alter(port: int, name: str, value: str) -> Told:
    config = AlterableConfig(name=name, config_operation=0, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with BrokerConnection(port) as connection:
        (answer,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    message = answer.error_message or ""
    is_named = "Keystore DistinguishedName does not match" in message
    return ErrorCode(answer.error_code), REFUSED in message, is_named


def story(pki: Path, port: int, tls_port: int) -> list[Told]:
    def der(name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert((pki / f"{name}.pem").read_text())

    live = pki / "live.pem"
    live.write_text("nothing that could be read")
    told = [
        alter(port, LOCATION, str(pki / name))
        for name in ("nowhere.pem", "live.pem", "ca.pem", "stranger.both.pem")
    ]
    told.append(alter(port, "ssl.keystore.location", str(live)))
    told.append(alter(port, "listener.name.tls.ssl.keystore.type", "JKS"))
    assert shown(tls_port) == der("server")
    for name in ("renewed", "third"):  # under one name: the second time nothing is altered
        shutil.copy(pki / f"{name}.both.pem", live)
        told.append(alter(port, LOCATION, str(live)))
        expected = der(name)
        wait_for(lambda expected=expected: shown(tls_port) == expected)  # type: ignore[misc]
    live.write_text("nothing that could be read")
    told.append(alter(port, LOCATION, str(live)))
    assert shown(tls_port) == der("third")
    return told


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    make_pki(folder)
    for name in ("renewed", "third"):
        sign(folder, name, "/CN=server")
    return folder


def test_a_certificate_is_replaced_as_in_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    pki = make_folder(tmp_path / "theirs")
    with KafkaNode(tmp_path / "data", configs(pki), listeners={"TLS": "SSL"}) as node:
        theirs = story(pki, node.port, node.listener_ports["TLS"])
    pki = make_folder(tmp_path / "ours")
    listeners = {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
    }
    with Broker(config={**configs(pki), **listeners}, memory=True) as broker:
        ours = story(pki, broker.port, broker.node.server.endpoints["TLS"][1])
    assert ours == theirs
    assert {code for code, *_ in ours} == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}
