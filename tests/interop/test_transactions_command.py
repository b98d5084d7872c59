"""Kafka's kafka-transactions.sh, unmodified, against odradek; the real Kafka proves each test.

The hanging transaction is made as it came to be before brokers asked coordinators: verification is
off and the producer never told its coordinator about the partition.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import NamedTuple

import confluent_kafka
import pytest

from odradek.core.ids import TopicPartition
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import wait_until
from tests.interop.histories.reading import read_to_end
from tests.interop.kafka_peer import KafkaNode
from tests.interop.kafka_peer.tools import ToolRun
from tests.interop.tool_program import ToolProgram
from tests.interop.transaction_clients import wait_until_settled
from tests.transaction_requests import TransactionalProducer

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

CALL_SECONDS = 60.0
# A transaction is open while a tool runs several times, and no machine is so busy.
TIMEOUT_MS = 600_000
CONFIGS = {"transaction.partition.verification.enable": "false"}
# From the next version on the broker tells the coordinator by itself.
PRODUCE_VERSION_BEFORE = 11
_numbers = count(1)

Row = dict[str, str]


class Target(NamedTuple):
    program: ToolProgram
    servers: str
    port: int


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def target(
    request: pytest.FixtureRequest,
    tool_program: ToolProgram,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Target]:
    with ExitStack() as stack:
        if request.param == "odradek":
            broker = stack.enter_context(Broker(config=CONFIGS))
            yield Target(tool_program, broker.bootstrap_servers, broker.port)
        else:
            node = stack.enter_context(
                KafkaNode(tmp_path_factory.mktemp("kafka") / "data", CONFIGS)
            )
            yield Target(tool_program, node.bootstrap_servers, node.port)


@pytest.fixture
def topic(target: Target) -> str:
    """A topic of two partitions that no other test has."""
    name = f"t{next(_numbers)}"
    Confluent(target.servers).create_topic(name, 2)
    return name


@pytest.fixture
def producer(target: Target, topic: str) -> confluent_kafka.Producer:
    """Named after its topic; in a transaction with two records in partition 0 and one in 1."""
    made = confluent_kafka.Producer(
        {
            "bootstrap.servers": target.servers,
            "transactional.id": f"id-of-{topic}",
            "transaction.timeout.ms": TIMEOUT_MS,
        }
    )
    made.init_transactions(CALL_SECONDS)
    made.begin_transaction()
    for partition in (0, 0, 1):
        made.produce(topic, b"v", partition=partition)
    made.flush(CALL_SECONDS)
    return made


def run(target: Target, *arguments: str, check: bool = True) -> ToolRun:
    server = ("--bootstrap-server", target.servers)
    return target.program.tool("transactions", *server, *arguments, check=check)


def table(ran: ToolRun) -> list[Row]:
    """The rows that the tool printed, by the names in its head."""
    lines = [line for line in ran.stdout.splitlines() if line.strip()]
    head, *rows = [line.split("\t") for line in lines]
    names = [name.strip() for name in head]
    return [dict(zip(names, (cell.strip() for cell in row), strict=True)) for row in rows]


def until_complete(find: Callable[[], Row]) -> Row:
    """Ask again while markers are being written: whoever ended the transaction is told before."""
    found = [find()]

    def is_complete() -> bool:
        if found[-1]["TransactionState"].startswith("Prepare"):
            found.append(find())
        return found[-1]["TransactionState"].startswith("Complete")

    wait_until(is_complete, lambda: str(found[-1]))
    return found[-1]


def committed(target: Target, topic: str, partition: int) -> list[bytes | None]:
    batches = read_to_end({"bootstrap.servers": target.servers}, [TopicPartition(topic, partition)])
    return [each.value() for messages in batches for each in messages if each.error() is None]


def test_list_shows_each_transactional_id_and_its_state(
    target: Target, topic: str, producer: confluent_kafka.Producer
) -> None:
    def listed(*filters: str) -> dict[str, Row]:
        return {row["TransactionalId"]: row for row in table(run(target, "list", *filters))}

    name = f"id-of-{topic}"
    row = listed()[name]
    assert (row["Coordinator"], row["TransactionState"]) == ("1", "Ongoing")
    assert listed("--transactional-id-pattern", f"id-.*{topic}").keys() == {name}
    assert listed("--transactional-id-pattern", f"{topic}") == {}
    assert name in listed("--duration-filter", "1")
    assert name not in listed("--duration-filter", "3600000")
    producer.commit_transaction(CALL_SECONDS)
    ended = until_complete(lambda: listed()[name])
    assert ended == {**row, "TransactionState": "CompleteCommit"}


def test_describe_shows_the_partitions_of_an_open_transaction(
    target: Target, topic: str, producer: confluent_kafka.Producer
) -> None:
    name = f"id-of-{topic}"
    (row,) = table(run(target, "describe", "--transactional-id", name))
    began_ms, duration_ms = row["CurrentTransactionStartTimeMs"], row["TransactionDurationMs"]
    assert int(began_ms) > 1_700_000_000_000
    assert 0 <= int(duration_ms) < TIMEOUT_MS
    assert set(row["TopicPartitions"].split(",")) == {f"{topic}-0", f"{topic}-1"}
    expected = {
        "CoordinatorId": "1",
        "TransactionalId": name,
        "ProducerEpoch": "0",
        "TransactionState": "Ongoing",
        "TransactionTimeoutMs": str(TIMEOUT_MS),
    }
    assert row.items() >= expected.items()

    producer.abort_transaction(CALL_SECONDS)
    row = until_complete(lambda: table(run(target, "describe", "--transactional-id", name))[0])
    assert row["TransactionState"] == "CompleteAbort"
    assert row["CurrentTransactionStartTimeMs"] == began_ms  # of the last one, that is
    assert row["TopicPartitions"] == ""


def test_describe_of_an_unknown_id_says_so(target: Target, topic: str) -> None:
    ran = run(target, "describe", "--transactional-id", f"nobody-{topic}", check=False)
    assert ran.returncode == 1
    assert (
        f"Failed to describe transaction state of transactional-id `nobody-{topic}`" in ran.stderr
    )
    assert "failed because the ID could not be found" in ran.stderr


def test_describe_producers_shows_where_the_transaction_began(
    target: Target, topic: str, producer: confluent_kafka.Producer
) -> None:
    def described(partition: int) -> Row:
        where = ("--topic", topic, "--partition", str(partition))
        (row,) = table(run(target, "describe-producers", *where))
        return row

    row = described(0)
    assert row["ProducerEpoch"] == "0"
    assert row["LatestCoordinatorEpoch"] == "-1"
    assert row["LastSequence"] == "1"
    assert row["CurrentTransactionStartOffset"] == "0"
    assert described(1)["LastSequence"] == "0"
    producer.commit_transaction(CALL_SECONDS)
    wait_until_settled(target.servers, topic)
    after = described(0)
    assert after["ProducerId"] == row["ProducerId"]
    assert after["LatestCoordinatorEpoch"] == "0"
    assert after["CurrentTransactionStartOffset"] == "None"


def hang(target: Target, topic: str) -> TransactionalProducer:
    """Leave a record of a transaction in partition 0 that its coordinator does not know of."""
    with BrokerConnection(target.port) as connection:
        producer = TransactionalProducer(connection, f"hangs-in-{topic}").begin()
        where = TopicPartition(topic, 0)
        code = producer.produce(b"hangs", partition=where, version=PRODUCE_VERSION_BEFORE)
        assert not code, code
        return producer


def test_a_hanging_transaction_is_found_and_aborted(
    target: Target, topic: str, producer: confluent_kafka.Producer
) -> None:
    """The open one beside it is not taken for one that hangs."""
    hanging = hang(target, topic)
    search = ("find-hanging", "--topic", topic, "--max-transaction-timeout")
    assert table(run(target, *search, "15")) == []
    (row,) = table(run(target, *search, "0"))
    assert int(row["LastTimestamp"]) > 1_700_000_000_000
    expected = {
        "Topic": topic,
        "Partition": "0",
        "ProducerId": str(hanging.producer_id),
        "ProducerEpoch": str(hanging.producer_epoch),
        "CoordinatorEpoch": "-1",
        "StartOffset": "2",
    }
    assert row.items() >= expected.items()

    producer.commit_transaction(CALL_SECONDS)
    where = ("--topic", topic, "--partition", "0")
    run(target, "abort", *where, "--start-offset", row["StartOffset"])
    assert table(run(target, *search, "0")) == []
    assert committed(target, topic, 0) == [b"v", b"v"]


def test_abort_finds_no_transaction_where_none_began(target: Target, topic: str) -> None:
    where = ("--topic", topic, "--partition", "0", "--start-offset", "5")
    ran = run(target, "abort", *where, check=False)
    assert ran.returncode == 1
    said = "Could not find any open transactions starting at offset 5"
    assert f"{said} on partition {topic}-0" in ran.stderr


def test_an_ongoing_transaction_can_be_ended_by_force(
    target: Target, topic: str, producer: confluent_kafka.Producer
) -> None:
    run(target, "forceTerminateTransaction", "--transactionalId", f"id-of-{topic}")
    (row,) = table(run(target, "describe", "--transactional-id", f"id-of-{topic}"))
    assert row["TransactionState"] == "Empty"  # as after any other InitProducerId
    assert committed(target, topic, 0) == []
    with pytest.raises(confluent_kafka.KafkaException) as fenced:
        producer.commit_transaction(CALL_SECONDS)
    assert fenced.value.args[0].fatal()
