"""The ``odradek`` command.

A tool is a module of this package that has a command of its own name, and a line in ``TOOLS``. It
is imported when it is called: nobody pays for the others.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from odradek.protocol import __main__ as protocol_table

TOOLS: Final[Mapping[str, str]] = {
    "broker-api-versions": "List the versions of the APIs that brokers speak.",
    "client-metrics": "Describe and alter which metrics clients push to brokers.",
    "cluster": "Show the id of a cluster and its endpoints; unregister a broker.",
    "completion": "Print a script by which a shell completes this command.",
    "configs": "Describe and alter configs of topics, brokers, groups and client metrics.",
    "console-consumer": "Print the records of topics.",
    "console-producer": "Send lines of text as records.",
    "consumer-groups": "List, describe and delete consumer groups; reset their offsets.",
    "consumer-perf-test": "Measure how fast records are read.",
    "delete-records": "Delete the records of partitions up to an offset.",
    "down": "Stop the cluster that `up` runs.",
    "dump-log": "Print the files of a log directory.",
    "e2e-latency": "Measure how long a record takes from producer to consumer.",
    "features": "Describe, upgrade and downgrade the features of a cluster.",
    "get-offsets": "Print offsets of partitions by time.",
    "groups": "List groups of all types.",
    "leader-election": "Elect leaders of partitions.",
    "local": "Look at the cluster that `up` runs, and disturb it on purpose.",
    "log-dirs": "Show the log directories of brokers and what is in them.",
    "metadata-quorum": "Describe the metadata quorum.",
    "perf": "Measure throughput by number of partitions.",
    "producer-perf-test": "Measure how fast records are sent.",
    "pipeline": "Check, run, watch and reset pipelines on Spark.",
    "reassign-partitions": "Propose moves of partitions between brokers.",
    "replica-verification": "Compare the replicas of partitions, batch by batch.",
    "serve": "Run a broker.",
    "simulate": "Run a workload on simulated clusters, with faults from seeds.",
    "stop": "Stop nodes that run in the background.",
    "storage": "Format log directories, and look at them.",
    "topics": "Create, delete, describe, list and alter topics.",
    "transactions": "Look into transactions and end those that hang.",
    "up": "Run a cluster on this machine.",
    "verifiable-consumer": "Read in a group, and tell everything in JSON.",
    "verifiable-producer": "Send numbers, and tell everything in JSON.",
}


class LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *TOOLS})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in TOOLS:
            return super().get_command(ctx, cmd_name)
        attribute = cmd_name.replace("-", "_")
        command = getattr(import_module(f"odradek.cli.{attribute}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not ctx.resilient_parsing and args[0] not in TOOLS:
            from odradek.cli.suggestions import check_command

            check_command(self, ctx, args[0])
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [(name, self._short_help(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in self.list_commands(ctx) if name.startswith(incomplete)]
        commands = [CompletionItem(name, help=self._short_help(ctx, name)) for name in names]
        return commands + click.Command.shell_complete(self, ctx, incomplete)

    def _short_help(self, ctx: click.Context, name: str) -> str:
        command = None if name in TOOLS else self.get_command(ctx, name)
        return TOOLS[name] if command is None else command.get_short_help_str()


@click.group(cls=LazyGroup)
@click.version_option(package_name="odradek")
def main() -> None:
    """Kafka in Python."""


@main.command()
def protocol() -> None:
    """List the APIs this version speaks: KEY NAME MIN-MAX."""
    protocol_table.main()
