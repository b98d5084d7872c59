"""``odradek topics --describe --offsets``: where each replica and each group is in a log."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from odradek.client import BlockingAdmin, BlockingConsumer, BlockingProducer
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.consumer import OffsetAndMetadata
from odradek.core.ids import TopicPartition
from odradek.testing import Cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(nodes=3, topics={"orders": (1, 3)}) as cluster:
        with BlockingProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for _ in range(10):
                producer.send("orders", b"x").result(60)
        with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            key = TopicPartition("orders", 0)
            admin.alter_group_offsets("readers", {key: CommittedOffset(4)}).unwrap()
            admin.delete_records({key: 3}).unwrap()
        yield cluster


def run(cluster: Cluster, *options: str) -> Result:
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    return CliRunner().invoke(main, ["topics", *server, "--describe", *options])


def described(cluster: Cluster) -> Any:
    result = run(cluster, "--topic", "orders", "--offsets", "--json")
    assert result.exit_code == 0, result.output
    (partition,) = json.loads(result.stdout)
    return partition


@pytest.mark.seed_row("3.1")
def test_every_replica_and_every_group_is_shown(cluster: Cluster) -> None:
    """Committed offset, high watermark and log end, in one place."""

    def is_settled() -> bool:
        offsets = [
            (each["logStartOffset"], each["highWatermark"], each["logEndOffset"], each["behind"])
            for each in described(cluster)["replicas"]
        ]
        return offsets == [(3, 10, 10, 0)] * 3

    cluster.wait_for(is_settled, what="followers that know the high watermark")
    partition = described(cluster)
    assert partition["leader"] == cluster.leader("orders").id
    assert {each["broker"] for each in partition["replicas"]} == {1, 2, 3}
    assert all(each["isInSync"] for each in partition["replicas"])
    (readers,) = [each for each in partition["groups"] if each["groupId"] == "readers"]
    assert readers == {
        "groupId": "readers",
        "memberId": None,
        "host": None,
        "committedOffset": 4,
        "lag": 6,
    }


@pytest.mark.seed_row("3.1")
def test_it_is_a_table_for_people(cluster: Cluster) -> None:
    lines = run(cluster, "--topic", "orders", "--offsets").stdout.splitlines()
    leader = cluster.leader("orders").id
    assert lines[0].startswith(f"Topic: orders\tPartition: 0\tLeader: {leader}\tIsr: ")
    assert lines[1].split() == [
        "REPLICA",
        "STATE",
        "LOG-START",
        "HIGH-WATERMARK",
        "LOG-END",
        "BEHIND",
    ]
    assert [leader, "leader"] in [[int(line.split()[0]), line.split()[1]] for line in lines[2:5]]
    assert lines[5].split() == ["GROUP", "CONSUMER-ID", "HOST", "COMMITTED", "LAG"]
    assert ["readers", "-", "-", "4", "6"] in [line.split() for line in lines[6:]]


@pytest.mark.seed_row("3.1")
def test_a_position_ahead_of_the_commit_is_its_consumers_alone(cluster: Cluster) -> None:
    """No request carries it: tools show the commit, and Kafka's call that the current offset."""
    servers, key = cluster.bootstrap_servers, TopicPartition("orders", 0)
    with BlockingConsumer(
        "orders",
        bootstrap_servers=servers,
        group_id="ahead",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        while (position := consumer.position(key) if consumer.assignment() else 0) < 10:
            consumer.poll(1)
        consumer.commit({key: OffsetAndMetadata(5)})
        (row,) = [each for each in described(cluster)["groups"] if each["groupId"] == "ahead"]
        assert (position, row["committedOffset"], row["lag"]) == (10, 5, 5)
        assert row["memberId"] == consumer.group_metadata().member_id
        asked = ["--bootstrap-server", servers, "--describe", "--group", "ahead", "--json"]
        (group,) = json.loads(CliRunner().invoke(main, ["consumer-groups", *asked]).stdout)
        (offsets,) = group["offsets"]
        assert (offsets["currentOffset"], offsets["logEndOffset"], offsets["lag"]) == (5, 10, 5)


@pytest.mark.seed_row("3.1")
def test_a_reading_tool_prints_its_position_and_commits_it(cluster: Cluster) -> None:
    asked = ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "orders"]
    group = ["--group", "tool", "--from-beginning", "--max-messages", "4"]
    shown = ["--formatter-property", "print.offset=true"]
    result = CliRunner().invoke(main, ["console-consumer", *asked, *group, *shown])
    assert [line.split()[0] for line in result.stdout.splitlines()] == [
        f"Offset:{offset}" for offset in (3, 4, 5, 6)
    ]
    (row,) = [each for each in described(cluster)["groups"] if each["groupId"] == "tool"]
    assert row["committedOffset"] == 7


def test_a_broker_that_is_gone_tells_nothing(cluster: Cluster) -> None:
    gone = next(
        node for node in cluster if node not in (cluster.leader("orders"), cluster.controller)
    )
    gone.kill()
    try:
        cluster.wait_for(lambda: gone.id not in cluster.state.brokers)
        (row,) = [each for each in described(cluster)["replicas"] if each["broker"] == gone.id]
        assert (row["logEndOffset"], row["highWatermark"], row["behind"]) == (None, None, None)
    finally:
        cluster.mend()


@pytest.mark.parametrize("other", ["--under-replicated-partitions", "--topics-with-overrides"])
def test_it_goes_with_no_other_report(cluster: Cluster, other: str) -> None:
    result = run(cluster, "--offsets", other)
    assert result.exit_code != 0
    assert "offsets" in result.output
