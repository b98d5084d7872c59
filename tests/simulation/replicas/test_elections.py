"""Leaders go back to the preferred replicas by themselves, or stay, as the configs say."""

import pytest

from tests.simulation.replicas.three_nodes import ThreeNodes, three_nodes

INTERVAL_SECONDS = 20


def bring_the_leader_back(nodes: ThreeNodes) -> None:
    """Have another broker lead, and the first one in sync again."""
    nodes.machines[1].kill()
    nodes.wait_until(lambda: nodes.leader() in (2, 3))
    nodes.machines[1].start()
    nodes.wait_until(lambda: nodes.machines[1].is_serving)
    nodes.wait_until(lambda: nodes.isr() == {1, 2, 3})


@pytest.mark.seed_row("1.6")
def test_the_preferred_replica_leads_again_within_an_interval() -> None:
    with three_nodes(leader_imbalance_check_interval_seconds=str(INTERVAL_SECONDS)) as nodes:
        bring_the_leader_back(nodes)
        assert nodes.leader() != 1
        nodes.wait_until(lambda: nodes.leader() == 1, INTERVAL_SECONDS + 1)
        nodes.run(nodes.send(b"after", acks="all"))
        assert nodes.run(nodes.read_all()) == [b"after"]


@pytest.mark.seed_row("1.6")
def test_leaders_stay_if_that_is_wanted() -> None:
    with three_nodes(
        leader_imbalance_check_interval_seconds=str(INTERVAL_SECONDS),
        auto_leader_rebalance_enable="false",
    ) as nodes:
        bring_the_leader_back(nodes)
        nodes.world.run_for(2 * INTERVAL_SECONDS)
        assert nodes.leader() in (2, 3)
