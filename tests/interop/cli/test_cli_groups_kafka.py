"""``odradek consumer-groups`` and ``odradek groups`` print what Kafka's tools print.

Exit codes are not compared: Kafka's tool exits with 0 whatever happens.
"""

from pathlib import Path

import pytest

from tests.interop.cli.conftest import commit
from tests.interop.cli.tool_pair import ToolPair

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

DESCRIBED = [
    "--list",
    "--list --state",
    "--list --state empty,Stable",
    "--list --type",
    "--list --type consumer --state",
    "--describe --group classic",
    "--describe --group consumer --offsets --verbose",
    "--describe --group classic --members",
    "--describe --group classic --members --verbose",
    "--describe --group consumer --members --verbose",
    "--describe --group left --members",
    "--describe --group left --verbose",
    "--describe --all-groups --state",
    "--describe --all-groups --state --verbose",
    "--describe --group nobody",
    "--describe --group nobody --members",
    "--validate-regex ^t[ab]",
]


@pytest.mark.seed_row("2.2", "2.3")
@pytest.mark.parametrize("arguments", DESCRIBED)
def test_groups_are_listed_and_described_alike(tools: ToolPair, arguments: str) -> None:
    is_ordered = "--list" not in arguments and "classic" not in arguments
    assert tools.compare("consumer-groups", *arguments.split(), is_ordered=is_ordered)


@pytest.mark.parametrize(("group", "said"), [("left", "has no active members."), ("classic", "")])
def test_what_is_special_about_a_group_goes_to_stderr(
    tools: ToolPair, group: str, said: str
) -> None:
    asked = ("consumer-groups", "--describe", "--group", group)
    ours, kafkas = (run(*asked) for run in (tools.ours, tools.kafkas))
    assert ours.err == kafkas.err
    assert said in ours.err


@pytest.mark.parametrize(
    "arguments",
    ["", "--consumer", "--group-type classic", "--group-type Consumer", "--protocol consumer"],
)
def test_groups_of_all_types_are_listed_alike(tools: ToolPair, arguments: str) -> None:
    assert tools.compare("groups", "--list", *arguments.split(), is_ordered=False)


RESET = [
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset 3",
    "--to-offset 99",
    "--shift-by 2",
    "--shift-by -50",
    "--to-datetime 2023-11-14T22:13:24.500",
    "--to-datetime 2023-11-14T23:13:24.500+01:00",
    "--by-duration PT1H",
]


@pytest.mark.parametrize("how", RESET)
def test_new_offsets_are_the_same(tools: ToolPair, how: str) -> None:
    commit(tools.servers, "reset", {("t", 0): 4, ("t", 1): 7})
    asked = ("--reset-offsets", "--group", "reset", "--topic", "t", *how.split())
    planned = tools.compare("consumer-groups", *asked, "--dry-run", is_ordered=False)
    assert sum(line.startswith("reset ") for line in planned) == 2
    done = tools.ours("consumer-groups", *asked, "--execute")
    assert done.status == 0
    described = tools.compare("consumer-groups", "--describe", "--group", "reset")
    wanted = {tuple(line.split()[1:]) for line in planned if line.startswith("reset ")}
    assert wanted == {tuple(line.split()[1:4]) for line in described if line.startswith("reset ")}


def test_offsets_are_exported_and_imported_alike(tools: ToolPair, tmp_path: Path) -> None:
    commit(tools.servers, "moved", {("t", 0): 4, ("t", 1): 7, ("u", 2): 0})
    asked = ("--reset-offsets", "--group", "moved")
    exported = tools.compare(
        *("consumer-groups", *asked, "--all-topics", "--shift-by", "1", "--export", "--dry-run"),
        is_ordered=False,
    )
    file = tmp_path / "offsets.csv"
    file.write_text("".join(f"{line}\n" for line in exported if line))
    planned = tools.compare(
        *("consumer-groups", *asked, "--from-file", file, "--dry-run"), is_ordered=False
    )
    assert any(line.split() == ["moved", "t", "0", "5"] for line in planned)
    of_two = ("--reset-offsets", "--group", "moved", "--group", "also-left", "--all-topics")
    exported = tools.compare(
        *("consumer-groups", *of_two, "--to-current", "--export", "--dry-run"), is_ordered=False
    )
    assert "also-left,u,1,9" in exported
    file.write_text("".join(f"{line}\n" for line in exported if line))
    tools.compare(
        *("consumer-groups", *of_two[:-1], "--from-file", file, "--dry-run"), is_ordered=False
    )


REFUSED = [
    "--reset-offsets --group classic --topic t --to-earliest --execute",
    "--reset-offsets --group left --topic t:7 --to-earliest --execute",
    "--delete-offsets --group consumer --topic u",
]


@pytest.mark.parametrize("arguments", REFUSED)
def test_what_cannot_be_is_refused_alike(tools: ToolPair, arguments: str) -> None:
    ours, kafkas = (
        run("consumer-groups", *arguments.split()) for run in (tools.ours, tools.kafkas)
    )
    assert ours.status == 1
    # The last column of what could not be deleted is the text of Kafka's client.
    first, second = ([line.split("Error: ")[0] for line in each.lines] for each in (ours, kafkas))
    assert sorted(first) == sorted(second)


def test_a_group_with_members_is_not_deleted(tools: ToolPair) -> None:
    ours, kafkas = (
        run("consumer-groups", "--delete", "--group", "classic", "--group", "nobody").lines
        for run in (tools.ours, tools.kafkas)
    )
    first, second = (sorted(line.split(": ")[0] for line in each) for each in (ours, kafkas))
    assert first == second
    assert "* Group 'classic' could not be deleted due to" in first


def test_offsets_and_groups_are_deleted_alike(tools: ToolPair) -> None:
    for name in ("goes-first", "goes-later"):
        commit(tools.servers, name, {("t", 0): 4, ("u", 0): 4})
    names = zip((tools.ours, tools.kafkas), ("goes-first", "goes-later"), strict=True)
    printed = []
    for run, name in names:
        deleted = run("consumer-groups", "--delete-offsets", "--group", name, "--topic", "u:0")
        described = run("consumer-groups", "--describe", "--group", name)
        gone = run("consumer-groups", "--delete", "--group", name)
        lines = [line for each in (deleted, described, gone) for line in each.lines]
        printed.append([line.replace(name, "NAME") for line in lines])
    ours, kafkas = printed
    assert ours == kafkas
    assert ours[-1] == "Deletion of requested consumer groups ('NAME') was successful."
