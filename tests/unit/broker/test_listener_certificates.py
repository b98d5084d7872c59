"""Certificates of TLS listeners are replaced while the broker runs, or refused and left alone."""

import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import FrameReader, frame_request, open_response
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import TIMEOUT_SECONDS, BrokerConnection
from tests.certificates import make_pki, sign

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")

BROKER = 4
SET, DELETE = 0, 1
LOCATION = "listener.name.tls.ssl.keystore.location"
CHAIN = "listener.name.tls.ssl.keystore.certificate.chain"
KEY = "listener.name.tls.ssl.keystore.key"
REFUSED = "Validation of dynamic config update of SSLFactory failed: "
API_VERSIONS = 18


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make_pki(tmp_path_factory.mktemp("rotation-pki"))
    sign(folder, "renewed", "/CN=server")
    sign(folder, "more", "/CN=server", names="subjectAltName=DNS:localhost,IP:127.0.0.1,DNS:more")
    sign(folder, "less", "/CN=server", names="subjectAltName=DNS:localhost")
    return folder


@pytest.fixture
def pki(made: Path, tmp_path: Path) -> Path:
    """A folder of the test's own: it overwrites files."""
    return Path(shutil.copytree(made, tmp_path / "pki"))


@pytest.fixture
def broker(pki: Path) -> Iterator[Broker]:
    with Broker(config=configs(pki), memory=True) as started:
        yield started


def configs(pki: Path) -> dict[str, str]:
    return {
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
    }


class TlsConnection:
    """A connection to the TLS listener, and the certificate that it was shown."""

    def __init__(self, broker: Broker) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = broker.node.server.endpoints["TLS"][1]
        plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS)
        self._socket = context.wrap_socket(plain)
        self.certificate = self._socket.getpeercert(binary_form=True)

    def ask(self) -> None:
        """Have a request answered."""
        api, reader = api_for_key(API_VERSIONS), FrameReader(1 << 20)
        self._socket.sendall(b"".join(frame_request(ApiVersionsRequest(), api, 0, 1, None)))
        while (frame := reader.next_frame()) is None:
            chunk = self._socket.recv(1 << 16)
            assert chunk, "the broker hung up"
            reader.receive(chunk)
        _, body = open_response(frame, api, 0)
        assert ApiVersionsResponse.decode(body, 0).error_code == 0

    def __enter__(self) -> "TlsConnection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def shown(broker: Broker) -> bytes:
    with TlsConnection(broker) as connection:
        connection.ask()
        assert connection.certificate is not None
        return connection.certificate


def der(pki: Path, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((pki / f"{name}.pem").read_text())


def alter(
    broker: Broker, *changes: tuple[str, str | None], node: str = "1"
) -> tuple[ErrorCode, str]:
    resource = AlterConfigsResource(
        resource_type=BROKER,
        resource_name=node,
        configs=[
            AlterableConfig(
                name=name, config_operation=DELETE if value is None else SET, value=value
            )
            for name, value in changes
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource])
    with BrokerConnection(broker.port) as connection:
        (answer,) = connection.ask(request, IncrementalAlterConfigsResponse).responses
    return ErrorCode(answer.error_code), answer.error_message or ""


def test_new_connections_get_the_new_certificate_and_old_ones_live_on(
    broker: Broker, pki: Path
) -> None:
    with TlsConnection(broker) as old:
        assert old.certificate == der(pki, "server")
        assert alter(broker, (LOCATION, str(pki / "renewed.both.pem"))) == (ErrorCode.NONE, "")
        assert shown(broker) == der(pki, "renewed")
        old.ask()
    assert alter(broker, (LOCATION, None)) == (ErrorCode.NONE, "")
    assert shown(broker) == der(pki, "server")


def test_a_file_that_changed_is_read_when_its_name_is_set_again(broker: Broker, pki: Path) -> None:
    path = pki / "live.pem"
    shutil.copy(pki / "renewed.both.pem", path)
    alter(broker, (LOCATION, str(path)))
    shutil.copy(pki / "more.both.pem", path)
    assert shown(broker) == der(pki, "renewed")
    assert alter(broker, (LOCATION, str(path))) == (ErrorCode.NONE, "")
    assert shown(broker) == der(pki, "more")


def test_a_file_that_changed_for_the_worse_leaves_the_old_certificate(
    broker: Broker, pki: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = pki / "live.pem"
    shutil.copy(pki / "renewed.both.pem", path)
    alter(broker, (LOCATION, str(path)))
    path.write_text("nothing that could be read")
    # As Kafka: only what is altered is checked when it is, the rest is a matter for the log.
    assert alter(broker, (LOCATION, str(path))) == (ErrorCode.NONE, "")
    assert shown(broker) == der(pki, "renewed")
    assert any("certificate not loaded" in each.getMessage() for each in caplog.records)
    assert alter(broker, ("log.cleaner.threads", "2")) == (ErrorCode.NONE, "")


@pytest.mark.parametrize(
    ("file", "why"),
    [
        ("nowhere.pem", "No such file"),
        ("ca.pem", "no private key"),
        ("stranger.both.pem", "Keystore DistinguishedName does not match"),
        ("less.both.pem", "Keystore SubjectAltNames do not match"),
    ],
)
def test_what_cannot_be_shown_is_refused(broker: Broker, pki: Path, file: str, why: str) -> None:
    code, message = alter(broker, (LOCATION, str(pki / file)))
    assert code is ErrorCode.INVALID_REQUEST
    assert message.startswith(REFUSED)
    assert why in message
    assert shown(broker) == der(pki, "server")
    assert broker.node.config.levels.dynamic_broker == {}


def test_other_names_are_allowed_if_the_configs_say_so(pki: Path) -> None:
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    with Broker(config={**configs(pki), **allowed}, memory=True) as broker:
        for name in ("less", "stranger"):
            alter(broker, (LOCATION, str(pki / f"{name}.both.pem")))
            assert shown(broker) == der(pki, name)


def test_stores_are_altered_for_one_broker_and_listener_only(broker: Broker, pki: Path) -> None:
    path = str(pki / "renewed.both.pem")
    code, message = alter(broker, ("ssl.keystore.location", path))
    assert (code, "only per-listener" in message) == (ErrorCode.INVALID_REQUEST, True)
    code, message = alter(broker, (LOCATION, path), node="")
    assert (code, "broker id must be specified" in message) == (ErrorCode.INVALID_REQUEST, True)


def test_keys_are_never_shown(
    pki: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    inline = configs(pki)
    del inline["ssl.keystore.location"]
    inline["ssl.keystore.certificate.chain"] = (pki / "server.pem").read_text()
    inline["ssl.keystore.key"] = (pki / "server.key").read_text()
    key = (pki / "renewed.key").read_text()
    secret = key.splitlines()[1]
    with Broker(config=inline, memory=True) as broker:
        wrong = alter(broker, (CHAIN, (pki / "more.pem").read_text()), (KEY, key))
        assert wrong[0] is ErrorCode.INVALID_REQUEST
        assert secret not in wrong[1]
        alter(broker, (CHAIN, (pki / "renewed.pem").read_text()), (KEY, key))
        assert shown(broker) == der(pki, "renewed")
        resource = DescribeConfigsResource(resource_type=BROKER, resource_name="1")
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        with BrokerConnection(broker.port) as connection:
            answer = connection.ask(request, DescribeConfigsResponse)
        (described,) = [each for each in answer.results[0].configs if each.name == KEY]
        assert (described.value, described.is_sensitive) == (None, True)
        assert {each.value for each in described.synonyms} == {None}
    captured = capfd.readouterr()
    assert secret not in caplog.text + captured.out + captured.err


def test_a_certificate_that_was_altered_is_shown_after_a_restart(pki: Path, tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    allowed = {**configs(pki), "ssl.allow.dn.changes": "true"}
    with Broker(config=allowed, data_dir=data_dir) as broker:
        alter(broker, (LOCATION, str(pki / "stranger.both.pem")))
    with Broker(config=configs(pki), data_dir=data_dir) as broker:
        assert shown(broker) == der(pki, "stranger")
