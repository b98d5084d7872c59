"""Nodes and clients that do not belong: refused with a clear line, and of no effect on the others.

The same tests run with Kafka's server. Where Odradek promises more than Kafka, the test says so.
"""

import random
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from odradek.protocol.generated.produce import ProduceRequest, ProduceResponse
from odradek.protocol.generated.vote import VoteRequest, VoteResponse
from odradek.protocol.message import Message
from tests.broker_connection import BrokerConnection
from tests.cluster.asking import (
    Quorum,
    alive_brokers,
    create_until_done,
    describe_quorum,
    leaders_of,
)
from tests.cluster.flavours import Flavour, address
from tests.cluster.processes import (
    OTHER_CLUSTER_ID,
    SEPARATE,
    Cluster,
    ClusterNode,
    wait_until,
)
from tests.interop.ports import HOST

pytestmark = pytest.mark.slow

SECONDS_MAX = 60
REGISTRATION_MS = "4000"
BROKERS = {11, 12}


@pytest.fixture(scope="module")
def cluster(flavour: Flavour, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), SEPARATE, flavour) as made:
        made.start()
        yield made


@contextmanager
def unharmed(cluster: Cluster, name: str) -> Iterator[None]:
    """Check that afterwards the same controller leads, and that brokers and topics are well."""
    before = quorum_of(cluster)
    yield
    first, second = cluster.brokers
    create_until_done(first, name, [first.id, second.id])
    wait_until(lambda: leaders_of(second, name) == [first.id, second.id], "the topic is known")
    assert alive_brokers(first) == alive_brokers(second) == BROKERS
    after = quorum_of(cluster)
    assert (after.leader_id, after.leader_epoch) == (before.leader_id, before.leader_epoch)
    assert after.voters == before.voters
    assert all(node.is_running for node in cluster.nodes.values())


def quorum_of(cluster: Cluster) -> Quorum:
    found: list[Quorum | None] = [None]

    def is_known() -> bool:
        found[0] = describe_quorum(cluster.brokers[0])
        return found[0] is not None

    wait_until(is_known, "the quorum has a leader")
    assert found[0] is not None
    return found[0]


def stranger(cluster: Cluster, node_id: int, roles: str, name: str, **changes: str) -> ClusterNode:
    """Make a node that is none of the cluster's, with its own folder; not formatted yet."""
    node = cluster.add(node_id, roles, name)
    cluster.write_properties(
        node, initial_broker_registration_timeout_ms=REGISTRATION_MS, **changes
    )
    return node


def wait_for_line(node: ClusterNode, *words: str) -> None:
    """Wait until a line of a node's log has all the words."""

    def is_there() -> bool:
        lines = node.log_file.read_text(errors="replace").splitlines()
        lines += node.output_file.read_text(errors="replace").splitlines()
        return any(all(word in line for word in words) for line in lines)

    wait_until(is_there, f"node {node.id} says {' and '.join(words)}", SECONDS_MAX)


def test_a_broker_of_another_cluster_stays_out(cluster: Cluster) -> None:
    with unharmed(cluster, "after-other-cluster-broker"):
        node = stranger(cluster, 13, "broker", "other-cluster-broker")
        cluster.format(node, OTHER_CLUSTER_ID)
        node.start()
        wait_for_line(node, "INCONSISTENT_CLUSTER_ID")
        assert 13 not in alive_brokers(cluster.brokers[0])
        node.kill()


def test_a_controller_of_another_cluster_stays_out(cluster: Cluster) -> None:
    with unharmed(cluster, "after-other-cluster-controller"):
        node = stranger(
            cluster,
            4,
            "controller",
            "other-cluster-controller",
            controller_quorum_voters=f"{cluster.voters_text()},4@{address(1)}",
        )
        cluster.format(node, OTHER_CLUSTER_ID)
        node.start()
        wait_for_line(node, "INCONSISTENT_CLUSTER_ID")
        node.kill()


def test_a_node_id_in_use_is_refused(cluster: Cluster) -> None:
    with unharmed(cluster, "after-twin"):
        twin = stranger(cluster, 11, "broker", "twin")
        cluster.format(twin)
        twin.start()
        assert twin.wait_for_end() != 0  # after initial.broker.registration.timeout.ms
        wait_for_line(twin, "DUPLICATE_BROKER_REGISTRATION")


def test_a_voter_that_is_not_in_the_set_changes_nothing(cluster: Cluster) -> None:
    with unharmed(cluster, "after-fourth-voter"):
        node = stranger(
            cluster,
            4,
            "controller",
            "fourth-voter",
            controller_quorum_voters=f"{cluster.voters_text()},4@{address(1)}",
        )
        cluster.format(node)
        node.start()
        node.wait_until_ready()
        observed = quorum_of(cluster)
        wait_until(lambda: 4 in quorum_of(cluster).observers, "it fetches as an observer")
        assert 4 not in observed.voters
        node.kill()


def is_refused(port: int, request: Message, response: type[Message], version: int) -> bool:
    """Tell whether a node hangs up instead of answering."""
    with BrokerConnection(port) as connection:
        try:
            connection.ask(request, response, version)
        except OSError:
            return True
    return False


def test_requests_of_the_other_kind_of_listener_are_refused(cluster: Cluster) -> None:
    leader = cluster.nodes[quorum_of(cluster).leader_id]
    with unharmed(cluster, "after-wrong-listener"):
        assert is_refused(leader.controller_port, ProduceRequest(acks=1), ProduceResponse, 12)
        broker = cluster.brokers[0]
        assert is_refused(broker.port, VoteRequest(), VoteResponse, 1)
        registration = BrokerRegistrationRequest(broker_id=99, cluster_id=cluster.cluster_id)
        assert is_refused(broker.port, registration, BrokerRegistrationResponse, 1)


@pytest.mark.parametrize("kind", ["random bytes", "a huge frame", "half a frame", "no request"])
def test_garbage_ends_only_its_own_connection(cluster: Cluster, kind: str) -> None:
    chance = random.Random(7)
    frames = {
        "random bytes": chance.randbytes(4096),
        "a huge frame": struct.pack(">i", 2**31 - 1),
        "half a frame": struct.pack(">i", 1000) + b"x" * 10,
        "no request": struct.pack(">ihhi", 8, 52, 2, 1),  # the head of a Vote, and no body
    }
    with unharmed(cluster, f"after-{kind.replace(' ', '-')}"):
        for node in (*cluster.controllers, *cluster.brokers):
            port = node.controller_port if node.is_controller else node.port
            with socket.create_connection((HOST, port), SECONDS_MAX) as connection:
                connection.sendall(frames[kind])
                connection.shutdown(socket.SHUT_WR)
                assert connection.recv(1) == b""
