"""The clusters that tools are pointed at: ours and a real Kafka, with the same things in both."""

from collections.abc import Iterator
from contextlib import ExitStack

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from odradek.testing.broker import Broker
from tests.interop.cli.tool_pair import ToolPair
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import (
    GROUP_CONFIGS,
    Kind,
    Member,
    MemberProcess,
    partitions_of,
    wait_for_share,
    wait_until,
)
from tests.interop.kafka_peer import KafkaNode
from tests.interop.programs.program import Program

FIRST_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
RECORDS = [Sent(None, b"%d" % i, (), FIRST_MS + i * 1000) for i in range(10)]
CONFIGS = GROUP_CONFIGS | {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.retention.ms": "-1",
    "transaction.partition.verification.enable": "false",
    # What two tools are asked one after the other must not change because the machine stood still.
    "group.consumer.session.timeout.ms": "600000",
    "group.consumer.max.session.timeout.ms": "600000",
    "broker.session.timeout.ms": "600000",
}
SESSION_MS = 300_000
TRANSACTION_MS = 600_000
CALL_SECONDS = 90.0


def prepare(servers: str, stack: ExitStack) -> None:
    """Make two topics with records, groups with and without members, and open transactions."""
    client = Confluent(servers)
    client.create_topic("t", 2, {"retention.ms": "-1", "segment.ms": "7200000"})
    client.create_topic("u", 3)
    for topic, count in (("t", 2), ("u", 2)):
        for number in range(count):
            client.produce(topic, RECORDS, partition=number)
    classic = stack.enter_context(MemberProcess(Kind("confluent"), servers))
    consumer = stack.enter_context(MemberProcess(Kind("confluent", "consumer"), servers))
    first = classic.join("classic", ["t"], name="c1", instance="i1", session_ms=SESSION_MS)
    alone = consumer.join("consumer", ["u"], name="k1")
    for member in (first, alone):  # before others come, who would make them read anew
        wait_for_records(member, 2 * len(RECORDS))
        member.commit()
    second = classic.join("classic", ["t"], name="c2", instance="i2", session_ms=SESSION_MS)
    wait_for_share([first, second], partitions_of("t", 2))
    commit(servers, "left", {("t", 0): 4, ("t", 1): 7, ("u", 0): 4})
    commit(servers, "also-left", {("u", 1): 9})


def wait_for_records(member: Member, number: int) -> None:
    wait_until(lambda: len(member.read) >= number, lambda: f"{member.name} has read {number}")


def commit(servers: str, group: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})
    places = [TopicPartition(*key, offset) for key, offset in offsets.items()]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def begin_transaction(servers: str, name: str) -> confluent_kafka.Producer:
    """Leave two records of an open transaction in t-0 and one in t-1."""
    settings = {"transactional.id": name, "transaction.timeout.ms": TRANSACTION_MS}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    producer.init_transactions(CALL_SECONDS)
    producer.begin_transaction()
    for partition in (0, 0, 1):
        producer.produce("t", b"v", partition=partition)
    assert producer.flush(CALL_SECONDS) == 0
    return producer


@pytest.fixture(scope="session", params=["odradek", "kafka"])
def tools(
    request: pytest.FixtureRequest,
    tool_program: Program,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ToolPair]:
    """Both tools of each kind, pointed at one cluster; each test runs with ours and Kafka's."""
    with ExitStack() as stack:
        if request.param == "odradek":
            servers = stack.enter_context(Broker(config=CONFIGS)).bootstrap_servers
        else:
            data_dir = tmp_path_factory.mktemp("kafka") / "data"
            node = stack.enter_context(KafkaNode(data_dir, CONFIGS))
            stack.callback(node.kill)  # nobody reads what is left: no need for a clean stop
            servers = node.bootstrap_servers
        prepare(servers, stack)
        yield ToolPair(tool_program, servers)
