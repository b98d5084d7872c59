"""Tools for topics, configs and partitions print what Kafka's print."""

import json
import re
from itertools import count
from pathlib import Path

import pytest

from tests.interop.cli.tool_pair import ToolPair, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

_numbers = count(1)


@pytest.fixture
def names() -> tuple[str, str]:
    """A topic for our tool and one for Kafka's, of the same length."""
    number = next(_numbers)
    return f"ours-{number:03}", f"kafk-{number:03}"


def with_sorted_configs(line: str) -> str:
    """Kafka prints configs in an order of no meaning."""
    head, found, configs = line.partition("\tConfigs: ")
    return head + found + ",".join(sorted(configs.split(",")))


DESCRIBED = [
    "--describe",
    "--describe --topic t",
    "--describe --topic t,u",
    "--describe --topic [tu] --exclude-internal",
    "--describe --topics-with-overrides",
    "--describe --under-replicated-partitions",
    "--describe --unavailable-partitions",
    "--describe --under-min-isr-partitions",
    "--describe --at-min-isr-partitions --topic u",
    "--describe --topic u --partition-size-limit-per-response 1",
    "--describe --topic nowhere --if-exists",
    "--describe --topic nowhere",
]


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize("arguments", DESCRIBED)
def test_topics_are_described_alike(tools: ToolPair, arguments: str) -> None:
    ours, kafkas = (
        sorted(map(with_sorted_configs, run("topics", *arguments.split()).lines))
        for run in (tools.ours, tools.kafkas)
    )
    assert ours == kafkas


def test_a_topic_is_described_by_its_id(tools: ToolPair) -> None:
    (document,) = json.loads(tools.ours("topics", "--describe", "--topic", "t", "--json").out)
    asked = ("topics", "--describe", "--topic-id", document["topicId"])
    ours, kafkas = (run(*asked).lines for run in (tools.ours, tools.kafkas))
    assert ours[1:] == kafkas[1:]
    assert with_sorted_configs(ours[0]) == with_sorted_configs(kafkas[0])
    assert ours[1].endswith("\tElr: N/A\tLastKnownElr: N/A")


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize("arguments", ["--list", "--list --exclude-internal", "--list --topic u"])
def test_topics_are_listed_alike(tools: ToolPair, arguments: str) -> None:
    assert tools.compare("topics", *arguments.split())


def both(tools: ToolPair, names: tuple[str, str], tool: str, *arguments: str) -> list[str]:
    """Do the same to our topic and to Kafka's; NAME in arguments is either."""
    printed = [
        run(tool, *(each.replace("NAME", name) for each in arguments)).lines
        for run, name in zip((tools.ours, tools.kafkas), names, strict=True)
    ]
    ours, kafkas = (
        [line.replace(name, "NAME") for line in lines]
        for lines, name in zip(printed, names, strict=True)
    )
    assert ours == kafkas
    return ours


@pytest.mark.seed_row("4.11")
def test_a_topic_lives_alike(tools: ToolPair, names: tuple[str, str]) -> None:
    create = ("--create", "--topic", "NAME", "--partitions", "2", "--config", "retention.ms=1000")
    assert both(tools, names, "topics", *create) == ["Created topic NAME."]
    tools.wait_for_topics(*names, partitions=2)
    assert both(tools, names, "topics", *create, "--if-not-exists") == []
    again = both(tools, names, "topics", *create)
    assert again == ["Error while executing topic command : Topic 'NAME' already exists."]
    assert both(tools, names, "topics", "--alter", "--topic", "NAME", "--partitions", "4") == []
    tools.wait_for_topics(*names, partitions=4)
    described = [
        tools.ours("topics", "--describe", "--topic", each, "--json").out for each in names
    ]
    first, second = (json.loads(each)[0] for each in described)
    assert first["configs"] == second["configs"]
    assert len(first["partitions"]) == len(second["partitions"]) == 4
    assert both(tools, names, "topics", "--delete", "--topic", "NAME") == []
    tools.wait_until_gone(*names)
    gone = both(tools, names, "topics", "--delete", "--topic", "NAME")
    assert gone == ["Error while executing topic command : Topic 'NAME' does not exist as expected"]
    assert both(tools, names, "topics", "--delete", "--topic", "NAME", "--if-exists") == []


@pytest.mark.parametrize(
    "arguments",
    [
        "--partitions 0",
        "--replication-factor 0",
        "--config retention.ms",
        "--replica-assignment 1:1",
        "--replica-assignment 1,1:2",
    ],
)
def test_a_topic_is_refused_alike(tools: ToolPair, names: tuple[str, str], arguments: str) -> None:
    (said,) = both(tools, names, "topics", "--create", "--topic", "NAME", *arguments.split())
    assert said.startswith("Error while executing topic command : ")


def test_placed_replicas_and_the_warning_of_names(tools: ToolPair, names: tuple[str, str]) -> None:
    create = ("--create", "--topic", "NAME_", "--replica-assignment", "1,1,1")
    warning, created = both(tools, names, "topics", *create)
    assert warning.startswith("WARNING: Due to limitations in metric names")
    assert created == "Created topic NAME_."
    tools.wait_for_topics(*(f"{name}_" for name in names), partitions=3)


CONFIGS = [
    "--describe --topic t",
    "--describe --entity-type topics --entity-name t --all",
    "--describe --entity-type topics --entity-name nowhere",
    "--describe --broker 1",
    "--describe --broker 7",
    "--describe --broker-defaults",
    "--describe --group left",
    "--describe --group nobody",
    "--describe --client-metrics nothing",
    "--describe --entity-type client-metrics",
]


@pytest.mark.parametrize("arguments", CONFIGS)
def test_configs_are_described_alike(tools: ToolPair, arguments: str) -> None:
    tools.compare("configs", *arguments.split())


def test_configs_of_all_are_described_alike(tools: ToolPair) -> None:
    for kind in ("topics", "brokers", "groups"):
        tools.compare("configs", "--describe", "--entity-type", kind, is_ordered=False)


def test_configs_are_altered_alike(tools: ToolPair, names: tuple[str, str]) -> None:
    both(tools, names, "topics", "--create", "--topic", "NAME")
    tools.wait_for_topics(*names)
    added = ("--add-config", "cleanup.policy=[compact,delete],segment.ms=60000")
    done = both(tools, names, "configs", "--alter", "--topic", "NAME", *added)
    assert done == ["Completed updating config for topic NAME."]
    wait_until(lambda: all(has_configs(tools, name, 2) for name in names))
    described = both(tools, names, "configs", "--describe", "--topic", "NAME")
    assert [line.split(" ")[2] for line in described[1:]] == [
        "cleanup.policy=compact,delete",
        "segment.ms=60000",
    ]
    deleted = ("--delete-config", "cleanup.policy,segment.ms")
    both(tools, names, "configs", "--alter", "--topic", "NAME", *deleted)
    wait_until(lambda: all(has_configs(tools, name, 0) for name in names))
    assert len(both(tools, names, "configs", "--describe", "--topic", "NAME")) == 1


def has_configs(tools: ToolPair, topic: str, count: int) -> bool:
    (entity,) = json.loads(tools.ours("configs", "--describe", "--topic", topic, "--json").out)
    return len(entity["configs"]) == count


def test_defaults_of_brokers_are_altered_alike(tools: ToolPair) -> None:
    def shown() -> list[str]:
        return tools.ours("configs", "--describe", "--broker-defaults").lines

    def alter(change: str) -> None:
        done = tools.compare("configs", "--alter", "--broker-defaults", change)
        assert done == ["Completed updating default config for brokers in the cluster."]

    before = shown()
    alter("--add-config=message.max.bytes=1048600")
    wait_until(lambda: shown() != before)
    alter("--delete-config=message.max.bytes")
    wait_until(lambda: shown() == before)  # the next test compares what two tools say of it


def test_a_config_that_cannot_be_is_refused(tools: ToolPair) -> None:
    asked = ("configs", "--alter", "--topic", "t", "--add-config", "retention.ms=long")
    ours, kafkas = (run(*asked) for run in (tools.ours, tools.kafkas))
    assert (ours.status, ours.out) == (kafkas.status, kafkas.out) == (1, "")
    assert "Invalid value long for configuration retention.ms" in ours.err
    assert "Invalid value long for configuration retention.ms" in kafkas.err


OFFSETS = [
    "",
    "--topic t",
    "--topic t --time -1",
    "--topic t --time earliest",
    "--topic [tu] --time -2",
    "--topic t --time max-timestamp",
    "--topic u --time 1700000003500",
    "--topic u --time 1900000000000",
    "--topic u --partitions 0,2",
    "--topic-partitions t:1,u:1-",
    "--topic-partitions :0,u:-2 --exclude-internal-topics",
]


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize("arguments", OFFSETS)
def test_offsets_are_the_same(tools: ToolPair, arguments: str) -> None:
    # Other tests write here: the ends of Kafka's own topics may move between two answers.
    ours, kafkas = (
        [line for line in run("get-offsets", *arguments.split()).lines if line[0] in "tu"]
        for run in (tools.ours, tools.kafkas)
    )
    assert ours == kafkas


@pytest.mark.parametrize(
    "arguments",
    [
        "--topic nowhere",
        "--topic t --time soon",
        "--topic t --partitions x",
        "--topic-partitions t:1:2",
        "--topic-partitions t --topic t",
    ],
)
def test_offsets_that_cannot_be_found(tools: ToolPair, arguments: str) -> None:
    ours, kafkas = (run("get-offsets", *arguments.split()) for run in (tools.ours, tools.kafkas))
    assert (ours.status, ours.out) == (kafkas.status, kafkas.out) == (1, "")
    said = kafkas.err.splitlines()[0].replace("org.apache.kafka.tools.TerseException: ", "")
    assert ours.err.splitlines()[0] == said


@pytest.mark.seed_row("1.14")
def test_records_are_deleted_alike(tools: ToolPair, names: tuple[str, str], tmp_path: Path) -> None:
    both(tools, names, "topics", "--create", "--topic", "NAME", "--partitions", "2")
    tools.wait_for_topics(*names, partitions=2)
    plan = tmp_path / "offsets.json"
    rows = [
        *({"topic": name, "partition": each, "offset": 0} for name in names for each in (0, 1)),
        {"topic": names[0], "partition": 9, "offset": 1},
    ]
    plan.write_text(json.dumps({"partitions": rows[:4]}))
    printed = tools.compare("delete-records", "--offset-json-file", plan, is_ordered=False)
    assert f"partition: {names[0]}-1\tlow_watermark: 0" in printed
    plan.write_text(json.dumps({"partitions": rows}))
    ours = tools.ours("delete-records", "--offset-json-file", plan)
    assert ours.status == 1
    assert any(line.startswith(f"partition: {names[0]}-9\terror: ") for line in ours.lines)
    plan.write_text(json.dumps({"partitions": [rows[0], rows[0]], "version": 1}))
    failed = [
        run("delete-records", "--offset-json-file", plan) for run in (tools.ours, tools.kafkas)
    ]
    assert [each.status for each in failed] == [1, 1]
    first, second = (each.err.splitlines()[0] for each in failed)
    assert first == second


def test_log_dirs_are_the_same(tools: ToolPair) -> None:
    asked = ("log-dirs", "--describe", "--topic-list", "t,u", "--broker-list", "1")
    *ours, our_json = tools.ours(*asked).lines
    *kafkas, kafka_json = tools.kafkas(*asked).lines
    assert ours == kafkas
    documents = [json.loads(each) for each in (our_json, kafka_json)]
    for each in documents:
        for directory in each["brokers"][0]["logDirs"]:
            directory["partitions"].sort(key=lambda row: row["partition"])
    assert documents[0] == documents[1]
    unknown = ("log-dirs", "--describe", "--broker-list", "1,77")
    ours_failed, kafkas_failed = tools.ours(*unknown), tools.kafkas(*unknown)
    assert ours_failed == kafkas_failed


@pytest.mark.parametrize(
    "arguments",
    ["--topic t --partition 0", "--all-topic-partitions", "--topic nowhere --partition 0"],
)
def test_elections_end_alike(tools: ToolPair, arguments: str) -> None:
    asked = ("leader-election", "--election-type", "preferred", *arguments.split())
    ours, kafkas = tools.ours(*asked), tools.kafkas(*asked)
    assert ours.status == kafkas.status
    # Of a refusal Kafka's client has its own text, where the broker sends none.
    first = [line.split("nowhere-0")[0] for line in ours.lines]
    assert first == [line.split("nowhere-0")[0] for line in kafkas.lines]


@pytest.mark.seed_row("1.6")
def test_elections_from_a_file(tools: ToolPair, tmp_path: Path) -> None:
    plan = tmp_path / "elections.json"
    rows = [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 0}]
    plan.write_text(json.dumps({"partitions": rows}))
    asked = ("leader-election", "--election-type", "PREFERRED", "--path-to-json-file", plan)
    ours, kafkas = (
        [re.split("[ ,]+", line) for line in run(*asked).lines]
        for run in (tools.ours, tools.kafkas)
    )
    assert [sorted(line) for line in ours] == [sorted(line) for line in kafkas]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"partitions": {}}',
        '{"partitions": [{"topic": "t"}]}',
        '{"partitions": [{"partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": "0"}]}',
        '{"partitions": [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 0}]}',
        '{"partitions": [{"topic": "t", "partition": 77}]}',
        '{"version": "none", "partitions": [{"topic": "t", "partition": 77}]}',
    ],
)
def test_elections_from_no_such_file_are_refused_alike(
    tools: ToolPair, tmp_path: Path, text: str
) -> None:
    plan = tmp_path / "elections.json"
    plan.write_text(text)
    asked = ("leader-election", "--election-type", "preferred", "--path-to-json-file", plan)
    ours, kafkas = tools.ours(*asked), tools.kafkas(*asked)
    assert ours.status == kafkas.status == 1
    said, told = (
        re.sub(r"\b(com|org)\.[\w.]+: ", "", each.out + each.err.partition("\n")[0])
        for each in (ours, kafkas)
    )
    assert said == told
    assert len(ours.err.splitlines()) == 1


@pytest.mark.seed_row("1.7")
def test_reassignments_are_proposed_alike(tools: ToolPair, tmp_path: Path) -> None:
    plan = tmp_path / "topics.json"
    plan.write_text(json.dumps({"version": 1, "topics": [{"topic": "u"}, {"topic": "t"}]}))
    asked = ("--generate", "--topics-to-move-json-file", plan, "--broker-list", "1")
    printed = tools.compare("reassign-partitions", *asked)
    assert printed[0] == "Current partition replica assignment"
    assert len(json.loads(printed[4])["partitions"]) == 5
    plan.write_text(json.dumps({"topics": [{"topic": "nowhere"}]}))
    ours, kafkas = (run("reassign-partitions", *asked) for run in (tools.ours, tools.kafkas))
    assert ours.status == kafkas.status == 1
    assert ours.lines[0] == "Error: Topic nowhere not found."
    assert kafkas.lines[0].endswith("Topic nowhere not found.")
