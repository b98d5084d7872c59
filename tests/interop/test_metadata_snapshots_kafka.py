"""Directories go back and forth between odradek and a real Kafka, snapshots and all."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource
from odradek.metadata.features import default_features
from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.kafka_peer import KafkaNode, dump_log, kafka_tool

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

METADATA = "__cluster_metadata-0"
CLUSTER_ID = "b2RyYWRlay1zbmFwc2hvdA"
SHELL_RUNS_MAX = 10
# Of now, and kept for months: retention looks 30 s after a start, which may be before we do.
RECORDS = [Sent(b"k%d" % i, b"v%d" % i) for i in range(10)]
RETENTION_MS = "9876543210"
SNAPSHOTS_ALL_THE_TIME = {
    "metadata.log.max.record.bytes.between.snapshots": "1",
    "metadata.log.segment.ms": "1",
    "metadata.max.retention.bytes": "1",
}


def write_properties(path: Path, data_dir: Path) -> Path:
    path.write_text(
        "process.roles=broker,controller\n"
        "node.id=1\n"
        "listeners=PLAINTEXT://127.0.0.1:19092,CONTROLLER://127.0.0.1:19093\n"
        "controller.listener.names=CONTROLLER\n"
        "controller.quorum.bootstrap.servers=127.0.0.1:19093\n"
        f"log.dirs={data_dir}\n"
    )
    return path


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def properties(tmp_path: Path, data_dir: Path) -> Path:
    return write_properties(tmp_path / "server.properties", data_dir)


@pytest.fixture
def filled(data_dir: Path, properties: Path) -> Path:
    """A directory that odradek formatted, served and left with a snapshot of nearly all of it."""
    arguments = ["storage", "format", "-t", CLUSTER_ID, "-c", str(properties), "--standalone"]
    formatted = CliRunner().invoke(main, arguments)
    assert formatted.exit_code == 0, formatted.output
    with Broker(data_dir=str(data_dir), config=SNAPSHOTS_ALL_THE_TIME) as broker:
        client = Confluent(broker.bootstrap_servers)
        client.create_topic("orders", 2, {"retention.ms": RETENTION_MS})
        client.create_topic("squashed", 1, {"cleanup.policy": "compact"})
        client.produce("orders", RECORDS, partition=1)
        alter = ("--alter", "--entity-type", "brokers", "--entity-default", "--add-config")
        server = ("--bootstrap-server", broker.bootstrap_servers)
        kafka_tool("configs", *server, *alter, "log.retention.ms=7654321")
        client.create_topic("doomed")
        client.delete_topic("doomed")
    return data_dir


def names(data_dir: Path, suffix: str) -> list[str]:
    return [path.name for path in sorted((data_dir / METADATA).glob(f"*{suffix}"))]


def records_in(bootstrap_servers: str) -> list[Sent]:
    found = Confluent(bootstrap_servers).consume("orders", len(RECORDS), partition=1)
    return [seen.record for seen in found]


def test_kafka_goes_on_from_our_snapshot_and_we_from_kafkas(filled: Path) -> None:
    first_log, *_ = names(filled, ".log")
    ours = names(filled, ".checkpoint")[-1]
    assert first_log != f"{0:020}.log"  # the beginning is in the snapshot alone
    assert int(ours[:20]) > 20
    with KafkaNode(filled, {"metadata.log.max.record.bytes.between.snapshots": "1"}) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        described = kafka_tool("topics", *server, "--describe").stdout
        for expected in (
            "PartitionCount: 2",
            f"retention.ms={RETENTION_MS}",
            "cleanup.policy=compact",
        ):
            assert expected in described
        configs = ("--describe", "--entity-type", "brokers", "--entity-default")
        assert "log.retention.ms=7654321" in kafka_tool("configs", *server, *configs).stdout
        client = Confluent(kafka.bootstrap_servers)
        topics = {name for name in client.partition_counts() if not name.startswith("__")}
        assert topics == {"orders", "squashed"}
        assert records_in(kafka.bootstrap_servers) == RECORDS
        client.create_topic("from-kafka", 3)
    theirs = names(filled, ".checkpoint")[-1]
    assert theirs > ours
    with Broker(data_dir=str(filled)) as broker:
        image = broker.node.broker.image
        assert set(image.topics) >= {"orders", "squashed", "from-kafka"}
        assert image.config_of(ConfigResource.topic("orders")) == {"retention.ms": RETENTION_MS}
        assert image.config_of(CLUSTER_DEFAULTS)["log.retention.ms"] == "7654321"
        assert records_in(broker.bootstrap_servers) == RECORDS


def test_kafkas_tools_read_our_snapshot_as_ours_do(filled: Path) -> None:
    path = filled / METADATA / names(filled, ".checkpoint")[-1]
    arguments = ["dump-log", "--cluster-metadata-decoder", "--files", str(path)]
    dumped = CliRunner().invoke(main, arguments)
    assert dumped.exit_code == 0
    theirs = dump_log(path, "--cluster-metadata-decoder")
    assert theirs == dumped.output
    for expected in ("SnapshotHeader", "KRaftVoters", '"name":"orders"', "SnapshotFooter"):
        assert expected in theirs
    assert "doomed" not in theirs
    # The shell waits until its loader has the snapshot, and not until its publisher has it from
    # there (MetadataLoader.maybePublishMetadata in 4.3): now and then it lists nothing.
    arguments = ["metadata-shell", "--snapshot", str(path), "ls", "image/topics/byName"]
    runs = (kafka_tool(*arguments).stdout.split() for _ in range(SHELL_RUNS_MAX))
    assert next(filter(None, runs), []) == ["orders", "squashed"]


def test_a_directory_that_kafka_formatted_is_started(data_dir: Path, properties: Path) -> None:
    chosen = ("--feature", "group.version=0")
    kafka_tool("storage", "format", "-t", CLUSTER_ID, "-c", properties, "--standalone", *chosen)
    with Broker(data_dir=str(data_dir)) as broker:
        expected = default_features()
        del expected["group.version"]
        assert broker.node.broker.image.features == expected
        assert broker.node.cluster_id == CLUSTER_ID
    log = (data_dir / METADATA / f"{0:020}.log").read_bytes()
    assert b"CONTROLLER" in log  # the voters of the snapshot 0-0 are in the log now
    with KafkaNode(data_dir) as kafka:
        Confluent(kafka.bootstrap_servers).create_topic("works")
