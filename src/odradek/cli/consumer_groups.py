"""``odradek consumer-groups``, the twin of ``kafka-consumer-groups``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli import group_report, name_completion, offset_reset
from odradek.cli.tables import column_width, json_object, padded, print_json
from odradek.cli.tool_options import (
    Server,
    Tool,
    check_not_with,
    check_one_action,
    is_given,
    reason,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.admin.groups import CONSUMER_PROTOCOL_TYPE, GroupListing
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.re2_patterns import PatternError, matcher

STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Empty",
    "Assigning",
    "Reconciling",
)
TYPES: Final = ("Classic", "Consumer")
_ACTIONS: Final = (
    "list",
    "describe",
    "delete",
    "reset-offsets",
    "delete-offsets",
    "validate-regex",
)
_SCENARIOS: Final = (
    "to-offset",
    "shift-by",
    "to-datetime",
    "by-duration",
    "to-earliest",
    "to-latest",
    "to-current",
    "from-file",
)
_FORMS: Final = ("members", "offsets", "state")
_TOP_LEVEL: Final = (
    ErrorCode.INVALID_GROUP_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.NON_EMPTY_GROUP,
)
_NO_EXECUTE: Final = (
    "WARN: No action will be performed as the --execute option is missing. Say --dry-run if that"
    " is what you want: Kafka 5.0 is going to ask for one of the two."
)


@dataclass(frozen=True)
class Options:
    """The flags as they were given, under their own names."""

    list: bool
    describe: bool
    delete: bool
    reset_offsets: bool
    delete_offsets: bool
    validate_regex: str | None
    group: tuple[str, ...]
    all_groups: bool
    topic: tuple[str, ...]
    all_topics: bool
    members: bool
    verbose: bool
    offsets: bool
    state: str | None
    type: str | None
    timeout: int
    dry_run: bool
    execute: bool
    export: bool
    to_offset: int | None
    shift_by: int | None
    to_datetime: str | None
    by_duration: str | None
    to_earliest: bool
    to_latest: bool
    to_current: bool
    from_file: Path | None
    json: bool

    def by_flag(self) -> dict[str, object]:
        return {each.name.replace("_", "-"): getattr(self, each.name) for each in fields(self)}


@click.command(cls=Tool, no_args_is_help=True)
@server_options(required=False)
@click.option("--list", is_flag=True, help="List consumer groups.")
@click.option("--describe", is_flag=True, help="Describe groups: offsets and lag.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--reset-offsets", is_flag=True, help="Set offsets of groups without members.")
@click.option("--delete-offsets", is_flag=True, help="Forget offsets of a group.")
@click.option("--validate-regex", metavar="REGEX", help="Tell whether RE2 takes it.")
@click.option(
    "--group",
    shell_complete=name_completion.groups,
    multiple=True,
    help="A group; may be repeated.",
)
@click.option("--all-groups", is_flag=True, help="All consumer groups.")
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    multiple=True,
    help="A topic or topic:0,1,2; may be repeated.",
)
@click.option("--all-topics", is_flag=True, help="All topics that a group has offsets of.")
@click.option("--members", is_flag=True, help="With --describe: the members.")
@click.option("--offsets", is_flag=True, help="With --describe: offsets and lag, the default.")
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,…]",
    help="With --describe: the state of the group. With --list: of all, or only groups in these.",
)
@click.option(
    "--type",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,…]",
    help="With --list: the types of groups, or only groups of these.",
)
@click.option("--timeout", type=click.IntRange(0), default=30_000, show_default=True, metavar="MS")
@click.option("--dry-run", is_flag=True, help="Show the new offsets, and leave it at that.")
@click.option("--execute", is_flag=True, help="Set the new offsets.")
@click.option("--export", is_flag=True, help="Print the new offsets as CSV.")
@click.option("--to-offset", type=int, help="To this offset, as far as there are records.")
@click.option("--shift-by", type=int, help="From the current offset, forward or (< 0) back.")
@click.option("--to-datetime", metavar="YYYY-MM-DDThh:mm:ss.sss", help="In UTC, or with a zone.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="So long ago.")
@click.option("--to-earliest", is_flag=True, help="To the first record.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To where it is: for --export.")
@click.option(
    "--from-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="CSV, as --export prints it: [group,]topic,partition,offset.",
)
@click.option("--json", is_flag=True, help="With --list and --describe: JSON instead of text.")
def consumer_groups(server: Server | None, **flags: Any) -> None:
    """List, describe and delete consumer groups; reset their offsets.

    Whatever fails is exit code 1, where Kafka's tool prints an error and exits with 0.
    """
    options = Options(**flags)
    action = _check(options)
    if options.validate_regex is not None:
        _validate_regex(options.validate_regex)
        return
    if server is None:
        raise click.UsageError('Missing required argument "[bootstrap-server]"')
    work = {
        "list": _list,
        "describe": _describe,
        "delete": _delete,
        "reset-offsets": _reset,
        "delete-offsets": _delete_offsets,
    }[action]
    server.run(partial(work, options), report=_report)


def _report(message: str) -> None:
    _print_error(f"Executing consumer group command failed due to {message}")


def _print_error(message: str) -> None:
    click.echo(f"\nError: {message}")


def _check(options: Options) -> str:
    """Return the action, if the flags go together.

    Raises:
        click.UsageError: They do not.
    """
    given = options.by_flag()
    chosen = {f"--{name}": is_given(given[name]) for name in _ACTIONS}
    action = check_one_action(chosen).strip("-")
    scope = options.group or options.all_groups
    if action in ("describe", "delete", "reset-offsets") and not scope:
        raise click.UsageError(
            f"Option [{action}] takes one of these options: [all-groups], [group]"
        )
    if action == "delete" and options.topic:
        problem = "does not support topic-specific offset deletion from a consumer group."
        raise click.UsageError(f"The consumer {problem}")
    if action == "delete-offsets" and not (options.group and options.topic):
        raise click.UsageError(
            "Option [delete-offsets] takes the following options: [group], [topic]"
        )
    check_not_with("group", given, ["all-groups", "list"])
    check_not_with("topic", given, ["list", "describe"])
    _check_forms(action, given)
    if action == "reset-offsets":
        _check_reset(options, given)
    return action


def _check_forms(action: str, given: Mapping[str, object]) -> None:
    places = {
        "members": ("describe",),
        "offsets": ("describe",),
        "verbose": ("describe",),
        "state": ("describe", "list"),
        "type": ("list",),
        "json": ("describe", "list"),
    }
    for name, actions in places.items():
        if is_given(given[name]) and action not in actions:
            problem = "are unavailable given other options on the command line"
            raise click.UsageError(f"Option(s) [{name}] {problem}")
    if action == "describe":
        if sum(is_given(given[name]) for name in _FORMS) > 1:
            forms = ", ".join(f"[{name}]" for name in _FORMS)
            problem = f"takes at most one of these options: {forms}"
            raise click.UsageError(f"Option [describe] {problem}")
        if given["state"]:
            raise click.UsageError("Option [describe] does not take a value for [state]")


def _check_reset(options: Options, given: Mapping[str, object]) -> None:
    if options.dry_run and options.execute:
        raise click.UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not options.dry_run and not options.execute:
        click.echo(_NO_EXECUTE, err=True)
    for name in _SCENARIOS:
        check_not_with(name, given, _SCENARIOS)
    if not any(is_given(given[name]) for name in _SCENARIOS):
        scenarios = ", ".join(f"[{name}]" for name in _SCENARIOS)
        problem = f"requires one of the following scenarios: {scenarios}"
        raise click.UsageError(f"Option '[reset-offsets]' {problem}")
    if not (options.topic or options.all_topics or options.from_file):
        problem = "One of the reset scopes should be defined: --all-topics, --topic."
        raise click.UsageError(problem)


def _validate_regex(pattern: str) -> None:
    try:
        matcher(pattern)
    except PatternError as error:
        click.echo(f"The regular expression `{pattern}` is invalid: {error}.")
        raise click.exceptions.Exit(1) from error
    click.echo(f"The regular expression `{pattern}` is valid.")


async def _listed(
    options: Options, admin: Admin, states: Sequence[str] = (), types: Sequence[str] = ()
) -> list[GroupListing]:
    found = await admin.list_groups(states=states, types=types, timeout_ms=options.timeout)
    return [each for each in found if each.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)]


async def _group_ids(options: Options, admin: Admin) -> list[str]:
    if options.all_groups:
        return [each.group_id for each in await _listed(options, admin)]
    return sorted(set(options.group))


async def _list(options: Options, admin: Admin) -> None:
    states = _known("state", options.state, STATES)
    types = _known("types", options.type, TYPES)
    found = await _listed(options, admin, states, types)
    if options.json:
        print_json([json_object(each._asdict()) for each in found])
        return
    if options.state is None and options.type is None:
        for each in found:
            click.echo(each.group_id)
        return
    width = 10 + column_width(15, (each.group_id for each in found))
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(each.group_id, each.type.capitalize(), each.state) for each in found]
    for group_id, kind, state in rows:
        cells = [group_id]
        cells += [kind] if options.type is not None else []
        cells += [state] if options.state is not None else []
        click.echo(padded(cells, [width, 20, 20]))


def _known(what: str, text: str | None, names: Sequence[str]) -> list[str]:
    """Return the names in a list, as Kafka spells them.

    Raises:
        click.UsageError: There is no such name.
    """
    by_lower = {name.lower(): name for name in names}
    wanted = [each.strip().lower() for each in (text or "").split(",")] if text else []
    if any(each not in by_lower for each in wanted):
        valid = f"Valid {what.rstrip('s')}s are: {', '.join(names)}"
        raise click.UsageError(f"Invalid {what} list '{text}'. {valid}")
    return [by_lower[each] for each in wanted]


async def _describe(options: Options, admin: Admin) -> None:
    ids = await _group_ids(options, admin)
    form = "offsets"
    if options.members:
        form = "members"
    elif options.state is not None:
        form = "state"
    report = group_report.GroupReport(
        admin, options.timeout, form, is_verbose=options.verbose, as_json=options.json
    )
    await report.print(ids)


async def _delete(options: Options, admin: Admin) -> None:
    ids = await _group_ids(options, admin)
    results = await admin.delete_groups(ids, timeout_ms=options.timeout)
    done = ", ".join(f"'{each}'" for each in results if results[each].error is None)
    if not results.errors:
        click.echo(f"Deletion of requested consumer groups ({done}) was successful.")
        return
    _print_error("Deletion of some consumer groups failed:")
    for group_id, error in results.errors.items():
        click.echo(f"* Group '{group_id}' could not be deleted due to: {reason(error)}")
    if done:
        click.echo(f"\nThese consumer groups were deleted successfully: {done}")
    raise click.exceptions.Exit(1)


async def _reset(options: Options, admin: Admin) -> None:
    scenario = offset_reset.Scenario(
        to_offset=options.to_offset,
        shift_by=options.shift_by,
        time_ms=offset_reset.wanted_time(options.to_datetime, options.by_duration),
        to_earliest=options.to_earliest,
        to_latest=options.to_latest,
        file=options.from_file,
        topics=None if options.all_topics else options.topic,
    )
    ids = await _group_ids(options, admin)
    reset = offset_reset.OffsetReset(admin, scenario, ids, timeout_ms=options.timeout)
    planned = {}
    failed = False
    for group_id in ids:
        state = await reset.state_of(group_id)
        if state in ("Empty", "Dead"):
            planned[group_id] = await reset.run(group_id, execute=options.execute)
            continue
        problem = "is inactive, but the current state is"
        _print_error(f"Assignments can only be reset if the group '{group_id}' {problem} {state}.")
        planned[group_id] = {}
        failed = True
    if options.export:
        click.echo(offset_reset.to_csv(planned, with_group=len(options.group) != 1))
    else:
        offset_reset.print_table(planned)
    if failed:
        raise click.exceptions.Exit(1)


async def _delete_offsets(options: Options, admin: Admin) -> None:
    if len(options.group) > 1:
        raise click.UsageError("--delete-offsets takes one group at a time")
    (group_id,) = options.group
    partitions, unknown = await offset_reset.named_partitions(
        admin, options.topic, timeout_ms=options.timeout
    )
    outcome: dict[TopicPartition, KafkaError | None] = {**unknown}
    try:
        results = await admin.delete_group_offsets(group_id, partitions, timeout_ms=options.timeout)
        outcome |= {key: result.error for key, result in results.items()}
        top_level = next(iter(results.errors.values()), None)
    except KafkaError as error:
        top_level = error
        outcome |= dict.fromkeys(partitions, error)
    _print_deleted(group_id, top_level, outcome)
    if any(outcome.values()):
        raise click.exceptions.Exit(1)


def _print_deleted(
    group_id: str,
    top_level: KafkaError | None,
    outcome: Mapping[TopicPartition, KafkaError | None],
) -> None:
    if top_level is None:
        click.echo(f"Request succeeded for deleting offsets from group {group_id}.")
    elif isinstance(top_level, BrokerError) and top_level.code in _TOP_LEVEL:
        _print_error(reason(top_level))
    else:
        _print_error("Encountered some partition-level error, see the follow-up details.")
    width = column_width(15, (key.topic for key in outcome))
    click.echo("\n" + padded(("TOPIC", "PARTITION", "STATUS"), (width, 10, 15)))
    for key, error in sorted(outcome.items(), key=lambda item: item[0]):
        status = "Successful" if error is None else f"Error: {reason(error)}"
        number = key.partition if key.partition >= 0 else None
        click.echo(padded((key.topic, number, status), (width, 10, 15)))
