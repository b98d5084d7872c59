"""Partitions go back to their preferred leaders by themselves, on nodes that are processes.

That they stay where they are when this is switched off is part of ``test_elections_by_hand``.
"""

from pathlib import Path

import pytest

from tests.cluster.asking import placements_of
from tests.cluster.flavours import Flavour
from tests.cluster.processes import Cluster
from tests.cluster.replica_records import make_replicated_topic, wait_for_leader
from tests.cluster.writers import odradek_writer

pytestmark = pytest.mark.slow

ROLES = {1: "controller", 11: "broker", 12: "broker"}
CONFIGS = {"leader.imbalance.check.interval.seconds": "1"}


@pytest.mark.seed_row("1.5")
def test_a_leader_that_is_back_leads_again_under_load(flavour: Flavour, tmp_path: Path) -> None:
    with Cluster(tmp_path, ROLES, flavour, configs=CONFIGS) as cluster:
        cluster.start()
        first, second = cluster.brokers
        make_replicated_topic(cluster, "led", [first, second], min_insync_replicas="1")
        with odradek_writer(cluster.bootstrap_servers, "led", 0, retries=None) as writer:
            first.stop()
            wait_for_leader(second, "led", [second])
            epoch = placements_of(second, "led")[0].leader_epoch
            first.restart()
            wait_for_leader(second, "led", [first])
            wait_for_leader(first, "led", [first])
        (placement,) = placements_of(first, "led")
        assert placement.isr == {first.id, second.id}
        assert placement.leader_epoch > epoch
        assert writer.failures == []
