"""A node with a plaintext and two TLS listeners, and the clients that come through each of them."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from odradek.net.settings import EventKind
from odradek.testing.broker import Broker
from tests.certificates import CLIENT_PRINCIPAL, make_pki
from tests.interop.clients import DEADLINE_SECONDS, Client, Seen, Sent, Tls, client_kinds
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import wait_until
from tests.interop.kafka_peer import kafka_tool
from tests.interop.node_process import COMMAND, READY_SECONDS_MAX, STOP_SECONDS_MAX
from tests.readable import is_readable

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]

RECORDS = [Sent(b"k", b"%d" % i) for i in range(100)]
SEEN = [Seen(i, record) for i, record in enumerate(RECORDS)]
BIG = [Sent(None, bytes(900_000)) for _ in range(5)]


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_pki(tmp_path_factory.mktemp("node-pki"))


def listener_configs(pki: Path) -> dict[str, str]:
    return {
        "listeners": "PLAINTEXT://127.0.0.1:0,TLS://127.0.0.1:0,MUTUAL://127.0.0.1:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL,MUTUAL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(pki / "server.both.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(pki / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
    }


@pytest.fixture(scope="module")
def broker(pki: Path) -> Iterator[Broker]:
    with Broker(config=listener_configs(pki)) as started:
        yield started


def at(broker: Broker, listener: str) -> str:
    return f"127.0.0.1:{broker.node.server.endpoints[listener][1]}"


def known(pki: Path) -> Tls:
    return Tls(pki / "ca.pem", pki / "client.pem", pki / "client.key")


@pytest.mark.parametrize("kind", client_kinds(), ids=lambda kind: kind.name)
def test_clients_write_and_read_through_every_listener(
    broker: Broker, pki: Path, kind: type[Client]
) -> None:
    plain = kind(at(broker, "PLAINTEXT"))
    tls = kind(at(broker, "TLS"), Tls(pki / "ca.pem"))
    mutual = kind(at(broker, "MUTUAL"), known(pki))
    for client in (plain, tls, mutual):
        topic = f"{kind.name}-{client.servers.partition(':')[2]}"
        client.create_topic(topic)
        client.produce(topic, RECORDS, partition=0)
        for reader in (plain, tls, mutual):
            assert reader.consume(topic, len(RECORDS)) == SEEN
        client.produce(topic, BIG, partition=0)
        found = client.consume(topic, len(BIG), start=len(RECORDS))
        assert [each.record for each in found] == BIG


@pytest.mark.parametrize("listener", ["PLAINTEXT", "TLS", "MUTUAL"])
def test_clients_are_sent_back_to_the_listener_they_came_by(
    broker: Broker, pki: Path, listener: str
) -> None:
    client = Confluent(at(broker, listener), None if listener == "PLAINTEXT" else known(pki))
    brokers = client._admin().list_topics(timeout=DEADLINE_SECONDS).brokers.values()
    assert [f"{each.host}:{each.port}" for each in brokers] == [client.servers]
    endpoint = broker.node.broker.image.brokers[1].endpoints[listener]
    assert endpoint.security_protocol == (0 if listener == "PLAINTEXT" else 1)


@pytest.mark.parametrize(
    ("listener", "ca", "certificate"),
    [
        ("TLS", "other", None),  # the client does not trust the broker
        ("MUTUAL", "ca", None),  # the broker does not trust the client
        ("MUTUAL", "ca", "stranger"),
    ],
)
def test_who_is_not_trusted_is_not_served(
    broker: Broker, pki: Path, listener: str, ca: str, certificate: str | None
) -> None:
    shown = (pki / f"{certificate}.pem", pki / f"{certificate}.key") if certificate else ()
    tls = Tls(pki / f"{ca}.pem", *shown)

    def rejected() -> int:
        return broker.node.server.counters.events[EventKind.REJECTED]

    before = rejected()
    admin = Confluent(at(broker, listener), tls)._admin()
    with pytest.raises(Exception, match=r"_TRANSPORT|Failed to get metadata"):
        admin.list_topics(timeout=3)
    # It goes on trying; and whether the broker has heard by now of the first try, nobody promised.
    wait_until(lambda: rejected() > before, lambda: "the broker has rejected nobody")


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_libs")
def test_java_comes_with_pem(broker: Broker, pki: Path, tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text(
        "security.protocol=SSL\n"
        f"ssl.truststore.type=PEM\nssl.truststore.location={pki / 'ca.pem'}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={pki / 'client.both.pem'}\n"
    )
    server = ("--bootstrap-server", at(broker, "MUTUAL"))
    kafka_tool("topics", *server, "--command-config", client, "--create", "--topic", "java")
    listed = kafka_tool("topics", *server, "--command-config", client, "--list").stdout
    assert "java" in listed.splitlines()
    lines = [f"line {i}" for i in range(50)]
    text = "".join(f"{line}\n" for line in lines)
    produced = ("--command-config", client, "--topic", "java")
    kafka_tool("console-producer", *server, *produced, stdin=text)
    where = ("--topic", "java", "--partition", "0", "--offset", "earliest")
    read = kafka_tool(
        *("console-consumer", *server, "--command-config", client, *where),
        *("--max-messages", "50"),
    )
    assert read.stdout.splitlines() == lines


# The command.


@contextmanager
def served(
    folder: Path, properties: dict[str, str], *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], list[int], Path]]:
    """Run `odradek serve --config`; gives the process, its ports in order, and its stderr."""
    config, log = folder / "server.properties", folder / "stderr"
    config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*COMMAND, "--config", str(config), *options], stdout=subprocess.PIPE, stderr=stderr
        )
    try:
        count = len(properties["listeners"].split(","))
        yield process, read_ports(process, count), log
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_SECONDS_MAX)
        assert process.stdout is not None
        process.stdout.close()


def read_ports(process: subprocess.Popen[bytes], count: int) -> list[int]:
    assert process.stdout is not None
    said, deadline = b"", time.monotonic() + READY_SECONDS_MAX
    while said.count(b"\n") < count and time.monotonic() < deadline:
        if is_readable(process.stdout.fileno(), 1):
            chunk = os.read(process.stdout.fileno(), 4096)
            if not chunk:
                break
            said += chunk
    ports = re.findall(rb"odradek ready on 127\.0\.0\.1:(\d+)\n", said)
    assert len(ports) == count, said
    return [int(port) for port in ports]


def node_configs(folder: Path, pki: Path) -> dict[str, str]:
    own = {"process.roles": "broker,controller", "node.id": "1", "log.dirs": str(folder / "data")}
    return {**own, **listener_configs(pki)}


def test_the_command_serves_tls_and_logs_json(tmp_path: Path, pki: Path) -> None:
    options = ("--log-format", "json", "--log-level", "debug")
    with served(tmp_path, node_configs(tmp_path, pki), *options) as (process, ports, log):
        plain, tls, mutual = ports
        client = Confluent(f"127.0.0.1:{mutual}", known(pki))
        client.create_topic("t")
        client.produce("t", RECORDS, partition=0)
        assert Confluent(f"127.0.0.1:{tls}", Tls(pki / "ca.pem")).consume("t", 100) == SEEN
        assert Confluent(f"127.0.0.1:{plain}").consume("t", 100) == SEEN
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_SECONDS_MAX) == 0
        assert process.stdout is not None
        assert process.stdout.read() == b"", "stdout has the ready lines and nothing else"
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    by_event = {line["event"]: line for line in lines}
    assert by_event["started"]["listeners"] == [
        f"PLAINTEXT://127.0.0.1:{plain} (PLAINTEXT)",
        f"TLS://127.0.0.1:{tls} (SSL)",
        f"MUTUAL://127.0.0.1:{mutual} (SSL)",
    ]
    assert by_event["topic created"]["topic"] == "t"
    assert by_event["stopped"]["clean"] is True
    assert CLIENT_PRINCIPAL in {line.get("principal") for line in lines}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("ssl.keystore.type", "JKS", "set ssl.keystore.type=PEM"),
        ("ssl.keystore.location", "absent.pem", "No such file"),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,TLS:SASL_SSL,MUTUAL:SSL", "SASL"),
    ],
)
def test_the_command_refuses_what_cannot_work_with_file_and_line(
    tmp_path: Path, pki: Path, name: str, value: str, message: str
) -> None:
    properties = {**node_configs(tmp_path, pki), name: value}
    config = tmp_path / "server.properties"
    config.write_text("".join(f"{key}={text}\n" for key, text in properties.items()))
    refused = subprocess.run(
        [*COMMAND, "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=STOP_SECONDS_MAX,
        check=False,
    )
    assert refused.returncode == 1
    assert f"{config}, line {list(properties).index(name) + 1}: " in refused.stderr
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data").exists()
