"""Controllers asked directly, by an Admin and by the tools: no broker is in between (KIP-919)."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import ConfigResource
from odradek.client.admin.topics import NewTopic
from odradek.client.blocking.admin import BlockingAdmin
from odradek.client.errors import BrokerError
from odradek.core.errors import ErrorCode
from tests.cluster.flavours import Flavour, address
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until

pytestmark = pytest.mark.slow
CONTROLLERS = sorted(COMBINED)
PATIENCE_MS = 120_000


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), COMBINED, flavour) as made:
        made.start()
        yield made


def controllers_of(cluster: Cluster) -> str:
    return ",".join(at(node) for node in cluster.controllers)


def at(node: ClusterNode) -> str:
    return address(node.places["CONTROLLER"].relay_port)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def text_of(result: Result) -> str:
    assert result.exit_code == 0, result.output
    return result.stdout


def test_every_controller_leads_to_the_active_one(cluster: Cluster) -> None:
    async def ask(node: ClusterNode) -> tuple[str, int]:
        async with Admin(bootstrap_controllers=at(node)) as admin:
            described = await admin.describe_cluster()
            assert [each.node_id for each in described.brokers] == CONTROLLERS
            ports = {each.places["CONTROLLER"].relay_port for each in cluster.controllers}
            assert {each.port for each in described.brokers} == ports
            quorum = await admin.describe_quorum()
            assert quorum.leader_id == described.controller_id
            return described.cluster_id, described.controller_id

    found = {asyncio.run(ask(node)) for node in cluster.controllers}
    assert len(found) == 1
    assert found.pop()[0] == cluster.cluster_id


def test_what_a_controller_changes_is_there_for_clients_of_brokers(cluster: Cluster) -> None:
    everything = ConfigResource.broker()
    with BlockingAdmin(bootstrap_controllers=controllers_of(cluster)) as admin:
        admin.alter_configs({everything: {"log.retention.ms": "987654"}}).unwrap()
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:

        def is_known() -> bool:
            found = admin.describe_configs([everything])[everything].unwrap()
            return "log.retention.ms" in found and found["log.retention.ms"].value == "987654"

        wait_until(is_known, "the brokers know the config")


def test_calls_that_only_brokers_answer_are_refused_at_once(cluster: Cluster) -> None:
    async def ask() -> None:
        async with Admin(bootstrap_controllers=controllers_of(cluster)) as admin:
            results = await admin.create_topics([NewTopic("orders", partitions=1)])
            error = results["orders"].error
            assert isinstance(error, BrokerError)
            assert error.code is ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            with pytest.raises(BrokerError, match="directly with the controller quorum"):
                await admin.list_topics()

    asyncio.run(ask())


def test_a_broker_is_not_taken_for_a_controller(cluster: Cluster) -> None:
    result = run(
        "cluster", "cluster-id", "--bootstrap-controller", cluster.brokers[0].bootstrap_servers
    )
    assert result.exit_code == 1
    assert "we wanted an endpoint of type CONTROLLER" in result.stderr
    swapped = run("cluster", "list-endpoints", "-b", cluster.brokers[0].bootstrap_servers)
    assert text_of(swapped).splitlines()[0].split()[4:] == ["STATE", "ENDPOINT_TYPE"]


def test_the_cluster_tool(cluster: Cluster) -> None:
    to = ("--bootstrap-controller", controllers_of(cluster))
    assert text_of(run("cluster", "cluster-id", *to)) == f"Cluster ID: {cluster.cluster_id}\n"
    head, *rows = text_of(run("cluster", "list-endpoints", *to)).splitlines()
    assert head.split() == ["ID", "HOST", "PORT", "RACK", "ENDPOINT_TYPE"]
    hosts_and_ports = {node.id: at(node).split(":") for node in cluster.controllers}
    wanted = [[str(each), *hosts_and_ports[each], "null", "controller"] for each in CONTROLLERS]
    assert sorted(row.split() for row in rows) == wanted
    refused = run("cluster", "unregister", "-C", controllers_of(cluster), "--id", "77")
    assert refused.exit_code == 1
    assert "77" in refused.output


def test_the_tools_of_quorum_and_features(cluster: Cluster) -> None:
    to = ("--bootstrap-controller", controllers_of(cluster))
    status = text_of(run("metadata-quorum", *to, "describe", "--status"))
    assert f"ClusterId:              {cluster.cluster_id}" in status.splitlines()
    said = text_of(run("metadata-quorum", *to, "describe", "--replication", "--json"))
    replicas = json.loads(said)["replicas"]
    voters = {each["nodeId"] for each in replicas if each["status"] != "Observer"}
    assert sorted(voters) == CONTROLLERS
    described = text_of(run("features", *to, "describe"))
    assert "Feature: metadata.version" in described
    dry = run("features", *to, "upgrade", "--feature", "metadata.version=9999", "--dry-run")
    assert dry.exit_code == 1
    assert "Can not upgrade metadata.version to 9999." in dry.stdout


def test_the_tool_of_configs(cluster: Cluster) -> None:
    to = ("configs", "--bootstrap-controller", controllers_of(cluster))
    changed = run(*to, "--alter", "--broker-defaults", "--add-config", "log.roll.ms=765432")
    assert text_of(changed) == "Completed updating default config for brokers in the cluster.\n"
    assert "log.roll.ms=765432 " in text_of(run(*to, "--describe", "--broker-defaults"))
    own = text_of(run(*to, "--describe", "--broker", "2", "--all"))
    assert "  node.id=2 sensitive=false " in own
    topics = run(*to, "--describe", "--entity-type", "topics")
    assert topics.exit_code == 1
    assert "directly with the controller quorum" in topics.stderr


def test_a_controller_that_is_active_no_more_leads_to_the_one_that_is(cluster: Cluster) -> None:
    """Its connection is still there: it is its answer that makes the client look again."""

    async def ask() -> tuple[int, int]:
        async with Admin(bootstrap_controllers=controllers_of(cluster)) as admin:
            first = (await admin.describe_quorum()).leader_id
            cluster.nodes[first].pause()
            try:
                second = await another_leader(first)
            finally:
                cluster.nodes[first].resume()
            changes = {ConfigResource.broker(): {"log.roll.ms": "765434"}}
            (await admin.alter_configs(changes, timeout_ms=PATIENCE_MS)).unwrap()
            return first, second

    async def another_leader(first: int) -> int:
        others = ",".join(at(node) for node in cluster.controllers if node.id != first)
        # Those two may still name the one that is paused and does not answer.
        asking = Admin(bootstrap_controllers=others, request_timeout_ms=1_000)
        async with asyncio.timeout(PATIENCE_MS / 1000), asking as admin:
            while True:
                found = (await admin.describe_cluster(timeout_ms=PATIENCE_MS)).controller_id
                if found not in (first, -1):
                    return found
                await asyncio.sleep(0.1)

    first, second = asyncio.run(ask())
    assert second != first


def test_another_leader_is_found(cluster: Cluster) -> None:
    """The last test: it ends the active controller."""

    async def ask() -> tuple[int, int]:
        async with Admin(bootstrap_controllers=controllers_of(cluster)) as admin:
            first = (await admin.describe_quorum()).leader_id
            cluster.nodes[first].kill()
            everything = ConfigResource.broker()
            changes = {everything: {"log.roll.ms": "765433"}}
            (await admin.alter_configs(changes, timeout_ms=PATIENCE_MS)).unwrap()
            return first, (await admin.describe_quorum(timeout_ms=PATIENCE_MS)).leader_id

    first, second = asyncio.run(ask())
    assert second != first
