"""The active controller goes away while producers write: no record fails, and another takes over.

The figures are the time from the fault until a CreateTopics that was sent right after it has
succeeded, at Kafka's defaults (fetch timeout 2 s, election timeout 1 s). They are printed and not
judged: the machine may have other things to do. Goals: 3 s, and 300 ms after a clean stop.

`make test` has one fault of each kind, `make soak` has all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from tests.cluster.asking import (
    active_controller,
    alive_brokers,
    create_until_done,
    describe_quorum,
    make_topic,
)
from tests.cluster.flavours import Flavour
from tests.cluster.processes import (
    COMBINED,
    IS_WHOLE_MATRIX,
    SEPARATE,
    Cluster,
    ClusterNode,
    wait_until,
)
from tests.cluster.writers import confluent_writer, odradek_writer

pytestmark = pytest.mark.slow

ACKNOWLEDGED_MIN = 20
TOPOLOGIES = {"separate": SEPARATE, "combined": COMBINED}


class Fault(NamedTuple):
    strike: Callable[[Cluster, ClusterNode], object]
    undo: Callable[[Cluster, ClusterNode], object]


def cut_from(cluster: Cluster, node: ClusterNode, others: Sequence[ClusterNode]) -> None:
    for other in others:
        cluster.relays.cut(node.id, other.id)


def cut_to(cluster: Cluster, node: ClusterNode, others: Sequence[ClusterNode]) -> None:
    for other in others:
        cluster.relays.cut(other.id, node.id)


def others(cluster: Cluster, node: ClusterNode) -> list[ClusterNode]:
    return [each for each in cluster.nodes.values() if each is not node]


def voters(cluster: Cluster, node: ClusterNode) -> list[ClusterNode]:
    return [each for each in cluster.controllers if each is not node]


def heal(cluster: Cluster, _: ClusterNode) -> None:
    cluster.relays.heal()


FAULTS: Mapping[str, Fault] = {
    "SIGKILL": Fault(lambda _, node: node.kill(), lambda _, node: node.restart()),
    "SIGSTOP": Fault(lambda _, node: node.pause(), lambda _, node: node.resume()),
    "clean stop": Fault(lambda _, node: node.stop(), lambda _, node: node.restart()),
    "nothing from it arrives": Fault(lambda c, n: cut_from(c, n, others(c, n)), heal),
    "nothing arrives at it": Fault(lambda c, n: cut_to(c, n, others(c, n)), heal),
    "nothing from it arrives at voters": Fault(lambda c, n: cut_from(c, n, voters(c, n)), heal),
    "nothing of voters arrives at it": Fault(lambda c, n: cut_to(c, n, voters(c, n)), heal),
}

CASES = tuple(FAULTS) if IS_WHOLE_MATRIX else ("SIGKILL", "clean stop", "nothing from it arrives")


@pytest.fixture(scope="module", params=TOPOLOGIES)
def cluster(
    request: pytest.FixtureRequest, flavour: Flavour, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder, TOPOLOGIES[request.param], flavour) as made:
        made.start()
        yield made


def wait_until_whole(cluster: Cluster) -> None:
    """Wait until every broker is alive, and every voter has what the leader has."""
    ids = {broker.id for broker in cluster.brokers}
    for broker in cluster.brokers:
        wait_until(
            lambda broker=broker: alive_brokers(broker) == ids,  # type: ignore[misc]
            f"broker {broker.id} knows the others",
        )
    asked = cluster.brokers[0]

    def is_whole() -> bool:
        quorum = describe_quorum(asked)
        return quorum is not None and quorum.slowest_voter_lag <= 1

    wait_until(is_whole, "all voters have caught up")


@pytest.mark.seed_row("0.8")
@pytest.mark.parametrize("name", CASES)
def test_another_controller_takes_over(
    cluster: Cluster, flavour: Flavour, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fault, topic = FAULTS[name], name.lower().replace(" ", "-")
    wait_until_whole(cluster)
    victim = active_controller(cluster)
    survivors = [broker for broker in cluster.brokers if broker is not victim]
    make_topic(cluster, topic, [broker.id for broker in survivors])
    servers = ",".join(broker.bootstrap_servers for broker in survivors)
    with ExitStack() as stack:
        writers = [
            stack.enter_context(make(servers, topic, partition))
            for partition in range(len(survivors))
            for make in (confluent_writer, odradek_writer)
        ]

        def wait_for_more() -> None:
            goals = [writer.acknowledged + ACKNOWLEDGED_MIN for writer in writers]
            wait_until(
                lambda: all(
                    writer.acknowledged >= goal for writer, goal in zip(writers, goals, strict=True)
                ),
                "every producer goes on writing",
            )

        wait_for_more()
        fault.strike(cluster, victim)
        seconds = create_until_done(survivors[0], f"{topic}-after", [survivors[0].id])
        wait_for_more()
        assert active_controller(cluster, survivors[0]).id != victim.id
        fault.undo(cluster, victim)
        wait_for_more()
    slowest = max(writer.slowest_seconds for writer in writers)
    with capsys.disabled():
        roles = "combined" if victim.is_broker else "separate"
        print(
            f"\n{flavour.name}, {roles}, {name}: CreateTopics after {seconds * 1000:.0f} ms; "
            f"slowest of {sum(writer.acknowledged for writer in writers)} produces "
            f"{slowest * 1000:.0f} ms"
        )
    assert [failure for writer in writers for failure in writer.failures] == []
