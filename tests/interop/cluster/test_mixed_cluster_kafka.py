"""Clusters of both kinds of node: three controllers of one kind, a broker of each kind.

An Odradek broker registers with Kafka's controllers and serves its topics; a Kafka broker registers
with Odradek's and serves its own. Topics have one replica. Kafka's tools work through either broker
and, with --bootstrap-controller, at the controllers.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.cluster.asking import active_controller, create_until_done, leaders_of
from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.cluster.processes import SEPARATE, Cluster, wait_until
from tests.cluster.writers import confluent_writer
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.cluster.kafka_tools import KafkaTools
from tests.interop.ports import HOST

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

OURS, KAFKAS = 11, 12
BROKERS: Final = (OURS, KAFKAS)
RECORDS: Final = [Sent(b"k%d" % i, b"v%d" % i, (), 1_700_000_000_000 + i) for i in range(20)]
# Longer than a busy machine stands still; Kafka lets a broker come back only when it is over.
CONFIGS: Final = {"broker.session.timeout.ms": "18000", "log.retention.ms": "-1"}


class Mixed(NamedTuple):
    cluster: Cluster
    tools: KafkaTools

    def through(self, broker: int) -> tuple[str, str]:
        return "--bootstrap-server", self.cluster.nodes[broker].bootstrap_servers

    @property
    def at_controllers(self) -> tuple[str, str]:
        ports = [each.controller_port for each in self.cluster.controllers]
        return "--bootstrap-controller", ",".join(f"{HOST}:{port}" for port in ports)

    def create(self, topic: str, *, broker: int, leaders: tuple[int, ...] = BROKERS) -> None:
        placed = ",".join(map(str, leaders))
        asked = ("--create", "--topic", topic, "--replica-assignment", placed)
        printed = self.tools.run("topics", self.through(broker), *asked)
        assert printed.splitlines()[-1] == f"Created topic {topic}."
        for each in BROKERS:
            self.wait_for_leaders(topic, leaders, broker=each)

    def wait_for_leaders(self, topic: str, leaders: tuple[int, ...], *, broker: int) -> None:
        node = self.cluster.nodes[broker]
        wait_until(lambda: leaders_of(node, topic) == list(leaders), f"{broker} knows {topic}")


@pytest.fixture(scope="module")
def tools(kafka_libs: object) -> Iterator[KafkaTools]:
    started = KafkaTools()
    with started:
        yield started


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def mixed(
    request: pytest.FixtureRequest, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mixed]:
    """Controllers are of the kind that the id of a test has."""
    folder = tmp_path_factory.mktemp(f"{request.param}-controllers")
    controllers: Flavour = Kafka() if request.param == "kafka" else Odradek()
    flavours = {1: controllers, 2: controllers, 3: controllers, OURS: Odradek(), KAFKAS: Kafka()}
    with Cluster(folder, SEPARATE, quorum="dynamic", flavour=flavours, configs=CONFIGS) as cluster:
        cluster.start()
        yield Mixed(cluster, tools)


@pytest.mark.parametrize("broker", BROKERS)
def test_topics_are_created_through_either_and_served_by_both(mixed: Mixed, broker: int) -> None:
    topic = f"served-{broker}"
    mixed.create(topic, broker=broker)
    client = Confluent(mixed.through(broker)[1])
    for partition in (0, 1):
        places = client.produce(topic, RECORDS, partition=partition, idempotent=True)
        assert [each.offset for each in places] == list(range(len(RECORDS)))
        seen = client.consume(topic, len(RECORDS), partition=partition)
        assert [each.record for each in seen] == RECORDS


@pytest.mark.parametrize("broker", BROKERS)
def test_console_tools_write_and_read_in_a_group(mixed: Mixed, broker: int) -> None:
    topic = f"console-{broker}"
    mixed.create(topic, broker=broker)
    lines = [f"line {number}" for number in range(10)]
    mixed.tools.run(
        "console-producer", mixed.through(broker), "--topic", topic, stdin="\n".join(lines) + "\n"
    )
    asked = ("--topic", topic, "--from-beginning", "--max-messages", str(len(lines)))
    read = mixed.tools.run(
        "console-consumer", mixed.through(broker), *asked, "--group", f"group-{broker}"
    )
    assert sorted(read.splitlines()) == lines
    described = mixed.tools.run(
        "consumer-groups", mixed.through(broker), "--describe", "--group", f"group-{broker}"
    )
    lags = [line.split()[5] for line in described.splitlines() if topic in line]
    assert set(lags) == {"0"}  # a partition without records may have no offset


def test_the_quorum_is_described_everywhere(mixed: Mixed) -> None:
    for address in (*map(mixed.through, BROKERS), mixed.at_controllers):
        status = mixed.tools.run("metadata-quorum", address, "describe", "--status")
        found = dict(re.findall(r"^(\w+):\s+(.*)$", status, re.MULTILINE))
        assert found["ClusterId"] == mixed.cluster.cluster_id
        assert int(found["LeaderId"]) in (1, 2, 3)
        assert [int(each) for each in re.findall(r'"id": (\d+)', found["CurrentVoters"])] == [
            *(1, 2, 3)
        ]
        assert sorted(map(int, re.findall(r'"id": (\d+)', found["CurrentObservers"]))) == [*BROKERS]
        ports = [each.places["CONTROLLER"].relay_port for each in mixed.cluster.controllers]
        named = re.findall(r"CONTROLLER://127.0.0.1:(\d+)", found["CurrentVoters"])
        assert list(map(int, named)) == ports
        table = mixed.tools.run("metadata-quorum", address, "describe", "--replication")
        rows = [line.split() for line in table.splitlines()[1:] if line]
        assert sorted((int(row[0]), row[-1]) for row in rows if row[-1] != "Leader") == sorted(
            [
                *((each, "Follower") for each in (1, 2, 3) if each != int(found["LeaderId"])),
                *((each, "Observer") for each in BROKERS),
            ]
        )


def test_the_cluster_is_described_everywhere(mixed: Mixed) -> None:
    for address in (*map(mixed.through, BROKERS), mixed.at_controllers):
        printed = mixed.tools.run("cluster", address, "cluster-id")
        assert printed.split() == ["Cluster", "ID:", mixed.cluster.cluster_id]
    for broker in BROKERS:
        rows = mixed.tools.run("cluster", mixed.through(broker), "list-endpoints").splitlines()
        assert [(row.split()[0], row.split()[-2], row.split()[-1]) for row in rows[1:]] == [
            (str(each), "unfenced", "broker") for each in BROKERS
        ]
    rows = mixed.tools.run("cluster", mixed.at_controllers, "list-endpoints").splitlines()
    assert [(row.split()[0], row.split()[-1]) for row in rows[1:]] == [
        (str(each), "controller") for each in (1, 2, 3)
    ]


def features(mixed: Mixed, address: tuple[str, str]) -> dict[str, str]:
    printed = mixed.tools.run("features", address, "describe")
    found = re.findall(r"Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)", printed)
    return dict(found)


def test_features_are_the_same_everywhere_and_change_everywhere(mixed: Mixed) -> None:
    addresses = [*map(mixed.through, BROKERS), mixed.at_controllers]
    expected = {
        "eligible.leader.replicas.version": "1",
        "group.version": "1",
        "kraft.version": "1",
        "metadata.version": "4.3-IV0",
        "share.version": "1",
        "streams.version": "1",
        "transaction.version": "2",
    }
    for address in addresses:
        assert features(mixed, address) == expected
    for number, address in enumerate(addresses):
        level = number % 2
        command = "upgrade" if level else "downgrade"
        asked = (command, "--feature", f"streams.version={level}")
        printed = mixed.tools.run("features", address, *asked)
        assert printed.strip() == f"streams.version was {command}d to {level}."
        for other in addresses:
            wait_until(
                lambda other=other, level=level: (  # type: ignore[misc]
                    features(mixed, other)["streams.version"] == str(level)
                ),
                f"the feature is at {level} at {other}",
            )
    mixed.tools.run("features", mixed.at_controllers, "upgrade", "--feature", "streams.version=1")


@pytest.mark.parametrize("broker", BROKERS)
def test_topics_grow_are_configured_and_go(mixed: Mixed, broker: int) -> None:
    topic, other = f"changed-{broker}", next(each for each in BROKERS if each != broker)
    mixed.create(topic, broker=broker)
    address = mixed.through(broker)
    grown = ("--alter", "--topic", topic, "--partitions", "4")
    mixed.tools.run(
        "topics", address, *grown, "--replica-assignment", f"{OURS},{KAFKAS},{OURS},{KAFKAS}"
    )
    mixed.wait_for_leaders(topic, (*BROKERS, *BROKERS), broker=other)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    mixed.tools.run("configs", address, "--alter", *entity, "--add-config", "retention.ms=123456")
    wait_until(
        lambda: (
            "retention.ms=123456"
            in mixed.tools.run("configs", mixed.through(other), "--describe", *entity)
        ),
        "the config is known to the other broker",
    )
    described = mixed.tools.run("topics", mixed.through(other), "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 4\s.*retention.ms=123456", described)
    mixed.tools.run("topics", mixed.through(other), "--delete", "--topic", topic)
    for each in BROKERS:
        wait_until(
            lambda each=each: (
                topic
                not in mixed.tools.run(  # type: ignore[misc]
                    "topics", mixed.through(each), "--list"
                ).split()
            ),
            f"{topic} is gone at {each}",
        )


def test_brokers_are_configured_through_each_other_and_the_controllers(mixed: Mixed) -> None:
    for value, address in enumerate((*map(mixed.through, BROKERS), mixed.at_controllers), 2):
        for broker in BROKERS:
            entity = ("--entity-type", "brokers", "--entity-name", str(broker))
            change = f"log.retention.bytes={1_000_000 + value}"
            mixed.tools.run("configs", address, "--alter", *entity, "--add-config", change)
            wait_until(
                lambda broker=broker, entity=entity, change=change: (
                    change
                    in mixed.tools.run(  # type: ignore[misc]
                        "configs", mixed.through(broker), "--describe", *entity
                    )
                ),
                f"broker {broker} has {change}",
            )


def test_a_broker_that_restarts_still_has_its_records(mixed: Mixed) -> None:
    mixed.create("restarted", broker=OURS)
    client = Confluent(mixed.cluster.bootstrap_servers)
    for partition in (0, 1):
        client.produce("restarted", RECORDS, partition=partition)
    for broker in BROKERS:
        node = mixed.cluster.nodes[broker]
        assert node.stop() in (0, 143)
        other = next(each for each in BROKERS if each != broker)
        left = tuple(-1 if each == broker else each for each in BROKERS)
        mixed.wait_for_leaders("restarted", left, broker=other)
        node.restart()
        for each in BROKERS:
            mixed.wait_for_leaders("restarted", BROKERS, broker=each)
    again = Confluent(mixed.cluster.bootstrap_servers)
    for partition in (0, 1):
        seen = again.consume("restarted", len(RECORDS), partition=partition)
        assert [each.record for each in seen] == RECORDS


def test_producers_go_on_while_the_active_controller_is_killed(mixed: Mixed) -> None:
    mixed.create("steady", broker=OURS)
    ours = mixed.cluster.nodes[OURS]
    gone = active_controller(mixed.cluster, ours)
    servers = mixed.cluster.bootstrap_servers
    with (
        confluent_writer(servers, "steady", 0) as first,
        confluent_writer(servers, "steady", 1) as second,
    ):
        gone.kill()
        for broker in BROKERS:
            create_until_done(mixed.cluster.nodes[broker], f"after-{broker}", list(BROKERS))
        written = (first.acknowledged, second.acknowledged)
        wait_until(
            lambda: first.acknowledged > written[0] and second.acknowledged > written[1],
            "both producers write",
        )
    assert first.failures == second.failures == []
    for broker in BROKERS:
        for each in BROKERS:
            mixed.wait_for_leaders(f"after-{broker}", BROKERS, broker=each)
    gone.restart()


def test_a_broker_that_is_gone_is_unregistered(mixed: Mixed) -> None:
    kafkas = mixed.cluster.nodes[KAFKAS]
    kafkas.kill()
    printed = mixed.tools.run("cluster", mixed.through(OURS), "unregister", "--id", str(KAFKAS))
    assert printed.strip() == f"Broker {KAFKAS} is no longer registered."
    wait_until(
        lambda: (
            len(mixed.tools.run("cluster", mixed.through(OURS), "list-endpoints").splitlines()) == 2
        ),
        "one broker is left",
    )
