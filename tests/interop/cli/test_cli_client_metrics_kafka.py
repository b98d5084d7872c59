"""``client-metrics`` prints what Kafka's prints, and does what it does.

Kafka's exit code is not compared: its tool ends the JVM from within, which the program that runs it
here does not let it do.
"""

from collections.abc import Iterator

import pytest

from tests.interop.cli.tool_pair import ToolPair, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

TOOL = "client-metrics"
NAMES = ("mine", "theirs")
SETTINGS = (
    "--interval",
    "1000",
    "--metrics",
    "a.b,c",
    "--match",
    "client_id=x,client_source_port=5",
)


def wait_for_names(tools: ToolPair, *names: str) -> None:
    """A broker may hear of a change after the tool has ended."""
    wait_until(lambda: set(tools.ours(TOOL, "--list").out.split()) == set(names))


@pytest.fixture(autouse=True)
def clean(tools: ToolPair) -> Iterator[None]:
    yield
    for name in tools.ours(TOOL, "--list").out.split():
        tools.ours(TOOL, "--delete", "--name", name)
    wait_for_names(tools)


def test_subscriptions_are_made_listed_described_and_deleted_alike(tools: ToolPair) -> None:
    assert tools.compare(TOOL, "--list") == [""]
    assert tools.ours(TOOL, "--list").status == 0
    for name, run in zip(NAMES, (tools.ours, tools.kafkas), strict=True):
        made = run(TOOL, "--alter", "--name", name, *SETTINGS)
        assert made.out == f"Altered client metrics config for {name}.\n"
    wait_for_names(tools, *NAMES)
    assert tools.compare(TOOL, "--list", is_ordered=False) == sorted(NAMES)
    both = tools.compare(TOOL, "--describe", is_ordered=False)
    assert both.count("  metrics=a.b,c") == 2
    for name in NAMES:
        one = tools.compare(TOOL, "--describe", "--name", name, is_ordered=False)
        assert f"Client metrics configs for {name} are:" in one
    for name, run in zip(NAMES, (tools.ours, tools.kafkas), strict=True):
        gone = run(TOOL, "--delete", "--name", name)
        assert gone.out == f"Deleted client metrics config for {name}.\n"
    wait_for_names(tools)
    assert tools.compare(TOOL, "--describe") == []


def test_an_empty_value_takes_a_config_back(tools: ToolPair) -> None:
    for name, run in zip(NAMES, (tools.ours, tools.kafkas), strict=True):
        run(TOOL, "--alter", "--name", name, *SETTINGS)
        wait_until(lambda name=name: name in tools.ours(TOOL, "--list").out.split())  # type: ignore[misc]
        run(TOOL, "--alter", "--name", name, "--interval", "", "--match", "")
    wait_until(lambda: "match=client" not in tools.ours(TOOL, "--describe").out)
    described = [
        tools.compare(TOOL, "--describe", "--name", name, is_ordered=False)[:-1] for name in NAMES
    ]
    assert described[0] == described[1]


def test_what_is_not_there_and_a_generated_name(tools: ToolPair) -> None:
    assert tools.compare(TOOL, "--describe", "--name", "nobody") == [
        "The client metric resource nobody doesn't exist and doesn't have dynamic config."
    ]
    for run in (tools.ours, tools.kafkas):
        gone = run(TOOL, "--delete", "--name", "nobody")
        assert gone.out == "Deleted client metrics config for nobody.\n"
        made = run(TOOL, "--alter", "--generate-name", "--metrics", "a")
        name = made.out.removeprefix("Altered client metrics config for ").removesuffix(".\n")
        assert len(name) == 22
        wait_until(lambda name=name: name in tools.ours(TOOL, "--list").out.split())  # type: ignore[misc]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--alter", "--name", "x", "--match", "shoe_size=5"),
        ("--alter", "--name", "x", "--interval", "1"),
    ],
)
def test_values_that_the_broker_refuses(tools: ToolPair, arguments: tuple[str, ...]) -> None:
    ours, kafkas = tools.ours(TOOL, *arguments), tools.kafkas(TOOL, *arguments)
    assert ours.status == 1
    assert ours.lines == kafkas.lines
    assert ours.out.startswith("Error while executing client metrics command : ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--list", "--describe"), "exactly one action: --alter, --delete, --describe or --list."),
        (("--alter",), "One of --name or --generate-name must be specified with --alter."),
        (("--alter", "--name", "x", "--generate-name"), "One of --name or --generate-name"),
        (("--alter", "--name", "x", "--interval", "soon"), "Invalid interval value."),
        (("--delete",), "A client metrics resource name must be specified with --delete."),
        (("--list", "--name", "x"), 'Option "[list]" can\'t be used with option "[name]"'),
        (("--delete", "--name", "x", "--metrics", "y"), 'can\'t be used with option "[metrics]"'),
    ],
)
def test_wrong_calls_are_refused_alike(
    tools: ToolPair, arguments: tuple[str, ...], said: str
) -> None:
    ours, kafkas = tools.ours(TOOL, *arguments), tools.kafkas(TOOL, *arguments)
    assert ours.status == 1
    assert said in ours.err.splitlines()[0]
    assert said in kafkas.err
