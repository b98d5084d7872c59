"""kill -9 of the broker under a member that commits: its group goes on, and no commit goes back.

Kafka's client is the member: librdkafka, when the connection breaks during a commit, may go on
asking for the coordinator and dropping the answer for ever, and kafka-python gives up.
"""

from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import (
    DEADLINE_SECONDS,
    GROUP_CONFIGS,
    Kind,
    Member,
    MemberProcess,
    Partition,
    partitions_of,
    wait_for_share,
    wait_until,
)
from tests.interop.node_process import NodeProcess

pytestmark = pytest.mark.slow

KILLS = 10
PARTITIONS = partitions_of("t", 2)
OPTIONS = [
    option
    for name, value in (GROUP_CONFIGS | {"group.initial.rebalance.delay.ms": "0"}).items()
    for option in ("--override", f"{name}={value}")
]


def committed(servers: str) -> dict[Partition, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": "g"})
    try:
        asked = [TopicPartition(*each) for each in PARTITIONS]
        found = consumer.committed(asked, DEADLINE_SECONDS)
        return {(each.topic, each.partition): max(each.offset, 0) for each in found}
    finally:
        consumer.close()


def commit_until_killed(client: Confluent, node: NodeProcess, member: Member, number: int) -> None:
    """Have the next records read and committed, and the node killed during another commit."""
    for _, partition in PARTITIONS:
        client.produce("t", [Sent(None, b"v")], partition=partition)
    wait_until(
        lambda: len(set(member.read)) == number * len(PARTITIONS),
        lambda: f"{number}: {member.read}, {member.errors}",
    )
    member.commit()
    member.begin_commit()
    node.kill()


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_libs")
@pytest.mark.parametrize("kind", [Kind("java"), Kind("java", "consumer")], ids=str)
def test_no_commit_goes_back_in_ten_kills(tmp_path: Path, kind: Kind) -> None:
    with NodeProcess(tmp_path, OPTIONS) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t", len(PARTITIONS))
        with MemberProcess(kind, node.bootstrap_servers) as process:
            member = process.join("g", ["t"])
            wait_for_share([member], PARTITIONS)
            for number in range(1, KILLS + 1):
                commit_until_killed(client, node, member, number)
                acked = dict(member.committed)
                assert set(acked.values()) == {number}
                node.start()
                found = committed(node.bootstrap_servers)
                assert all(found[each] >= acked[each] for each in PARTITIONS), (found, acked)
