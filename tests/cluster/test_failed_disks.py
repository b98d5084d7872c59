"""A broker with two disks, which fail one after the other with EIO.

The first takes its partitions with it: they get leaders elsewhere, and the broker goes on with the
others. With the second the broker ends, and says so in one line.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer, NewTopic
from tests.cluster.asking import leaders_of, placements_of
from tests.cluster.flavours import Odradek
from tests.cluster.kills import PlantedOdradek
from tests.cluster.planted_node import BROKEN_SUFFIX
from tests.cluster.processes import Cluster, wait_until
from tests.interop.kafka_peer import kafka_tool
from tests.interop.odradek_tool import odradek_tool

pytestmark = pytest.mark.slow

ROLES = {1: "controller", 11: "broker", 12: "broker"}
FLAVOURS = {1: Odradek(), 11: PlantedOdradek("failing-disks"), 12: Odradek()}
CONFIGS = {
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "auto.leader.rebalance.enable": "false",
}
FAILING, OTHER = 11, 12
PARTITIONS = 6
SECONDS_MAX = 120


class Site:
    """A topic whose partitions are all led by the broker with the failing disks."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.node = cluster.nodes[FAILING]
        self.disks = [self.node.folder / name for name in ("disk-a", "disk-b")]
        cluster.write_properties(
            self.node,
            log_dirs=",".join(map(str, self.disks)),
            metadata_log_dir=str(self.node.folder / "metadata"),
        )
        cluster.format(self.node)
        cluster.start()
        replicas = {number: [FAILING, OTHER] for number in range(PARTITIONS)}
        with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", assignments=replicas)]).unwrap()
            followed = {number: [OTHER, FAILING] for number in range(2)}
            admin.create_topics([NewTopic("followed", assignments=followed)]).unwrap()
        self.wait_for_leaders([FAILING] * PARTITIONS)
        self.sent: list[bytes] = []

    def partitions_on(self, disk: Path, topic: str = "t") -> set[int]:
        return {int(each.name.rpartition("-")[2]) for each in disk.glob(f"{topic}-*")}

    def in_sync(self) -> list[frozenset[int]]:
        """Return the ISRs of what the broker only follows, to which nothing is written."""
        return [each.isr for each in placements_of(self.cluster.nodes[OTHER], "followed")]

    def fail(self, disk: Path) -> None:
        disk.with_name(disk.name + BROKEN_SUFFIX).touch()

    def send(self) -> None:
        """Send a record to each partition; the producer finds the new leaders."""
        servers = self.cluster.bootstrap_servers
        with BlockingProducer(bootstrap_servers=servers, acks="all") as producer:
            for number in range(PARTITIONS):
                value = b"%d" % len(self.sent)
                producer.send("t", value, partition=number).result(SECONDS_MAX)
                self.sent.append(value)

    def wait_for_leaders(self, wanted: list[int]) -> None:
        for node in self.cluster.brokers:
            if node.is_running:
                wait_until(
                    lambda node=node: leaders_of(node, "t") == wanted,  # type: ignore[misc]
                    f"the leaders are {wanted}",
                    SECONDS_MAX,
                )

    def read(self) -> list[bytes | None]:
        servers = self.cluster.bootstrap_servers
        read: list[bytes | None] = []
        with BlockingConsumer(
            "t", bootstrap_servers=servers, auto_offset_reset="earliest"
        ) as consumer:

            def has_all() -> bool:
                for records in consumer.poll(0.2).values():
                    read.extend(record.value for record in records)
                return len(read) >= len(self.sent)

            wait_until(has_all, "every record is read", SECONDS_MAX)
        return read


def described(text: str) -> dict[str, Any]:
    """Return the log directories of the broker, from what `log-dirs --describe` prints."""
    (line,) = (each for each in text.splitlines() if each.startswith("{"))
    (broker,) = (each for each in json.loads(line)["brokers"] if each["broker"] == FAILING)
    for each in broker["logDirs"]:
        each["partitions"].sort(key=lambda partition: partition["partition"])
    return {Path(each["logDir"]).name: each for each in broker["logDirs"]}


def test_one_failed_disk_costs_its_partitions_and_two_cost_the_broker(tmp_path: Path) -> None:
    with Cluster(tmp_path, ROLES, FLAVOURS, configs=CONFIGS) as cluster:
        site = Site(cluster)
        first, second = site.disks
        lost = site.partitions_on(first)
        assert len(lost) == PARTITIONS / 2
        wait_until(lambda: site.in_sync() == [{FAILING, OTHER}] * 2, "the follower is in sync")
        (gone,) = site.partitions_on(first, "followed")
        site.send()
        site.fail(first)
        site.send()
        site.wait_for_leaders([OTHER if each in lost else FAILING for each in range(PARTITIONS)])
        assert site.node.is_running
        assert sorted(map(str, site.read())) == sorted(map(str, site.sent))
        check_log_dirs(cluster, lost)
        assert site.in_sync()[gone] == {OTHER}
        assert site.in_sync()[1 - gone] == {FAILING, OTHER}

        site.node.stop()
        site.node.restart()
        site.send()
        wait_until(lambda: site.in_sync()[1 - gone] == {FAILING, OTHER}, "it follows again")
        assert site.in_sync()[gone] == {OTHER}
        check_log_dirs(cluster, lost)

        site.fail(second)
        site.send()
        assert site.node.wait_for_end() == 1
        site.wait_for_leaders([OTHER] * PARTITIONS)
        assert sorted(map(str, site.read())) == sorted(map(str, site.sent))
        last = site.node.log_file.read_text().splitlines()
        said = [each for each in last if "log directories" in each]
        assert len(said) == 1, last
        assert "all log directories have failed" in said[0]


def check_log_dirs(cluster: Cluster, lost: set[int]) -> None:
    """Kafka's tool and ours say the same of the failed disk and of the other one."""
    asked = ("--describe", "--bootstrap-server", cluster.bootstrap_servers, "--topic-list", "t")
    seen = [described(run("log-dirs", *asked).stdout) for run in (kafka_tool, odradek_tool)]
    assert seen[0] == seen[1]
    failed, sound = seen[0]["disk-a"], seen[0]["disk-b"]
    assert "KafkaStorageException" in str(failed["error"])
    assert failed["partitions"] == []
    assert sound["error"] is None
    names = {each["partition"] for each in sound["partitions"]}
    assert names == {f"t-{number}" for number in range(PARTITIONS) if number not in lost}
