"""`odradek serve` as a user runs it: ready line, signals, one node a directory, bad config."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from tests.interop.clients import Seen, Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.node_process import COMMAND, STOP_SECONDS_MAX, NodeProcess
from tests.interop.odradek_tool import odradek_tool

RECORDS = [Sent(b"k", b"%d" % i) for i in range(20)]
SEEN = [Seen(i, record) for i, record in enumerate(RECORDS)]


def serve(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a node that is expected to end by itself."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=STOP_SECONDS_MAX,
        check=False,
        env={**os.environ, "HOME": str(cwd)},
    )


def test_once_it_says_ready_it_can_be_reached(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node, socket.create_connection(("127.0.0.1", node.port)):
        assert node.port > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with NodeProcess(tmp_path) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t", 2)
        client.produce("t", RECORDS, partition=1)
        assert not (tmp_path / ".kafka_cleanshutdown").exists()
        assert node.end(number) == 0
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_first_consumer_of_a_default_node_does_not_wait_for_others(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        servers = ("--bootstrap-server", node.bootstrap_servers, "--topic", "t")
        odradek_tool("console-producer", *servers, stdin="a\nb\nc\nd\n")
        # A busy machine may need more than three seconds for a group of its own accord.
        for _ in range(10):
            options = ("--from-beginning", "--timeout-ms", "3000")
            read = odradek_tool("console-consumer", *servers, *options).stdout
            if read:
                break
    assert read == "a\nb\nc\nd\n"


@pytest.mark.slow
def test_a_second_start_finds_topics_and_records(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t", 2)
        client.create_topic("gone")
        client.produce("t", RECORDS, partition=1)
        client.delete_topic("gone")
        client.delete_records("t", 0)
        for _ in range(2):
            assert node.end(signal.SIGTERM) == 0
            node.start()
            counts = client.partition_counts()
            assert {name: counts[name] for name in counts if name[:2] != "__"} == {"t": 2}
            assert client.watermarks("t", 1) == (0, 20)
            assert client.consume("t", 20, partition=1) == SEEN
        assert client.produce("t", RECORDS, partition=1)[0].offset == 20


@pytest.mark.slow
def test_a_signal_ends_it_while_consumers_wait(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t")
        with client.tail("t", min_bytes=1, wait_ms_max=60_000) as tail:
            client.produce("t", RECORDS[:1])
            tail.poll(1)
            assert node.end(signal.SIGTERM) == 0


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data) as node:
        second = serve("--data-dir", data, "--port", "0", cwd=tmp_path)
        assert second.returncode == 1
        assert second.stdout == ""
        assert str(data) in second.stderr
        assert "in use" in second.stderr
        assert "Traceback" not in second.stderr
        assert Confluent(node.bootstrap_servers).partition_counts() == {}


def test_a_directory_that_lost_its_meta_properties_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with NodeProcess(data) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("orders")
        client.produce("orders", RECORDS)
        assert node.end(signal.SIGTERM) == 0
        meta = (data / "meta.properties").read_bytes()
        (data / "meta.properties").unlink()
        refused = serve("--data-dir", data, "--port", "0", cwd=tmp_path)
        assert refused.returncode == 1
        assert f"{data}/meta.properties is missing" in refused.stderr
        assert "orders-0" in refused.stderr
        assert "Traceback" not in refused.stderr
        (data / "meta.properties").write_bytes(meta)
        node.start()
        assert client.consume("orders", 20) == SEEN


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data") as node:
        second = serve("--data-dir", tmp_path / "other", "--port", str(node.port), cwd=tmp_path)
    assert second.returncode == 1
    assert str(node.port) in second.stderr
    assert "Traceback" not in second.stderr


def test_a_wrong_value_is_refused_with_its_line(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(
        "# a comment\nprocess.roles=broker,controller\nnode.id=1\nlog.retention.ms=a week\n"
    )
    refused = serve("--config", config, cwd=tmp_path)
    assert refused.returncode == 1
    assert f"{config}, line 4" in refused.stderr
    assert "log.retention.ms" in refused.stderr
    assert "a week" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_wrong_override_is_refused(tmp_path: Path) -> None:
    refused = serve("--override", "num.partitions=many", "--data-dir", tmp_path, cwd=tmp_path)
    assert refused.returncode == 1
    assert "num.partitions" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []
