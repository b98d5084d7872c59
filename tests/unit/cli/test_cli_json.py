"""``--json`` of the tools, and that a failure in part is exit code 1."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.cli.tables import camel_case
from odradek.testing.broker import Broker


class Tools:
    def __init__(self, servers: str) -> None:
        self._server = ("--bootstrap-server", servers)

    def run(self, tool: str, *arguments: str | Path) -> Result:
        given = list(map(str, arguments))
        asked = [*given, *self._server] if tool == "cluster" else [*self._server, *given]
        return CliRunner().invoke(main, [tool, *asked])

    def json(self, tool: str, *arguments: str) -> Any:
        result = self.run(tool, *arguments, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)


@pytest.fixture
def tools(odradek_broker: Broker) -> Tools:
    return Tools(odradek_broker.bootstrap_servers)


@pytest.mark.parametrize(
    ("name", "in_json"),
    [("group_id", "groupId"), ("TransactionalId", "transactionalId"), ("rack", "rack")],
)
def test_names_are_in_camel_case(name: str, in_json: str) -> None:
    assert camel_case(name) == in_json


def test_topics(tools: Tools, odradek_topic: str) -> None:
    assert odradek_topic in tools.json("topics", "--list")
    (described,) = tools.json("topics", "--describe", "--topic", odradek_topic)
    (partition,) = described["partitions"]
    assert (described["topic"], described["isInternal"]) == (odradek_topic, False)
    assert (partition["leader"], partition["replicas"], partition["isr"]) == (1, [1], [1])


def test_configs(tools: Tools, odradek_topic: str) -> None:
    change = ("--alter", "--topic", odradek_topic, "--add-config", "retention.ms=5000")
    assert tools.run("configs", *change).exit_code == 0
    (entity,) = tools.json("configs", "--describe", "--topic", odradek_topic)
    assert entity["entityName"] == odradek_topic
    (config,) = entity["configs"]
    assert (config["name"], config["value"]) == ("retention.ms", "5000")


def test_offsets(tools: Tools, odradek_topic: str) -> None:
    found = tools.json("get-offsets", "--topic", odradek_topic)
    assert found == [{"topic": odradek_topic, "partition": 0, "offset": 0}]


def test_groups(tools: Tools, odradek_topic: str) -> None:
    name = f"group-of-{odradek_topic}"
    reset = ("--reset-offsets", "--group", name, "--topic", odradek_topic, "--to-latest")
    assert tools.run("consumer-groups", *reset, "--execute").exit_code == 0
    listed = {each["groupId"]: each for each in tools.json("groups", "--list")}
    assert listed[name]["type"] == "classic"
    assert name in [each["groupId"] for each in tools.json("consumer-groups", "--list")]
    (described,) = tools.json("consumer-groups", "--describe", "--group", name)
    assert (described["state"], described["members"]) == ("Empty", [])
    (row,) = described["offsets"]
    assert (row["currentOffset"], row["lag"], row["memberId"]) == (0, 0, None)


def test_the_cluster(tools: Tools, odradek_broker: Broker) -> None:
    (broker,) = tools.json("cluster", "list-endpoints")
    assert f"{broker['host']}:{broker['port']}" == odradek_broker.bootstrap_servers
    assert broker["nodeId"] == 1
    assert broker["isFenced"] is False
    assert tools.json("cluster", "cluster-id") == {"clusterId": odradek_broker.node.cluster_id}
    (node,) = tools.json("broker-api-versions")
    assert (node["nodeId"], node["error"]) == (1, None)
    fetch = {"name": "Fetch", "apiKey": 1, "minVersion": 4, "maxVersion": 18}
    assert fetch in node["apis"]
    features = {each["feature"]: each for each in tools.json("features", "describe")}
    assert features["group.version"]["finalized"] == "1"
    quorum = tools.json("metadata-quorum", "describe", "--status")
    assert [each["status"] for each in quorum["replicas"]] == ["Leader"]
    log_dirs = tools.json("log-dirs", "--describe")
    assert [each["broker"] for each in log_dirs["brokers"]] == [1]
    assert tools.json("transactions", "list") == []


def test_part_of_it_failing_is_exit_code_one(
    tools: Tools, odradek_topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "offsets.json"
    rows = [{"topic": odradek_topic, "partition": each, "offset": 0} for each in (0, 7)]
    plan.write_text(json.dumps({"partitions": rows}))
    result = tools.run("delete-records", "--offset-json-file", plan)
    assert result.exit_code == 1
    assert f"partition: {odradek_topic}-0\tlow_watermark: 0" in result.stdout
    assert f"partition: {odradek_topic}-7\terror: " in result.stdout


@pytest.mark.seed_row("4.11")
def test_kafkas_own_topics_are_not_deleted(tools: Tools, odradek_topic: str) -> None:
    reset = ("--reset-offsets", "--group", "g", "--topic", odradek_topic, "--to-latest")
    assert tools.run("consumer-groups", *reset, "--execute").exit_code == 0
    result = tools.run("topics", "--delete", "--topic", "__consumer_offsets")
    assert result.exit_code == 1
    assert "__consumer_offsets is Kafka's own and cannot be deleted" in result.stdout
    assert "__consumer_offsets" in tools.json("topics", "--list")


def test_offsets_of_a_topic_that_is_gone_are_shown(tools: Tools, odradek_topic: str) -> None:
    name = f"stays-without-{odradek_topic}"
    reset = ("--reset-offsets", "--group", name, "--topic", odradek_topic, "--to-latest")
    assert tools.run("consumer-groups", *reset, "--execute").exit_code == 0
    (row,) = tools.json("consumer-groups", "--describe", "--group", name)[0]["offsets"]
    assert row["logEndOffset"] == 0
    assert tools.run("topics", "--delete", "--topic", odradek_topic).exit_code == 0
    # The broker forgets such offsets when it comes to it.
    for row in tools.json("consumer-groups", "--describe", "--group", name)[0]["offsets"]:
        assert (row["currentOffset"], row["logEndOffset"], row["lag"]) == (0, None, None)
