"""Transactions of every client: committed, aborted, fenced, timed out, and from topic to topic.

With each version of transactions: Kafka's own tool sets it. The real Kafka runs the same tests, to
prove them.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest

from odradek.testing.broker import Broker
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import GROUP_CONFIGS
from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.kafka_peer.tools import java_command
from tests.interop.node_process import NodeProcess
from tests.interop.programs.program import Program
from tests.interop.transaction_clients import (
    FENCED_CODES,
    JAVA_SOURCE,
    AioKafkaTransactions,
    ConfluentTransactions,
    JavaTransactions,
    KafkaPythonTransactions,
    RefusedError,
    TransactionalClient,
    opened,
    wait_until_settled,
)

OVERRIDES = {
    **GROUP_CONFIGS,
    "group.initial.rebalance.delay.ms": "0",
    # How often transactions are looked for that take too long.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
TIMEOUT_MS = 6_000
"""Long enough for a busy machine to write a record in: within it librdkafka has to be told of the
topic, to add the partition, and to send."""
pytestmark = pytest.mark.slow
PYTHON = {
    each.name: each
    for each in (ConfluentTransactions, KafkaPythonTransactions, AioKafkaTransactions)
}
_numbers = count(1)

Make = Callable[..., TransactionalClient]


@pytest.fixture(
    scope="module",
    params=[
        "odradek",
        *(pytest.param(f"odradek, version {level}", marks=pytest.mark.kafka) for level in (1, 0)),
        pytest.param("kafka", marks=pytest.mark.kafka),
    ],
)
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    data_dir = tmp_path_factory.mktemp("transactions") / "data"
    name, _, level = request.param.partition(", version ")
    if name == "kafka":
        request.getfixturevalue("kafka_libs")
        with KafkaNode(data_dir, OVERRIDES) as kafka:
            yield kafka.bootstrap_servers
        return
    options = [f"--override={name}={value}" for name, value in OVERRIDES.items()]
    with NodeProcess(data_dir, options) as node:
        if level:
            request.getfixturevalue("kafka_libs")
            set_version(node.bootstrap_servers, level)
        yield node.bootstrap_servers


def set_version(servers: str, level: str) -> None:
    server = ("--bootstrap-server", servers)
    kafka_tool("features", *server, "downgrade", "--feature", f"transaction.version={level}")
    described = kafka_tool("features", *server, "describe").stdout
    (line,) = (line for line in described.splitlines() if "transaction.version" in line)
    assert f"FinalizedVersionLevel: {level}" in line


@pytest.fixture(scope="module")
def java(request: pytest.FixtureRequest) -> Iterator[Callable[[], Program]]:
    """Gives the running program of the Java client, started when first asked for."""
    with ExitStack() as stack:
        programs: list[Program] = []

        def start() -> Program:
            if not programs:
                libs = request.getfixturevalue("kafka_libs")
                command = java_command(str(JAVA_SOURCE), heap_mib=192, log_level="OFF", libs=libs)
                programs.append(stack.enter_context(Program(command)))
            return programs[0]

        yield start


@pytest.fixture
def maker(servers: str, java: Callable[[], Program]) -> Callable[[str], Make]:
    """Gives what makes producers of one kind of client, with a transactional id of their own."""

    def of(client: str) -> Make:
        transactional_id = f"tx-{next(_numbers)}"

        def new(**settings: Any) -> TransactionalClient:
            if client == "java":
                return JavaTransactions(servers, transactional_id, program=java(), **settings)
            return PYTHON[client](servers, transactional_id, **settings)

        return new

    return of


@pytest.fixture(params=[*PYTHON, pytest.param("java", marks=pytest.mark.kafka)])
def make(request: pytest.FixtureRequest, maker: Callable[[str], Make]) -> Make:
    return maker(request.param)


def new_topic(servers: str) -> str:
    name = f"topic-{next(_numbers)}"
    Confluent(servers).create_topic(name, 2)
    return name


@pytest.fixture
def topic(servers: str) -> str:
    return new_topic(servers)


@pytest.mark.seed_row("0.3")
def test_what_is_committed_is_read_and_what_is_aborted_is_not(make: Make, topic: str) -> None:
    with opened(make()) as producer:
        for number in range(6):
            producer.begin()
            producer.send(topic, 0, [b"%d-%d" % (number, each) for each in range(3)])
            producer.send(topic, 1, [b"elsewhere"])
            if number % 2:
                producer.abort()
            else:
                producer.commit()
        assert read_settled(producer, topic) == [
            b"%d-%d" % (number, each) for number in (0, 2, 4) for each in range(3)
        ]
        assert len(producer.read(topic, committed=False)) == 18


@pytest.mark.seed_row("0.3")
def test_an_open_transaction_is_seen_by_those_who_do_not_mind(make: Make, topic: str) -> None:
    with opened(make()) as producer:
        producer.begin()
        producer.send(topic, 0, [b"a"])
        producer.commit()
        producer.begin()
        producer.send(topic, 0, [b"b"])
        assert producer.read(topic, committed=True) == [b"a"]
        assert producer.read(topic, committed=False) == [b"a", b"b"]
        producer.commit()
        assert read_settled(producer, topic) == [b"a", b"b"]


def test_a_second_instance_fences_the_first(make: Make, topic: str) -> None:
    with opened(make()) as first:
        first.begin()
        first.send(topic, 0, [b"of the first"])
        with opened(make()) as second:
            second.begin()
            second.send(topic, 0, [b"of the second"])
            with pytest.raises(RefusedError) as refused:
                first.commit()
            assert refused.value.code in FENCED_CODES
            second.commit()
            assert read_settled(second, topic) == [b"of the second"]
            assert len(second.read(topic, committed=False)) == 2


@pytest.mark.parametrize(
    "clients", [[*PYTHON], pytest.param(["java"], marks=pytest.mark.kafka)], ids=["python", "java"]
)
def test_transactions_that_take_too_long_are_aborted(
    maker: Callable[[str], Make], servers: str, clients: list[str]
) -> None:
    """Those of several clients at once: their timeout is waited for only once."""
    makes = {new_topic(servers): maker(each) for each in clients}
    with ExitStack() as stack:
        late = {}
        for topic, make in makes.items():
            slow = late[topic] = stack.enter_context(opened(make(timeout_ms=TIMEOUT_MS)))
            slow.begin()
            slow.send(topic, 0, [b"too slow"])
        for topic, slow in late.items():
            wait_until_settled(servers, topic)
            with pytest.raises(RefusedError):
                slow.commit()
    for topic, make in makes.items():
        with opened(make()) as producer:
            producer.begin()
            producer.send(topic, 0, [b"in time"])
            producer.commit()
            assert read_settled(producer, topic) == [b"in time"]


def read_settled(producer: TransactionalClient, topic: str) -> list[bytes]:
    """Read what is committed as soon as the producer's last transaction has ended for readers."""
    wait_until_settled(producer.servers, topic)
    return producer.read(topic, committed=True)


def check_copies(make: Make, topic: str, protocol: str) -> None:
    """Copy from topic to topic with an abort in between, and see each record once."""

    def copy(count: int, *, commit: bool) -> None:
        client.group_protocol = protocol
        client.copy(topic, target, f"group-of-{topic}", count, commit=commit)

    target = f"{topic}-copy"
    values = [b"%03d" % number for number in range(60)]
    with opened(make()) as client:
        Confluent(client.servers).create_topic(target, 2)
        client.begin()
        client.send(topic, 0, values)
        client.commit()
        copy(20, commit=True)
        copy(10, commit=False)
    with opened(make()) as client:
        copy(40, commit=True)
        assert read_settled(client, target) == values
        assert len(client.read(target, committed=False)) >= 70


def test_records_go_from_topic_to_topic_exactly_once(make: Make, topic: str) -> None:
    check_copies(make, topic, "classic")


@pytest.mark.parametrize(
    "make", ["confluent", pytest.param("java", marks=pytest.mark.kafka)], indirect=True
)
def test_members_of_the_consumer_protocol_copy_exactly_once(make: Make, topic: str) -> None:
    check_copies(make, topic, "consumer")


@pytest.mark.kafka
def test_the_java_client_takes_the_unstable_version_that_two_phase_commit_brings(
    java: Callable[[], Program],
) -> None:
    # It asks for no two-phase commit, whatever its configs say, but it speaks the version.
    with (
        Broker(topics=["t"], config={"transaction.two.phase.commit.enable": "true"}) as broker,
        opened(JavaTransactions(broker.bootstrap_servers, "tx", program=java())) as producer,
    ):
        producer.begin()
        producer.send("t", 0, [b"a"])
        producer.commit()
        assert read_settled(producer, "t") == [b"a"]
