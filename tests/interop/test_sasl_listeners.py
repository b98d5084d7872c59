"""Listeners that speak SASL, and the clients that come through them."""

import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from odradek.client import BlockingAdmin, BlockingProducer
from odradek.client.admin.users import RemoveScramCredential, SetScramCredential
from odradek.client.errors import AuthenticationError
from odradek.core.scram import ScramMechanism
from odradek.net.settings import EventKind
from odradek.testing.broker import Broker
from tests.certificates import make_pki
from tests.interop.clients import DEADLINE_SECONDS, Client, Sasl, Seen, Sent, Tls, client_kinds
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import wait_until
from tests.interop.kafka_peer import kafka_tool

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

RECORDS = [Sent(b"k", b"%d" % i) for i in range(100)]
SEEN = [Seen(i, record) for i, record in enumerate(RECORDS)]
PASSWORD = "a long, secret =word"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MODULES = {"PLAIN": "plain.PlainLoginModule"}
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("sasl-pki"))


@pytest.fixture(scope="module")
def broker(pki: Path) -> Iterator[Broker]:
    jaas = (
        f'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="{PASSWORD}";'
    )
    config = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
    }
    with Broker(config=config) as started:
        for mechanism in ScramMechanism:  # one name in a request has one change
            set_password(started, "ann", mechanism, PASSWORD)
        yield started


def at(broker: Broker, listener: str) -> str:
    return f"127.0.0.1:{broker.node.server.endpoints[listener][1]}"


def set_password(broker: Broker, user: str, mechanism: ScramMechanism, password: str) -> None:
    with BlockingAdmin(bootstrap_servers=at(broker, "PLAINTEXT")) as admin:
        change = SetScramCredential(mechanism=mechanism, password=password)
        admin.alter_user_scram_credentials({user: change}).unwrap()


def tls_of(listener: str, pki: Path) -> Tls | None:
    return Tls(pki / "ca.pem") if listener == "SASL_SSL" else None


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("kind", client_kinds(), ids=lambda kind: kind.name)
def test_clients_write_and_read_through_sasl(
    broker: Broker, pki: Path, kind: type[Client], mechanism: str, listener: str
) -> None:
    sasl = Sasl(mechanism, "ann", PASSWORD)
    client = kind(at(broker, listener), tls_of(listener, pki), sasl)
    topic = f"{kind.name}-{mechanism}-{listener}"
    client.create_topic(topic)
    client.produce(topic, RECORDS, partition=0)
    assert client.consume(topic, len(RECORDS)) == SEEN


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafkas_tools_come_through_sasl(
    broker: Broker, pki: Path, tmp_path: Path, mechanism: str
) -> None:
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{module} required"
        f' username="ann" password="{PASSWORD}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={pki / 'ca.pem'}\n"
    )
    topic = f"java-{mechanism}"
    servers = ("--bootstrap-server", at(broker, "SASL_SSL"), "--command-config", properties)
    kafka_tool("topics", *servers, "--create", "--topic", topic)
    assert topic in kafka_tool("topics", *servers, "--list").stdout.split()


def test_a_wrong_password_is_refused_and_everybody_else_goes_on(broker: Broker) -> None:
    good = Confluent(at(broker, "SASL_PLAINTEXT"), None, Sasl("PLAIN", "ann", PASSWORD))
    for mechanism in MECHANISMS:
        for user, password in (("ann", "guessed"), ("nobody", PASSWORD)):
            with (
                pytest.raises(AuthenticationError),
                BlockingProducer(
                    bootstrap_servers=at(broker, "SASL_PLAINTEXT"),
                    security_protocol="SASL_PLAINTEXT",
                    sasl_mechanism=mechanism,
                    sasl_username=user,
                    sasl_password=password,
                ),
            ):
                pass
    assert "ann" not in good.partition_counts()


def test_a_request_before_the_proof_ends_the_connection(broker: Broker) -> None:
    """Metadata without authentication gets no answer, and a frame of half a megabyte no memory."""

    rejected = broker.node.server.counters.events
    before = rejected[EventKind.REJECTED]
    starts = (
        bytes.fromhex("00000010 0003 0001 00000001 ffff ffffffff 0000"),
        b"\x00\x08\x00\x01",
    )
    for start in starts:
        address = broker.node.server.endpoints["SASL_PLAINTEXT"]
        with socket.create_connection(("127.0.0.1", address[1]), DEADLINE_SECONDS) as peer:
            peer.sendall(start)
            assert peer.recv(1) == b""
    count = before + len(starts)
    wait_until(lambda: rejected[EventKind.REJECTED] >= count, lambda: "some were not rejected")


def test_a_password_changes_and_goes_while_the_broker_runs(broker: Broker) -> None:
    def can_log_in(password: str) -> bool:
        admin = AdminClient(
            {
                "bootstrap.servers": at(broker, "SASL_PLAINTEXT"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": "bob",
                "sasl.password": password,
            }
        )
        errors: list[str] = []
        try:
            admin.list_topics(timeout=2)
        except Exception as error:  # librdkafka goes on trying after a refusal
            errors.append(str(error))
        return not errors

    mechanism = ScramMechanism.SCRAM_SHA_256
    assert not can_log_in("first")
    set_password(broker, "bob", mechanism, "first")
    wait_until(lambda: can_log_in("first"), lambda: "bob cannot log in")
    set_password(broker, "bob", mechanism, "second")
    wait_until(lambda: can_log_in("second"), lambda: "bob cannot log in again")
    assert not can_log_in("first")
    with BlockingAdmin(bootstrap_servers=at(broker, "PLAINTEXT")) as admin:
        change = RemoveScramCredential(mechanism=mechanism)
        admin.alter_user_scram_credentials({"bob": change}).unwrap()
    wait_until(lambda: not can_log_in("second"), lambda: "bob can still log in")
