"""A static quorum of one goes to kraft.version 1 as a real Kafka's does, and a Kafka reads it."""

from pathlib import Path

import pytest

from odradek.client import BlockingAdmin
from odradek.testing.broker import Broker
from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.odradek_tool import odradek_tool
from tests.interop.ports import HOST, free_ports

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

UPGRADES = (
    ("upgrade", "--feature", "kraft.version=1", "--dry-run"),
    ("upgrade", "--feature", "kraft.version=2"),
    ("upgrade", "--feature", "kraft.version=1"),
    ("upgrade", "--feature", "kraft.version=1"),
    ("downgrade", "--feature", "kraft.version=0"),
)
Told = list[tuple[int, str, str]]


def static_node(data_dir: Path) -> KafkaNode:
    """A Kafka whose voters are in its configs, formatted so."""
    node = KafkaNode(data_dir)
    node.port, node.controller_port = free_ports(2)
    node.overrides = {
        "controller.quorum.voters": f"1@{HOST}:{node.controller_port}",
        "controller.quorum.bootstrap.servers": "",
    }
    properties = data_dir.with_name("format.properties")
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}\n"
        f"controller.quorum.voters=1@{HOST}:{node.controller_port}\nlog.dirs={data_dir}\n"
    )
    kafka_tool("storage", "format", "-t", node.cluster_id, "-c", str(properties))
    return node


def told(servers: str) -> Told:
    answers = [
        odradek_tool("features", "--bootstrap-server", servers, *arguments, check=False)
        for arguments in UPGRADES
    ]
    return [(each.returncode, each.stdout, each.stderr) for each in answers]


def level(servers: str) -> int:
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        finalized = admin.describe_features().finalized
    return finalized["kraft.version"].max_version if "kraft.version" in finalized else 0


def test_a_quorum_of_one_is_upgraded_as_by_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    with static_node(tmp_path / "theirs") as node:
        theirs = told(node.bootstrap_servers)
    data = tmp_path / "ours"
    (controller,) = free_ports(1)
    ours = {
        "node.id": "1",
        "listeners": f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
    }
    with Broker(config=ours, data_dir=str(data), topics={"t": 2}) as broker:
        assert level(broker.bootstrap_servers) == 0
        found = told(broker.bootstrap_servers)
        assert level(broker.bootstrap_servers) == 1
    assert found == theirs
    assert [code for code, *_ in found] == [0, 1, 0, 0, 1]
    with Broker(config=ours, data_dir=str(data)) as broker:
        assert level(broker.bootstrap_servers) == 1
        with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            quorum = admin.describe_quorum()
    (ours_as_voter,) = ((each.replica_id, each.directory_id) for each in quorum.voters)
    assert [(each.listener, each.port) for each in quorum.endpoints[1]] == [
        ("CONTROLLER", controller)
    ]
    # The voters are in the log now: a Kafka that is told of none finds itself there.
    with KafkaNode(data) as node:
        assert level(node.bootstrap_servers) == 1
        with BlockingAdmin(bootstrap_servers=node.bootstrap_servers) as admin:
            assert [each.name for each in admin.list_topics()] == ["t"]
            (voter,) = admin.describe_quorum().voters
    assert (voter.replica_id, voter.directory_id) == ours_as_voter
