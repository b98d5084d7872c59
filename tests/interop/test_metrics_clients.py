"""`odradek serve --metrics-port`: scraped over HTTP while real clients work and push telemetry."""

import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import confluent_kafka
import pytest

from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import kafka_tool
from tests.interop.kafka_peer.tools import MAIN_CLASSES, java_command
from tests.interop.node_process import COMMAND, STOP_SECONDS_MAX
from tests.unit.broker.metrics_scrape import Scrape

SECONDS_MAX = 90


class MeteredNode:
    def __init__(self, servers: str, url: str, process: subprocess.Popen[str]) -> None:
        self.servers = servers
        self.url = url
        self.process = process

    def scrape(self) -> Scrape:
        with urlopen(self.url, timeout=SECONDS_MAX) as answer:
            return Scrape(answer.read())

    def scrape_until(self, is_there: Callable[[Scrape], bool]) -> Scrape:
        deadline = time.monotonic() + SECONDS_MAX
        while time.monotonic() < deadline:
            found = self.scrape()
            if is_there(found):
                return found
            time.sleep(0.05)  # between two questions, not instead of one
        raise AssertionError(f"not within {SECONDS_MAX} s; there is {sorted(set(found.names()))}")


@contextmanager
def metered_node(folder: Path, *options: str) -> Iterator[MeteredNode]:
    command = [*COMMAND, "--data-dir", str(folder), "--port", "0", "--metrics-port", "0", *options]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            ready = process.stdout.readline()
            match = re.fullmatch(r"odradek ready on (\S+)\n", ready)
            assert match is not None, (ready, process.stderr.read())
            log = process.stderr
            url = next(found[1] for line in log if (found := re.search(r"url=(\S+)", line)))
            rest = threading.Thread(target=log.read, daemon=True)  # a full pipe would block it
            rest.start()
            yield MeteredNode(match[1], url, process)
        finally:
            process.terminate()
            assert process.wait(STOP_SECONDS_MAX) == 0
        rest.join()  # before the pipe is closed under its hands


def test_traffic_of_a_real_client_is_counted(tmp_path: Path) -> None:
    with metered_node(tmp_path) as node:
        client = Confluent(node.servers)
        client.create_topic("orders", 3)
        records = [Sent(b"k%d" % i, b"v" * 100) for i in range(50)]
        client.produce("orders", records, partition=2)
        assert len(client.consume("orders", 50, partition=2)) == 50
        traffic = "kafka_server_brokertopicmetrics_"

        def is_counted(found: Scrape) -> bool:
            in_and_out = (traffic + "bytesin_total", traffic + "bytesout_total")
            came, went = (found.value(name, topic="orders") for name in in_and_out)
            return came == went > 0

        found = node.scrape_until(is_counted)  # the client may have its answer before that
        assert found.value(traffic + "messagesin_total", topic="orders") == 50
        assert found.value(traffic + "bytesin_total", topic="orders") > 5000
        out = found.value(traffic + "bytesout_total", topic="orders")
        assert out == found.value(traffic + "bytesin_total", topic="orders")
        place = {"topic": "orders", "partition": "2"}
        assert found.value("kafka_topic_partition_current_offset", **place) == 50
        assert found.value("kafka_log_log_logendoffset", **place) == 50
        times = "kafka_network_requestmetrics_totaltimems"
        assert found.value(times, request="Produce", quantile="0.99") > 0
        with urlopen(node.url.replace("/metrics", "/healthz"), timeout=SECONDS_MAX) as answer:
            assert answer.read() == b"ok\n"


def test_a_metrics_port_in_use_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with metered_node(tmp_path / "first") as node:
        port = node.url.rpartition(":")[2].removesuffix("/metrics")
        data = tmp_path / "second"
        options = ("--data-dir", str(data), "--port", "0", "--metrics-port", port)
        refused = subprocess.run(
            [*COMMAND, *options],
            capture_output=True,
            text=True,
            timeout=STOP_SECONDS_MAX,
            check=False,
        )
    assert refused.returncode == 1
    assert f"127.0.0.1:{port}" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not data.exists()


@pytest.mark.slow
@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_libs")
def test_librdkafka_pushes_what_a_subscription_asks_for(tmp_path: Path) -> None:
    with metered_node(tmp_path) as node:
        client_metrics(
            node, "--alter", "--name", "all", "--interval", "200",
            "--metrics", "org.apache.kafka.producer.",
            "--match", "client_software_name=confluent-.*,client_id=meter.*",
        )  # fmt: skip
        assert client_metrics(node, "--list").split() == ["all"]
        described = client_metrics(node, "--describe", "--name", "all")
        assert "interval.ms=200" in described
        producer = confluent_kafka.Producer(
            {"bootstrap.servers": node.servers, "client.id": "metered"}
        )
        other = confluent_kafka.Producer({"bootstrap.servers": node.servers, "client.id": "plain"})
        for each in (producer, other):
            each.produce("orders", b"x")
            each.flush(SECONDS_MAX)
        name = "kafka_client_producer_connection_creation_total"
        found = node.scrape_until(lambda found: name in found)
        clients = {labels["client_id"] for labels in found.labels(name)}
        assert clients == {"metered"}
        labels = found.labels(name)[0]
        assert labels["client_software_name"] == "confluent-kafka-python"
        assert found.value(name, **labels) >= 1
        del producer  # says goodbye, and is forgotten
        node.scrape_until(lambda found: name not in found)


@pytest.mark.slow
@pytest.mark.kafka
def test_java_pushes_what_a_subscription_asks_for(tmp_path: Path, kafka_libs: Path) -> None:
    with metered_node(tmp_path) as node:
        client_metrics(node, "--alter", "--name", "all", "--interval", "500", "--metrics", "*")
        Confluent(node.servers).create_topic("orders")
        tool = MAIN_CLASSES["verifiable-producer"]
        command = java_command(tool, heap_mib=128, log_level="WARN", libs=kafka_libs)
        options = ["--bootstrap-server", node.servers, "--topic", "orders", "--throughput", "50"]
        java = subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL)
        try:
            name = "kafka_client_producer_record_send_total"

            def has_sent(found: Scrape) -> bool:
                return any(found.value(name, **labels) > 10 for labels in found.labels(name))

            found = node.scrape_until(has_sent)
            (labels,) = found.labels(name)
            assert labels["client_software_name"] == "apache-kafka-java"
            # Java counts a record when its request is made.
            sent = found.value(name, **labels)
            appended = "kafka_server_brokertopicmetrics_messagesin_total"
            node.scrape_until(lambda later: later.value(appended, topic="orders") >= sent)
        finally:
            java.send_signal(signal.SIGTERM)
            java.wait(SECONDS_MAX)
        node.scrape_until(lambda found: name not in found)


def client_metrics(node: MeteredNode, *arguments: str) -> str:
    return kafka_tool("client-metrics", "--bootstrap-server", node.servers, *arguments).stdout
