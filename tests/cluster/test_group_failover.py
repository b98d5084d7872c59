"""A group goes on when its coordinator's broker dies: row 4.12 of the checklist.

``__consumer_offsets`` has three copies. Groups of both protocols, with two clients, read and commit
while the broker of their coordinator is killed, and after that while the next one is stopped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from odradek.client import BlockingAdmin, BlockingProducer, NewTopic
from tests.cluster.asking import placements_of
from tests.cluster.flavours import Flavour
from tests.cluster.group_members import (
    ConfluentClient,
    Group,
    OdradekClient,
    Probe,
    committed_offsets,
    coordinator_of,
)
from tests.cluster.processes import COMBINED, Cluster, ClusterNode, wait_until

pytestmark = pytest.mark.slow

SECONDS_MAX = 240
PARTITIONS = 3
TOPIC = "t"
GROUP_TOPIC = "__consumer_offsets"
CLEAN_ENDS = {0, 128 + 15}
"""Exit codes after SIGTERM; Java has one of its own."""
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
}
KINDS = {
    f"{client}-{protocol}": (make, protocol)
    for client, make in (("odradek", OdradekClient), ("confluent", ConfluentClient))
    for protocol in ("classic", "consumer")
}


class Site(NamedTuple):
    cluster: Cluster
    groups: list[Group]
    probe: Probe
    producer: BlockingProducer
    sent: list[bytes]

    def send_until_committed(self, count: int) -> None:
        """Send, until every group has acknowledged commits of so many more records."""
        start = {group.name: total(group.acknowledged().values()) for group in self.groups}

        def is_done() -> bool:
            for number in range(PARTITIONS):
                value = b"%d" % len(self.sent)
                self.producer.send(TOPIC, value, partition=number).result(SECONDS_MAX)
                self.sent.append(value)
            return all(
                total(group.acknowledged().values()) >= start[group.name] + count
                for group in self.groups
            )

        wait_until(is_done, f"{count} more records are committed by each group", SECONDS_MAX)

    def coordinator(self) -> ClusterNode:
        found: list[int] = []

        def is_known() -> bool:
            node_id = coordinator_of(self.cluster, Probe.GROUP)
            found[:] = [] if node_id is None else [node_id]
            return node_id is not None and self.cluster.nodes[node_id].is_running

        wait_until(is_known, "the groups have a coordinator", SECONDS_MAX)
        return self.cluster.nodes[found[0]]

    def wait_for_copies(self) -> None:
        def are_in_sync() -> bool:
            node = self.cluster.brokers[0]
            places = [*placements_of(node, GROUP_TOPIC), *placements_of(node, TOPIC)]
            return all(len(each.isr) == len(self.cluster.brokers) for each in places)

        wait_until(are_in_sync, "all replicas are in sync", SECONDS_MAX)


def total(numbers: Iterable[int]) -> int:
    return sum(numbers)


@contextmanager
def started(folder: Path, flavour: Flavour) -> Iterator[Site]:
    with Cluster(folder, COMBINED, flavour, configs=CONFIGS) as cluster, ExitStack() as stack:
        cluster.start()
        servers = cluster.bootstrap_servers
        topic = NewTopic(TOPIC, partitions=PARTITIONS, replication_factor=3)
        with BlockingAdmin(bootstrap_servers=servers) as admin:
            admin.create_topics([topic]).unwrap()
        groups = [
            stack.enter_context(Group(name, make, servers, protocol, TOPIC))
            for name, (make, protocol) in KINDS.items()
        ]
        probe = stack.enter_context(Probe(cluster, TOPIC))
        producer = stack.enter_context(
            BlockingProducer(bootstrap_servers=servers, acks="all", linger_ms=0)
        )
        for group in groups:
            wait_until(lambda group=group: is_shared(group), f"{group.name} is stable", SECONDS_MAX)  # type: ignore[misc]
        yield Site(cluster, groups, probe, producer, [])


def is_shared(group: Group) -> bool:
    owners = group.owners()
    return [number for _, number in owners] == list(range(PARTITIONS)) and len(
        {name for name, _ in owners}
    ) == len(group.members)


def kill(site: Site, node: ClusterNode) -> None:
    """Kill a coordinator right after an answer: others may not know yet what is committed."""
    with site.probe.paused() as probed:
        node.kill()
        assert committed_offsets(site.cluster, Probe.GROUP, TOPIC, 1)[0] >= probed > 0


def stop(site: Site, node: ClusterNode) -> None:
    site.probe.reset()
    assert node.stop() in CLEAN_ENDS


def check_goes_on(site: Site, disturb: Callable[[Site, ClusterNode], None]) -> float:
    """Check that commits are kept, and that each group reads on with the owners that it had.

    Returns how long nothing could be committed.
    """
    owners = {group.name: group.owners() for group in site.groups}
    known = {group.name: group.acknowledged() for group in site.groups}
    node, probed = site.coordinator(), site.probe.acknowledged
    disturb(site, node)
    check_kept(site, known)
    site.send_until_committed(30)
    check_kept(site, known)
    for group in site.groups:
        assert group.owners() == owners[group.name], f"{group.name} rebalanced"
    wait_until(lambda: site.probe.acknowledged > probed, "the probe commits again", SECONDS_MAX)
    node.restart()
    site.wait_for_copies()
    return site.probe.gap_seconds


def check_kept(site: Site, known: Mapping[str, Mapping[int, int]]) -> None:
    for group in site.groups:
        kept = committed_offsets(site.cluster, group.name, TOPIC, PARTITIONS)
        for number, offset in known[group.name].items():
            assert kept[number] >= offset, f"{group.name}: a commit went back"


def check_read_once(site: Site) -> None:
    """Check that no record was left out, and that no group read one twice: nobody rewound."""
    for group in site.groups:
        wait_until(
            lambda group=group: len(group.read()) >= len(site.sent),  # type: ignore[misc]
            f"{group.name} has read all",
            SECONDS_MAX,
        )
        values = sorted(value for _, _, value in group.read())
        assert values == sorted(site.sent), f"{group.name}: read {len(values)}"


@pytest.mark.seed_row("4.12")
def test_groups_go_on_when_their_coordinator_dies_and_when_it_is_stopped(
    tmp_path: Path, flavour: Flavour
) -> None:
    with started(tmp_path, flavour) as site:
        site.send_until_committed(30)
        site.wait_for_copies()
        killed_seconds = check_goes_on(site, kill)
        stopped_seconds = check_goes_on(site, stop)
        check_read_once(site)
        print(
            f"{flavour.name}: without a coordinator {killed_seconds:.2f} s after SIGKILL, "
            f"{stopped_seconds:.2f} s at a clean stop"
        )
