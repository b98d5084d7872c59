"""``odradek reassign-partitions``, the twin of ``kafka-reassign-partitions``.

Brokers that do not run hold nothing up, and ``--list`` says what a move waits for: Kafka's tool
times out (KAFKA-13392), and says nothing.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import SystemRandom
from typing import Any, Final, TypeAlias

import click

from odradek.cli.json_files import duplicates, field, read_rows, text_of
from odradek.cli.reassignment import TerseError, Throttles, cancel, execute
from odradek.cli.reassignment_plan import document, read_plan
from odradek.cli.reassignment_report import (
    described,
    log_dirs_of,
    print_reassignments,
    replicas_of,
    verify,
)
from odradek.cli.tool_options import (
    Either,
    Server,
    Tool,
    ToolError,
    check_one_action,
    check_required,
    is_given,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import BrokerDescription
from odradek.controller.placement import UsableBroker, place_replicas
from odradek.core.ids import TopicPartition

_ACTIONS: Final = ("generate", "execute", "verify", "cancel", "list")
_FILE: Final = click.Path(dir_okay=False, path_type=Path)
_PLAN: Final = "reassignment-json-file"
_REQUIRED: Final[Mapping[str, Sequence[str]]] = {
    "generate": ("topics-to-move-json-file", "broker-list"),
    "execute": (_PLAN,),
    "verify": (_PLAN,),
    "cancel": (_PLAN,),
    "list": (),
}
_PERMITTED: Final[Mapping[str, Sequence[str]]] = {
    "generate": ("disable-rack-aware",),
    "execute": (
        "additional",
        "throttle",
        "replica-alter-log-dirs-throttle",
        "timeout",
        "disallow-replication-factor-change",
    ),
    "verify": ("preserve-throttles",),
    "cancel": ("preserve-throttles", "timeout"),
    "list": ("json",),
}
_TIMEOUT_MS: Final = 10_000
_EITHER: Final = Either(
    "Please don't specify both --bootstrap-server and --bootstrap-controller",
    "Please specify either --bootstrap-server or --bootstrap-controller",
)
_BY_CONTROLLERS: Final = ("cancel", "list")

Given: TypeAlias = Mapping[str, Any]
"""The flags by their own names."""
Work: TypeAlias = Callable[[Admin], Awaitable[None]]


@click.command(cls=Tool, no_args_is_help=True)
@server_options(controller=_EITHER, has_broker_list=True)
@click.option("--generate", is_flag=True, help="Propose where partitions could go; move nothing.")
@click.option("--execute", is_flag=True, help="Begin to move partitions.")
@click.option("--verify", is_flag=True, help="Tell how far it is; when over, end the throttles.")
@click.option("--cancel", is_flag=True, help="Stop moves.")
@click.option("--list", is_flag=True, help="List the moves under way, and what they wait for.")
@click.option(
    "--topics-to-move-json-file",
    type=_FILE,
    help='{"topics": [{"topic": "foo"}, {"topic": "foo1"}], "version": 1}',
)
@click.option("--broker-list", metavar="ID,…", help="The brokers they may go to.")
@click.option("--disable-rack-aware", is_flag=True, help="Do not look at racks.")
@click.option(
    "--reassignment-json-file",
    type=_FILE,
    help='{"partitions": [{"topic": "foo", "partition": 1, "replicas": [1, 2], "log_dirs":'
    ' ["any", "/data"]}], "version": 1}; log_dirs may be left out.',
)
@click.option("--throttle", type=int, help="Bytes a second between brokers, for each of them.")
@click.option(
    "--replica-alter-log-dirs-throttle", type=int, help="Bytes a second between log directories."
)
@click.option(
    "--timeout", type=int, help=f"In ms, until log directories move. Default: {_TIMEOUT_MS}."
)
@click.option("--additional", is_flag=True, help="Even if other moves are under way.")
@click.option("--preserve-throttles", is_flag=True, help="Leave the throttles as they are.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="As many replicas only.")
@click.option("--json", is_flag=True, help="With --list: JSON instead of text.")
def reassign_partitions(server: Server, **flags: Any) -> None:
    """Move partitions between brokers and log directories."""
    given = {name.replace("_", "-"): value for name, value in flags.items()}
    action = check_one_action({f"--{name}": given[name] for name in _ACTIONS}).strip("-")
    check_required(given, _REQUIRED[action])
    allowed = {action, *_REQUIRED[action], *_PERMITTED[action]}
    for name, value in given.items():
        if is_given(value) and name not in allowed:
            problem = f'Option "[{name}]" can\'t be used with action "[{action}]"'
            raise click.UsageError(problem)
    if server.uses_controllers and action not in _BY_CONTROLLERS:
        problem = f'Option "[bootstrap-controller]" can\'t be used with action "[{action}]"'
        raise click.UsageError(problem)
    given["bootstrap-controller"] = server.uses_controllers
    try:
        work = _WORK[action](given)  # files are looked at before anybody is asked
    except ToolError as error:
        _report(str(error))
        raise click.exceptions.Exit(1) from error
    server.run(_told(work), report=_report)


def _told(work: Work) -> Work:
    async def run(admin: Admin) -> None:
        try:
            await work(admin)
        except TerseError as error:
            click.echo(str(error))
            raise click.exceptions.Exit(1) from error

    return run


def _report(message: str) -> None:
    click.echo(f"Error: {message}")


def _list(given: Given) -> Work:
    explains = not given["bootstrap-controller"]  # which knows little of replicas
    return partial(print_reassignments, as_json=given["json"], explains=explains)


def _execute(given: Given) -> Work:
    return partial(
        execute,
        plan=read_plan(given[_PLAN], is_strict=True),
        throttles=Throttles(
            _rate(given["throttle"]), _rate(given["replica-alter-log-dirs-throttle"])
        ),
        is_additional=given["additional"],
        keeps_factor=given["disallow-replication-factor-change"],
        timeout_ms=_timeout_ms(given),
    )


def _rate(number: int | None) -> int | None:
    return None if number is None or number < 0 else number


def _timeout_ms(given: Given) -> int:
    return _TIMEOUT_MS if given["timeout"] is None else int(given["timeout"])


def _verify(given: Given) -> Work:
    plan = read_plan(given[_PLAN])
    return partial(verify, plan=plan, keeps_throttles=given["preserve-throttles"])


def _cancel(given: Given) -> Work:
    return partial(
        cancel,
        plan=read_plan(given[_PLAN]),
        keeps_throttles=given["preserve-throttles"],
        timeout_ms=_timeout_ms(given),
    )


def _generate(given: Given) -> Work:
    return partial(
        _propose,
        brokers=_brokers(given["broker-list"]),
        names=_topics(given["topics-to-move-json-file"]),
        is_rack_aware=not given["disable-rack-aware"],
    )


def _topics(path: Path) -> list[str]:
    names = read_rows(path, "topics", lambda row: text_of(field(row, "topic")))
    twice = duplicates(names)
    if twice:
        problem = "List of topics to reassign contains duplicate entries"
        raise ToolError(f"{problem}: [{', '.join(twice)}]")
    return names


def _brokers(text: str) -> list[int]:
    try:
        ids = [int(each) for each in text.split(",")]
    except ValueError as error:
        raise ToolError(f"--broker-list: {text!r} is not ID,ID") from error
    twice = duplicates(ids)
    if twice:
        raise ToolError(f"Broker list contains duplicate entries: {twice}")
    return ids


async def _propose(
    admin: Admin, brokers: Sequence[int], names: Sequence[str], *, is_rack_aware: bool
) -> None:
    topics = await described(admin, names)
    there = (await admin.describe_cluster()).brokers
    usable = _usable([each for each in there if each.node_id in brokers], is_rack_aware)
    current = replicas_of(topics)
    proposed = {}
    for topic in topics:
        replicas = place_replicas(
            usable,
            partitions=len(topic.partitions),
            replication_factor=len(topic.partitions[0].replicas),
            random=SystemRandom(),
        )
        for number, each in enumerate(replicas):
            proposed[TopicPartition(topic.name, number)] = each
    places, _ = await log_dirs_of(admin, current)
    click.echo(f"Current partition replica assignment\n{document(current, places)}\n")
    click.echo(f"Proposed partition reassignment configuration\n{document(proposed, {})}")


def _usable(brokers: Sequence[BrokerDescription], is_rack_aware: bool) -> list[UsableBroker]:
    racks = {each.node_id: each.rack if is_rack_aware else None for each in brokers}
    without = sum(rack is None for rack in racks.values())
    if 0 < without < len(racks) and is_rack_aware:
        raise ToolError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to"
            " make replica assignment without rack information."
        )
    return [UsableBroker(node_id, rack, fenced=False) for node_id, rack in racks.items()]


_WORK: Final[Mapping[str, Callable[[Given], Work]]] = {
    "generate": _generate,
    "execute": _execute,
    "verify": _verify,
    "cancel": _cancel,
    "list": _list,
}
