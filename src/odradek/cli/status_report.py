"""``odradek local status``: asks, explains and prints."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Self

import click

from odradek.cli.broker_reach import ask_reach
from odradek.cli.cluster_facts import (
    NOTHING_KNOWN,
    LocalProcess,
    ask_partitions,
    ask_status,
)
from odradek.cli.cluster_status import process_lines, status_json, status_lines
from odradek.cli.explanations import explain
from odradek.cli.findings import Commands
from odradek.cli.tables import print_json
from odradek.cli.tool_options import Server
from odradek.client.admin.admin import SETTINGS, Admin
from odradek.client.errors import KafkaTimeoutError
from odradek.client.settings import SERVERS, as_settings
from odradek.core.ids import TopicPartition
from odradek.local.layout import Layout
from odradek.replication.isr_flaps import Flapping, IsrFlaps

LOOK_SECONDS: Final = 0.2
"""Between two looks at the ISRs."""
FLAPS_MIN: Final = 2
"""Within the short time that somebody looks; leaders and supervisors remember more."""
_PATIENCE: Final = {"default.api.timeout.ms": "10000", "request.timeout.ms": "3000"}
"""A cluster that is being disturbed has brokers that do not answer."""


class LocalView(NamedTuple):
    """What the supervisor of a local cluster knows."""

    processes: Sequence[LocalProcess]
    cuts: str
    flapping: Sequence[Flapping]
    dir_argument: str

    @classmethod
    def of(cls, layout: Layout, answer: Mapping[str, Any], dir_argument: str) -> Self:
        states = answer["nodes"]
        processes = [
            LocalProcess(
                node.id,
                ",".join(node.roles),
                states[str(node.id)]["state"],
                states[str(node.id)]["pid"],
                node.address or node.controller_address or "-",
                node.rack,
            )
            for node in layout.nodes
        ]
        flapping = [
            Flapping(
                each["node"],
                tuple(TopicPartition(*key) for key in each["partitions"]),
                each["times"],
                each["span_ms"],
            )
            for each in answer["flapping"]
        ]
        return cls(processes, answer["cuts"], flapping, dir_argument)


def report_status(server: Server, view: LocalView | None, *, seconds: float, as_json: bool) -> None:
    """Print the state of a cluster; ``view`` if it is a local one.

    Raises:
        KafkaError: No broker answers, and nothing else is known.
    """
    settings = as_settings({**_PATIENCE, **server.known(SETTINGS)})
    known = view or LocalView((), "", (), "")
    commands = Commands(server.settings[SERVERS], None if view is None else view.dir_argument)
    if known.cuts and not as_json:
        heal = commands.local("heal")
        click.echo(f"cut: {known.cuts} ({heal} undoes it)")

    async def show() -> None:
        async with Admin(settings) as admin:
            seen = await _look_for_flaps(admin, seconds)
            flapping = {each.broker_id: each for each in (*seen, *known.flapping)}
            found = await ask_status(admin, partial(ask_reach, settings), list(flapping.values()))
        findings = explain(found, known.processes, commands, has_cuts=bool(known.cuts))
        if as_json:
            print_json(status_json(found, findings, known.processes))
            return
        for line in status_lines(found, findings, known.processes):
            click.echo(line)

    try:
        asyncio.run(show())
    except KafkaTimeoutError:
        if view is None or as_json:
            raise
        findings = explain(NOTHING_KNOWN, view.processes, commands, has_cuts=bool(view.cuts))
        lines = [*process_lines(view.processes), "", *(each.sentence for each in findings)]
        click.echo("\n".join(["no broker answers", "", *lines]))


async def _look_for_flaps(admin: Admin, seconds: float) -> list[Flapping]:
    """Return replicas that leave ISRs and rejoin them while we look."""
    if not seconds:
        return []
    loop, flaps = asyncio.get_running_loop(), IsrFlaps(FLAPS_MIN)
    deadline, before = loop.time() + seconds, await ask_partitions(admin)
    while loop.time() < deadline:
        await asyncio.sleep(LOOK_SECONDS)
        now, now_ms = await ask_partitions(admin), int(loop.time() * 1_000)
        for key in now.keys() & before.keys():
            flaps.on_isr(key, before[key].isr, now[key].isr, now_ms)
        before = now
    return flaps.find(int(loop.time() * 1_000))
