"""Controllers get votes and lose them while a producer writes: no record fails (KIP-853).

One voter, then three, then without the one that leads; a controller loses its disk and replaces
itself. `make soak` goes on to five and back to three.
"""

import shutil
from pathlib import Path

import pytest

from odradek.client import BlockingAdmin
from odradek.core.ids import Uuid
from tests.cluster.asking import Quorum, create_until_done, describe_quorum, make_topic
from tests.cluster.flavours import Flavour, address
from tests.cluster.processes import IS_WHOLE_MATRIX, Cluster, ClusterNode, Place, wait_until
from tests.cluster.writers import odradek_writer
from tests.interop.odradek_tool import odradek_tool
from tests.interop.ports import free_ports

pytestmark = pytest.mark.slow

CONTROLLERS = (1, 2, 3, 4, 5) if IS_WHOLE_MATRIX else (1, 2, 3)
BROKER = 11
ROLES = {**dict.fromkeys(CONTROLLERS, "controller"), BROKER: "broker"}
TOPIC = "orders"
CONFIGS = {"controller.quorum.request.timeout.ms": "15000"}  # of a change, too, with its commit


def directory_id(node: ClusterNode) -> str:
    lines = (node.data_dir / "meta.properties").read_text().splitlines()
    return next(line for line in lines if line.startswith("directory.id=")).partition("=")[2]


def tool(cluster: Cluster, *arguments: str | Path) -> tuple[int, str]:
    """Run ``metadata-quorum`` through the broker."""
    run = odradek_tool(
        "metadata-quorum",
        "--bootstrap-server",
        cluster.nodes[BROKER].bootstrap_servers,
        *arguments,
        check=False,
    )
    return run.returncode, run.stdout or run.stderr


def add(cluster: Cluster, node_id: int) -> None:
    """Add a controller. It has to be caught up, which the leader does not wait for."""
    node = cluster.nodes[node_id]
    wait_until(lambda: node_id in quorum_of(cluster).observers, f"{node_id} fetches")
    said: list[tuple[int, str]] = []

    def is_added() -> bool:
        said.append(tool(cluster, "--command-config", node.properties, "add-controller"))
        return said[-1][0] == 0

    wait_until(is_added, f"{node_id} gets a vote")
    assert said[-1][1] == (
        f"Added controller {node_id} with directory id {directory_id(node)} and endpoints: "
        f"CONTROLLER://{address(node.places['CONTROLLER'].relay_port)}\n"
    )
    assert node_id in quorum_of(cluster).voters


def remove(cluster: Cluster, node_id: int) -> None:
    node = cluster.nodes[node_id]
    left = quorum_of(cluster).voters - {node_id}
    arguments = ("--controller-id", str(node_id), "--controller-directory-id", directory_id(node))
    code, said = tool(cluster, "remove-controller", *arguments)
    assert code == 0, said
    assert said == f"Removed  KRaft controller {node_id} with directory id {directory_id(node)}\n"
    wait_until(lambda: quorum_of(cluster).voters == left, f"the voters are {sorted(left)}")


def quorum_of(cluster: Cluster) -> Quorum:
    found: list[Quorum | None] = []

    def is_led() -> bool:
        found.append(describe_quorum(cluster.nodes[BROKER]))
        return found[-1] is not None

    wait_until(is_led, "the quorum has a leader")
    assert found[-1] is not None
    return found[-1]


def replace_disk(cluster: Cluster, node_id: int) -> None:
    """Let a voter lose all that it has; with an empty disk it takes its own place."""
    node = cluster.nodes[node_id]
    node.kill()
    before = directory_id(node)
    shutil.rmtree(node.data_dir)
    cluster.write_properties(node, controller_quorum_auto_join_enable="true")
    node.flavour.format(node.properties, ["-t", cluster.cluster_id, "--no-initial-controllers"])
    assert directory_id(node) != before
    node.restart()
    wanted = (node_id, directory_id(node))
    wait_until(lambda: wanted in keys_of(cluster), f"{node_id} votes with its new disk")


def keys_of(cluster: Cluster) -> set[tuple[int, str]]:
    servers = cluster.nodes[BROKER].bootstrap_servers
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        voters = admin.describe_quorum().voters
    return {(each.replica_id, str(each.directory_id)) for each in voters}


def test_voters_come_go_and_lose_their_disks_while_a_producer_writes(
    flavour: Flavour, tmp_path: Path
) -> None:
    with Cluster(
        tmp_path,
        ROLES,
        flavour,
        quorum="dynamic",
        configs=CONFIGS,
        is_relayed=False,
        first_voters=CONTROLLERS[:1],
    ) as cluster:
        cluster.start()
        broker = cluster.nodes[BROKER]
        make_topic(cluster, TOPIC, [BROKER])
        with odradek_writer(broker.bootstrap_servers, TOPIC, 0, retries=None) as writer:
            add(cluster, 2)
            add(cluster, 3)
            assert quorum_of(cluster).voters == {1, 2, 3}
            code, said = tool(cluster, "remove-controller", "-i", "3", "-d", str(Uuid(bytes(16))))
            assert (code, said) == (1, "Remove voter request didn't include a valid voter\n")
            first = quorum_of(cluster).leader_id
            remove(cluster, first)
            assert quorum_of(cluster).leader_id != first
            create_until_done(broker, "after the leader was removed".replace(" ", "-"), [BROKER])
            add(cluster, first)
            follower = min({1, 2, 3} - {quorum_of(cluster).leader_id})
            replace_disk(cluster, follower)
            if IS_WHOLE_MATRIX:
                add(cluster, 4)
                add(cluster, 5)
                remove(cluster, quorum_of(cluster).leader_id)
                remove(cluster, quorum_of(cluster).leader_id)
            create_until_done(broker, "at-last", [BROKER])
            acknowledged = writer.acknowledged
            wait_until(lambda: writer.acknowledged > acknowledged + 20, "records are written")
        assert writer.failures == []


def test_static_voters_go_into_the_log_and_can_be_removed_then(
    flavour: Flavour, tmp_path: Path
) -> None:
    roles = {**dict.fromkeys((1, 2, 3), "controller"), BROKER: "broker"}
    with Cluster(tmp_path, roles, flavour, configs=CONFIGS, is_relayed=False) as cluster:
        cluster.start()
        servers = cluster.nodes[BROKER].bootstrap_servers
        directory = directory_id(cluster.nodes[3])
        arguments = ("--controller-id", "3", "--controller-directory-id", directory)
        assert tool(cluster, "remove-controller", *arguments) == (
            1,
            "Cluster doesn't support removing voter because the kraft.version feature is 0\n",
        )

        def is_upgraded() -> bool:
            # Each voter says in its own time who it is; before that the leader refuses.
            run = odradek_tool(
                *("features", "--bootstrap-server", servers),
                *("upgrade", "--feature", "kraft.version=1"),
                check=False,
            )
            is_refused = "because not all of the voters support it" in run.stdout + run.stderr
            assert run.returncode == 0 or is_refused, run
            return run.returncode == 0

        wait_until(is_upgraded, "the log names the voters")
        wanted = {(each.id, directory_id(each)) for each in cluster.controllers}
        wait_until(lambda: keys_of(cluster) == wanted, "the log has them as they are")
        remove(cluster, 3)
        create_until_done(cluster.nodes[BROKER], TOPIC, [BROKER])


def test_a_voter_that_listens_elsewhere_is_found_there(flavour: Flavour, tmp_path: Path) -> None:
    """It tells the leader (UpdateRaftVoter), and votes from its new place when the leader dies."""
    roles = {**dict.fromkeys((1, 2, 3), "controller"), BROKER: "broker"}
    with Cluster(
        tmp_path, roles, flavour, quorum="dynamic", configs=CONFIGS, is_relayed=False
    ) as cluster:
        cluster.start()
        leader = cluster.nodes[quorum_of(cluster).leader_id]
        moved = next(each for each in cluster.controllers if each is not leader)
        moved.stop()
        (port,) = free_ports(1)
        moved.places["CONTROLLER"] = Place(port, port)
        cluster.write_properties(moved)
        moved.restart()
        wait_until(lambda: port in ports_of(cluster, moved), f"{moved.id} is known at {port}")
        create_until_done(cluster.nodes[BROKER], TOPIC, [BROKER])
        leader.kill()  # what is left is a majority only with the voter that has moved
        create_until_done(cluster.nodes[BROKER], "at-last", [BROKER])
        assert ports_of(cluster, moved) == [port]


def ports_of(cluster: Cluster, node: ClusterNode) -> list[int]:
    servers = cluster.nodes[BROKER].bootstrap_servers
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        return [each.port for each in admin.describe_quorum().endpoints[node.id]]
