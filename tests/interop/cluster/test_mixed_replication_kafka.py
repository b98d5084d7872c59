"""Partitions with replicas on brokers of Odradek and of Kafka, under controllers of either kind."""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.client import BlockingProducer
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster.processes import IS_WHOLE_MATRIX, Cluster, wait_until
from tests.interop.cluster.acknowledged import Load, read_all
from tests.interop.cluster.group_reading import GroupReading
from tests.interop.cluster.kafka_tools import KafkaTools
from tests.interop.cluster.peer_rows import rows
from tests.interop.cluster.replicated import (
    BROKERS,
    CONFIGS,
    FIRST,
    KAFKAS,
    ROLES,
    SECOND,
    Partition,
    Replicated,
    flavours,
)
from tests.interop.odradek_tool import odradek_tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

ELECTED: Final = (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
TWO_IN_SYNC: Final = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def tools(kafka_libs: object) -> Iterator[KafkaTools]:
    started = KafkaTools()
    with started:
        yield started


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def mixed(
    request: pytest.FixtureRequest, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicated]:
    """Controllers are of the kind that the id of a test has."""
    folder = tmp_path_factory.mktemp(f"{request.param}-controllers")
    kinds = flavours(request.param)
    with Cluster(folder, ROLES, kinds, configs=CONFIGS) as cluster:
        cluster.start()
        yield Replicated(cluster, tools, request.param)


FAULTS: dict[str, Sequence[tuple[int, str]]] = {
    "odradek": [(KAFKAS, "kill"), (FIRST, "stop")],
    "kafka": [(FIRST, "pause")],
}
if IS_WHOLE_MATRIX:
    EACH: Final = [(broker, f) for broker in (FIRST, KAFKAS) for f in ("stop", "kill", "pause")]
    FAULTS.update(odradek=EACH, kafka=EACH)

MOVED, OFFSETS = "moved", "__consumer_offsets"
PREFERRED_LEADERS: Final = {
    TopicPartition(MOVED, 0): FIRST,
    TopicPartition(MOVED, 1): KAFKAS,
    TopicPartition(OFFSETS, 0): KAFKAS,
}


def test_leaders_change_sides_under_load(mixed: Replicated) -> None:
    """Each time a broker of one kind goes, one of the other kind leads; then it is elected back."""
    mixed.create(OFFSETS, (KAFKAS, FIRST, SECOND), configs={"cleanup.policy": "compact"})
    mixed.create(MOVED, (FIRST, KAFKAS, SECOND), (KAFKAS, FIRST, SECOND), configs=TWO_IN_SYNC)
    partitions = [at for at in PREFERRED_LEADERS if at.topic == MOVED]
    load = Load(mixed.cluster.bootstrap_servers, *partitions)
    group = GroupReading(mixed.cluster.bootstrap_servers, "g", MOVED)
    with group.running():
        with load.running():
            load.wait_for_progress()
            for broker, fault in FAULTS[mixed.controllers]:
                lose_leader(mixed, broker, fault, load, group)
                elect_back(mixed)
                load.wait_for_progress()
        for at in partitions:
            mixed.wait_until_equal(at)
            check_dumps(mixed, at)
        load.check()
        written = {value for writer in load.writers for value in writer.offsets}
        wait_until(lambda: group.values >= written, "the group has read all")
        ends = [mixed.batches(FIRST, at)[-1].last_offset + 1 for at in partitions]
        wait_until(lambda: group.committed(*partitions) == ends, "the group has committed all")
    mixed.wait_until_equal(TopicPartition(OFFSETS, 0))


def lose_leader(
    mixed: Replicated, broker: int, fault: str, load: Load, group: GroupReading
) -> None:
    """Take away a broker until those of the other kind lead what it led, and bring it back."""
    node, other = mixed.node(broker), KAFKAS if broker == FIRST else FIRST
    if fault == "stop":
        assert node.stop() in (0, 143)
    elif fault == "kill":
        node.kill()
    else:
        node.pause()
    for at, leader in PREFERRED_LEADERS.items():
        if leader == broker:
            mixed.wait_for(at, leader=other, asked={FIRST, KAFKAS, SECOND} - {broker})
    load.wait_for_progress()
    group.wait_for_progress()
    if fault == "pause":
        node.resume()
    else:
        node.restart()


def elect_back(mixed: Replicated) -> None:
    for at, leader in PREFERRED_LEADERS.items():
        # A replica may have left the ISR again by then: on a busy machine it falls behind.
        wait_until(partial(is_elected_back, mixed, at), f"{at} is led by {leader} again")
        mixed.wait_for(at, leader=leader)


def is_elected_back(mixed: Replicated, at: TopicPartition) -> bool:
    mixed.wait_until_whole(at)
    code = mixed.elect(at)
    assert code in ELECTED or code == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return code in ELECTED


def check_dumps(mixed: Replicated, at: TopicPartition) -> None:
    """Compare what kafka-dump-log and `odradek dump-log` say of all replicas."""
    dumps = []
    for broker in BROKERS:
        for file in sorted(mixed.folder(broker, at).glob("*.log")):
            asked = ("--files", str(file))
            for printed in (
                mixed.tools.run("dump-log", asked),
                odradek_tool("dump-log", *asked).stdout,
            ):
                batches = printed.splitlines()
                dumps.append([line for line in batches if line.startswith("baseOffset")])
    assert len(dumps) == 2 * len(BROKERS)
    assert all(each == dumps[0] for each in dumps)
    assert dumps[0]


# Logs that part.

BOTH_WAYS: Final = [(KAFKAS, FIRST), (FIRST, KAFKAS)]
LOSSES: Final = {"odradek": BOTH_WAYS[:1], "kafka": BOTH_WAYS[1:]}
if IS_WHOLE_MATRIX:
    LOSSES.update(odradek=BOTH_WAYS, kafka=BOTH_WAYS)


def test_a_leader_that_comes_back_gives_up_what_an_unclean_election_lost(
    mixed: Replicated,
) -> None:
    for leader, other in LOSSES[mixed.controllers]:
        at = TopicPartition(f"lossy-{leader}", 0)
        mixed.create(at.topic, (leader, other))
        write(mixed, at, "both have", 20)
        mixed.wait_until_equal(at, (leader, other))
        # The follower is out of the ISR, and the leader goes on alone.
        mixed.node(other).pause()
        mixed.wait_for(at, leader=leader, isr=[leader], asked=[SECOND])
        write(mixed, at, "will be lost", 30)
        mixed.node(leader).kill()
        mixed.node(other).resume()
        mixed.wait_for(at, leader=-1, asked=[SECOND])
        wait_until(partial(elects_unclean, mixed, at), "the follower leads without the records")
        mixed.wait_for(at, leader=other, isr=[other], asked=[SECOND, other])
        write(mixed, at, "came after", 10)
        mixed.node(leader).restart()
        mixed.wait_until_whole(at)
        mixed.wait_until_equal(at, (leader, other))
        values = [value for _, value in read_all(mixed.through(SECOND)[1], at)]
        assert values == [*texts("both have", 20), *texts("came after", 10)]


def texts(text: str, count: int) -> list[bytes]:
    return [f"{text} {number}".encode() for number in range(count)]


def write(mixed: Replicated, at: TopicPartition, text: str, count: int) -> None:
    """Write with acks=1, a batch for each record."""
    with BlockingProducer(
        bootstrap_servers=mixed.through(SECOND)[1],
        acks="1",
        enable_idempotence=False,
        linger_ms=0,
        delivery_timeout_ms=120_000,
        request_timeout_ms=10_000,
    ) as producer:
        for value in texts(text, count):
            producer.send(at.topic, value, partition=at.partition).result(120)


def elects_unclean(mixed: Replicated, at: TopicPartition) -> bool:
    """Ask Kafka's tool for it; it fails while the follower is still fenced."""
    asked = ("--topic", at.topic, "--partition", "0", "--election-type", "unclean")
    status, out, err = mixed.tools.try_run("leader-election", mixed.through(SECOND), *asked)
    return status == 0 and "Successfully completed" in out + err


# Tools.

AT_MIN, UNDER_MIN, FEWER, ALONE = "at-min", "under-min", "fewer", "alone"
PLACED: Final = {
    AT_MIN: ((FIRST, KAFKAS, SECOND), 2),
    UNDER_MIN: ((KAFKAS, SECOND, FIRST), 3),
    FEWER: ((SECOND, KAFKAS), 2),
    ALONE: ((SECOND,), 1),
}
REPORTS: Final = {
    "--under-replicated-partitions": set(PLACED),
    "--at-min-isr-partitions": {AT_MIN},
    "--under-min-isr-partitions": {UNDER_MIN, FEWER, ALONE},
    "--unavailable-partitions": {ALONE},
}


def test_tools_see_what_is_wrong_through_either_broker(mixed: Replicated) -> None:
    for topic, (replicas, count) in PLACED.items():
        mixed.create(topic, replicas, configs={"min.insync.replicas": str(count)})
        write(mixed, TopicPartition(topic, 0), topic, 3)
    assert mixed.node(SECOND).stop() == 0
    try:
        for topic, (replicas, _) in PLACED.items():
            left = [each for each in replicas if each != SECOND]
            leader = None if left else -1
            at = TopicPartition(topic, 0)
            mixed.wait_for(at, leader=leader, isr=left, asked=[FIRST, KAFKAS])
        if mixed.controllers == "odradek" or IS_WHOLE_MATRIX:
            for flag, topics in REPORTS.items():
                seen = {topic for topic in described(mixed, flag) if topic in PLACED}
                assert seen == topics, flag
        described(mixed, "--topic", "|".join(PLACED))
        compare_answers(mixed)
    finally:
        mixed.node(SECOND).restart()
    for topic in PLACED:
        mixed.wait_until_whole(TopicPartition(topic, 0))
    compare_answers(mixed)
    compare_log_dirs(mixed)


def described(mixed: Replicated, *asked: str) -> list[str]:
    """Describe topics with Kafka's tool and ours, through a broker of each kind.

    All must print the same; returns the topics of the partitions.
    """
    printed = []
    for broker in (FIRST, KAFKAS):
        address = mixed.through(broker)
        printed.append(mixed.tools.run("topics", address, "--describe", *asked))
        printed.append(odradek_tool("topics", *address, "--describe", *asked).stdout)
    lines = [sorted(filter(None, each.splitlines())) for each in printed]
    assert all(each == lines[0] for each in lines), printed
    return re.findall(r"Topic: (\S+)\s+Partition:", printed[0])


def compare_answers(mixed: Replicated) -> None:
    """Ask a broker of each kind what it knows of topics, in all versions: the answers are equal."""
    answers: dict[int, dict[str, Any]] = {}
    names = sorted(PLACED)
    for broker in (FIRST, KAFKAS):
        found = answers[broker] = {}
        with BrokerConnection(mixed.node(broker).port) as connection:
            for version in range(4, 14):
                topics = [MetadataRequestTopic(name=name) for name in names]
                request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
                metadata = connection.ask(request, MetadataResponse, version)
                metadata.brokers.sort(key=lambda each: each.node_id)
                metadata.controller_id = -1  # any broker's
                found[f"metadata v{version}"] = rows(metadata, {})
            wanted = [TopicRequest(name=name) for name in names]
            pages = DescribeTopicPartitionsRequest(topics=wanted)
            answer = connection.ask(pages, DescribeTopicPartitionsResponse, 0)
            found["topic partitions"] = rows(answer, {})
    assert answers[FIRST] == answers[KAFKAS]


def compare_log_dirs(mixed: Replicated) -> None:
    """Describe log directories with Kafka's tool and ours, through a broker of each kind."""
    printed = []
    asked = ("--describe", "--topic-list", ",".join(PLACED))
    for broker in (FIRST, KAFKAS):
        address = mixed.through(broker)
        printed.append(mixed.tools.run("log-dirs", address, *asked))
        printed.append(odradek_tool("log-dirs", *address, *asked).stdout)
    found = []
    for each in printed:
        (line,) = (line for line in each.splitlines() if line.startswith("{"))
        found.append(
            sorted(
                (broker["broker"], log["partition"], log["size"], log["offsetLag"])
                for broker in json.loads(line)["brokers"]
                for directory in broker["logDirs"]
                for log in directory["partitions"]
            )
        )
    assert all(each == found[0] for each in found), found
    here = {
        (broker, f"{topic}-0") for topic, (replicas, _) in PLACED.items() for broker in replicas
    }
    assert {(broker, name) for broker, name, _, _ in found[0]} == here
    sizes = {(name, size) for _, name, size, _ in found[0]}
    assert len(sizes) == len(PLACED)  # the same in each replica


CROSSED: Final = TopicPartition("crossed", 0)
PLACES: Final = ((KAFKAS,), (SECOND, KAFKAS), (FIRST,), (KAFKAS, FIRST))


def test_partitions_move_from_one_kind_to_the_other_under_load(
    mixed: Replicated, tmp_path: Path
) -> None:
    """By turns with our tool and with Kafka's, through a broker of either kind."""
    mixed.create(CROSSED.topic, (FIRST,))
    load = Load(mixed.cluster.bootstrap_servers, CROSSED)
    with load.running():
        for number, place in enumerate(PLACES):
            load.wait_for_progress()
            move(mixed, tmp_path / "plan.json", place, is_ours=number % 2 == 0)
        load.wait_for_progress()
    load.check()
    mixed.wait_until_equal(CROSSED, PLACES[-1])
    wait_until(lambda: not mixed.folder(SECOND, CROSSED).exists(), "the log that was left is gone")


def move(mixed: Replicated, plan: Path, place: Sequence[int], *, is_ours: bool) -> None:
    row = {"topic": CROSSED.topic, "partition": CROSSED.partition, "replicas": list(place)}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    where = mixed.through(KAFKAS if is_ours else FIRST)
    arguments = ("--reassignment-json-file", str(plan))

    def say(action: str) -> str:
        if is_ours:
            made = odradek_tool("reassign-partitions", *where, action, *arguments)
            assert made.returncode == 0, made
            return made.stdout
        return mixed.tools.run("reassign-partitions", where, action, *arguments)

    done = f"Successfully started partition reassignment for {CROSSED}"
    assert done in say("--execute")
    wait_until(
        lambda: f"Reassignment of partition {CROSSED} is completed." in say("--verify"),
        f"{CROSSED} is on {place}",
    )
    for broker in BROKERS:
        wait_until(
            lambda broker=broker: is_on(mixed.partition(CROSSED, through=broker), place),  # type: ignore[misc]
            f"{broker} knows that {CROSSED} is on {place}",
        )


def is_on(found: Partition | None, place: Sequence[int]) -> bool:
    return found is not None and found.replicas == tuple(place) and set(found.isr) == set(place)
