"""Kafka's group tools, unmodified: they say of our groups what they say of Kafka's.

Two brokers, ours and a real one, are prepared alike and asked alike. Member ids, ports and
timestamps differ; everything else must not. Tests may come in any order: one that makes a group
for itself deletes it, since the others list all there are.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition

from odradek.testing.broker import Broker
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import (
    DEADLINE_SECONDS,
    GROUP_CONFIGS,
    Kind,
    MemberProcess,
    partitions_of,
    wait_for_share,
    wait_until_stable,
)
from tests.interop.kafka_peer import KafkaNode
from tests.interop.kafka_peer.tools import MAIN_CLASSES
from tests.interop.programs.program import Program

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

FIRST_MS = 1_700_000_000_000  # 2023-11-14T22:13:20Z
RECORDS = [Sent(None, b"%d" % i, (), FIRST_MS + i * 1000) for i in range(10)]
CONFIGS = GROUP_CONFIGS | {"offsets.topic.num.partitions": "1"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHORT_UUID = re.compile(r"(?<=[ \[])[A-Za-z0-9_+/-]{22}(?= )")
PORT = re.compile(r"127\.0\.0\.1:\d+")
TOOL_MS_MAX = str(DEADLINE_SECONDS * 1000)

Printed = tuple[int, list[str], list[str]]


class Answer(TypedDict):
    out: str
    err: str
    status: int


class Tools:
    def __init__(self, program: Program, servers: str) -> None:
        self._program = program
        self.servers = servers

    def run(self, tool: str, *arguments: str | Path) -> Printed:
        """Return the exit code and the lines of stdout and stderr, in an order of no meaning."""
        answer = self.ask(tool, *arguments)
        return answer["status"], _lines(answer["out"]), _lines(answer["err"])

    def out(self, tool: str, *arguments: str | Path) -> str:
        """Return stdout as it is."""
        answer = self.ask(tool, *arguments)
        assert answer["status"] == 0, answer["err"]
        return answer["out"]

    def ask(self, tool: str, *arguments: str | Path) -> Answer:
        server = ["--bootstrap-server", self.servers]
        asked = [*server, *map(str, arguments)]
        answer: Answer = self._program.ask("run", main=MAIN_CLASSES[tool], arguments=asked)
        return answer


def _lines(said: str) -> list[str]:
    """Lines without what differs between two brokers, nor the traces below an error."""
    said = PORT.sub("HOST:PORT", SHORT_UUID.sub("<member>", UUID.sub("<uuid>", said)))
    lines = (re.sub(r" +", " ", line).strip() for line in said.splitlines())
    return sorted(line for line in lines if line and not line.startswith(("at ", "...")))


class Sides(NamedTuple):
    ours: Tools
    kafkas: Tools

    def compare(self, tool: str, *arguments: str | Path) -> list[str]:
        """Run a tool against both and return what it prints."""
        ours, kafkas = (each.run(tool, *arguments) for each in self)
        assert ours == kafkas, arguments
        return ours[1]


def _client(servers: str, group: str) -> confluent_kafka.Consumer:
    return confluent_kafka.Consumer({"bootstrap.servers": servers, "group.id": group})


def prepare(servers: str, stack: ExitStack) -> None:
    """Make topics and groups: a classic one, one of the consumer protocol, one that was left."""
    client = Confluent(servers)
    for topic in ("t", "u"):
        client.create_topic(topic, 2, {"retention.ms": "-1"})
        for number in range(2):
            client.produce(topic, RECORDS, partition=number)
    classic = stack.enter_context(MemberProcess(Kind("confluent"), servers))
    consumer = stack.enter_context(MemberProcess(Kind("confluent", "consumer"), servers))
    left = classic.join("left", ["t", "u"], name="gone")
    wait_for_share([left], partitions_of("t", 2) + partitions_of("u", 2))
    left.leave()
    members = []
    for name, instance in (("c1", "i1"), ("c2", "i2")):  # one after the other: the first leads
        members.append(classic.join("classic", ["t"], name=name, instance=instance))
        wait_for_share(members, partitions_of("t", 2))
    idle = [classic.join("idle", ["t"], name=f"idle{i}", assignor="roundrobin") for i in range(3)]
    wait_for_share(idle, partitions_of("t", 2))
    wait_for_share([consumer.join("consumer", ["u"], name="k1")], partitions_of("u", 2))
    for group, number in (("classic", 2), ("idle", 3), ("consumer", 1)):
        wait_until_stable(servers, group, number)
    for group, topics in (("left", "tu"), ("simple", "t")):
        _commit(servers, group, topics)


def _commit(servers: str, group: str, topics: str) -> None:
    standalone = _client(servers, group)
    offsets = [TopicPartition(topic, 0, 4, metadata="note") for topic in topics]
    standalone.commit(offsets=offsets, asynchronous=False)
    standalone.close()


@pytest.fixture(scope="module")
def sides(tool_program: Program, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    data_dir = tmp_path_factory.mktemp("kafka") / "data"
    with ExitStack() as stack:
        kafka = stack.enter_context(KafkaNode(data_dir, CONFIGS))
        broker = stack.enter_context(Broker(config=CONFIGS))
        servers = broker.bootstrap_servers, kafka.bootstrap_servers
        for each in servers:
            prepare(each, stack)
        yield Sides(*(Tools(tool_program, each) for each in servers))


DESCRIBED = [
    "--list",
    "--list --state",
    "--list --state Empty,Stable",
    "--list --type",
    "--list --type consumer",
    "--describe --all-groups",
    "--describe --all-groups --offsets --verbose",
    "--describe --all-groups --members",
    "--describe --all-groups --members --verbose",
    "--describe --all-groups --state",
    "--describe --all-groups --state --verbose",
    "--describe --group classic --group left",
    "--describe --group nobody",
    "--describe --group nobody --members",
    "--describe --group nobody --state",
    "--validate-regex ^t[ab]",
]


@pytest.mark.parametrize("arguments", DESCRIBED)
def test_groups_are_listed_and_described_alike(sides: Sides, arguments: str) -> None:
    assert sides.compare("consumer-groups", *arguments.split())


@pytest.mark.parametrize(
    "arguments",
    [
        "--list",
        "--list --consumer",
        "--list --group-type classic",
        "--list --group-type consumer",
        "--list --protocol consumer",
        "--list --share",
    ],
)
def test_groups_of_all_types_are_listed_alike(sides: Sides, arguments: str) -> None:
    sides.compare("groups", *arguments.split())


RESET = [
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset 3",
    "--to-offset 99",
    "--shift-by 2",
    "--shift-by -50",
    "--to-datetime 2023-11-14T22:13:24.500",
    "--by-duration PT1H",
]


@pytest.mark.parametrize("mode", ["--dry-run", "--execute"])
@pytest.mark.parametrize("how", RESET)
def test_offsets_are_reset_alike(sides: Sides, how: str, mode: str) -> None:
    asked = ("--reset-offsets", "--group", "left", *how.split())
    before = sides.compare("consumer-groups", "--describe", "--group", "left")
    printed = sides.compare("consumer-groups", *asked, "--topic", "t", mode)
    assert any(line.startswith("left t 0 ") for line in printed)
    after = sides.compare("consumer-groups", "--describe", "--group", "left")
    assert mode == "--execute" or after == before


def test_offsets_are_exported_and_imported_alike(sides: Sides, tmp_path: Path) -> None:
    asked = ("--reset-offsets", "--group", "left")
    exported = sides.compare(
        *("consumer-groups", *asked, "--all-topics", "--to-offset", "2", "--export", "--dry-run")
    )
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported))
    sides.compare("consumer-groups", *asked, "--from-file", file, "--execute")
    described = sides.compare("consumer-groups", "--describe", "--group", "left")
    # Of four partitions, as many have a commit: others may have given the group one more.
    assert sum(" 2 10 8 " in line for line in described) == len(exported) >= 2


REFUSED = [
    "--reset-offsets --group classic --topic t --to-earliest --execute",
    "--reset-offsets --group consumer --topic u --to-earliest --execute",
    "--reset-offsets --group left --topic nowhere --to-earliest --execute",
    "--delete --group classic",
    "--delete --group consumer",
    "--delete --group nobody",
    "--delete-offsets --group classic --topic t",
    "--delete-offsets --group consumer --topic u",
    "--delete-offsets --group nobody --topic t",
    "--delete-offsets --group left --topic nowhere",
]


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_cannot_be_is_refused_alike(sides: Sides, arguments: str) -> None:
    sides.compare("consumer-groups", *arguments.split())


def _print_offsets_topic(side: Tools, formatter: str) -> list[str]:
    """Have the console consumer print all of __consumer_offsets that is there now."""
    _, end = Confluent(side.servers).watermarks("__consumer_offsets")
    printed = side.out(
        *("console-consumer", "--topic", "__consumer_offsets", "--partition", "0"),
        *("--offset", "earliest", "--max-messages", str(end), "--timeout-ms", TOOL_MS_MAX),
        *("--formatter", f"org.apache.kafka.tools.consumer.{formatter}"),
    )
    return printed.replace('}{"key"', '}\n{"key"').splitlines()  # it prints no line ends


@pytest.mark.seed_row("0.10")
def test_the_offsets_formatter_reads_our_commits(sides: Sides) -> None:
    """Checks our __consumer_offsets, as the console consumer prints it, against Kafka's."""
    sides.compare("consumer-groups", "--describe", "--group", "simple")
    printed = [_print_offsets_topic(each, "OffsetsMessageFormatter") for each in sides]
    ours, kafkas = ([line for line in each if '"group":"simple"' in line] for each in printed)
    assert len(ours) == 1
    timestamps = re.compile(r'imestamp":\d{10,}')
    topic_ids = re.compile(r'"topicId":"[^"]*"')
    clean = [topic_ids.sub("ID", timestamps.sub("TIME", line)) for line in (*ours, *kafkas)]
    assert clean[0] == clean[1]


@pytest.mark.seed_row("0.10")
def test_the_group_metadata_formatter_reads_our_groups(sides: Sides) -> None:
    last: list[Any] = []
    for each in sides:
        records = _print_offsets_topic(each, "GroupMetadataMessageFormatter")
        printed = [record for record in records if '"group":"classic"' in record][-1]
        printed = UUID.sub("UUID", re.sub(r'imestamp":\d+', 'imestamp":0', printed))
        record = json.loads(re.sub(r'"generation":\d+', '"generation":0', printed))
        record["value"]["data"]["members"].sort(key=itemgetter("memberId"))
        last.append(record)
    assert last[0] == last[1]
    members = last[0]["value"]["data"]["members"]
    assert [each["memberId"] for each in members] == ["i1-UUID", "i2-UUID"]


@pytest.fixture
def own_group(sides: Sides) -> Iterator[str]:
    """A group on our side alone, which is gone when the test is done."""
    yield "own"
    sides.ours.out("consumer-groups", "--delete", "--group", "own")


def test_consumer_perf_test_reads_all(sides: Sides, own_group: str) -> None:
    printed = sides.ours.out(
        *("consumer-perf-test", "--topic", "t", "--group", own_group),
        *("--num-records", "20", "--timeout", TOOL_MS_MAX),
    )
    head, figures = printed.splitlines()
    found = dict(zip(head.split(", "), figures.split(", "), strict=True))
    assert found["data.consumed.in.nMsg"] == "20"


def test_console_consumer_of_a_group_goes_on_where_it_stopped(sides: Sides, own_group: str) -> None:
    asked = ("--topic", "t", "--group", own_group, "--from-beginning", "--max-messages")
    first = sides.ours.out("console-consumer", *asked, "15").splitlines()
    second = sides.ours.out("console-consumer", *asked, "5").splitlines()
    assert sorted(first + second) == sorted(2 * [f"{i}" for i in range(10)])


def test_offsets_and_groups_are_deleted_alike(sides: Sides) -> None:
    for each in sides:
        for group in ("doomed", "doomed-too"):
            _commit(each.servers, group, "tu")
    sides.compare("consumer-groups", "--delete-offsets", "--group", "doomed", "--topic", "u")
    described = sides.compare("consumer-groups", "--describe", "--group", "doomed")
    assert any(line.startswith("doomed t ") for line in described)
    assert not any(line.startswith("doomed u ") for line in described)
    sides.compare("consumer-groups", "--delete", "--group", "doomed", "--group", "doomed-too")
    for each in sides:
        listed = each.run("consumer-groups", "--list")[1]
        assert {"classic", "consumer", "idle", "left", "simple"} <= set(listed)
        assert not {"doomed", "doomed-too"} & set(listed)
        consumer = _client(each.servers, "doomed")
        found = consumer.committed([TopicPartition("t", 0)], DEADLINE_SECONDS)
        assert found[0].offset == confluent_kafka.OFFSET_INVALID
        consumer.close()
