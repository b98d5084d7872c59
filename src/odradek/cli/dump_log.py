"""``odradek dump-log``, the twin of ``kafka-dump-log``: options in, lines out."""

from collections.abc import Iterator
from itertools import groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from odradek.storage.dump import Line

DECODER_CLASS = "org.apache.kafka.tools.api.{}Decoder"
DECODER_CLASSES = [DECODER_CLASS.format(kind) for kind in ("String", "Integer", "Long")]
INT32_MAX = 2**31 - 1
LINES_PER_WRITE = 512


class KafkaToolCommand(click.Command):
    """A command that behaves as Kafka's tools do when it is called wrongly.

    Wrong options, none at all, and ``--help`` too: message on stderr, exit code 1; with the help
    where nothing else was to be said.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or "--help" in args:
            click.echo(f"{self.help}\n{ctx.get_help()}", err=True)
            ctx.exit(1)
        try:
            return super().parse_args(ctx, args)
        except click.MissingParameter as error:
            name = error.param.name if error.param else ""
            _refuse(ctx, f'Missing required argument "[{name}]"')
        except click.UsageError as error:
            _refuse(ctx, error.format_message())


def _refuse(ctx: click.Context, message: str) -> NoReturn:
    where = f"Try '{ctx.command_path} --help' for its options."
    click.echo(f"{message}\n{ctx.get_usage()}\n{where}", err=True)
    ctx.exit(1)


@click.command(cls=KafkaToolCommand, add_help_option=False)
@click.option("--files", required=True, metavar="FILE,…", help="The files to dump: .log, .index, …")
@click.option("--print-data-log", is_flag=True, help="Print keys and values too.")
@click.option("--deep-iteration", is_flag=True, help="Print a line for each record.")
@click.option("--verify-index-only", is_flag=True, help="Check indexes, do not print them.")
@click.option("--index-sanity-check", is_flag=True, help="Check what a starting broker checks.")
@click.option("--skip-record-metadata", is_flag=True, help="Print keys and values alone.")
@click.option(
    "--max-bytes",
    type=click.IntRange(0, INT32_MAX),
    default=INT32_MAX,
    help="Read no more of a log than this.",
)
@click.option(
    "--max-message-size",
    type=click.IntRange(0, INT32_MAX),
    default=5 * 1024 * 1024,
    show_default=True,
    help="Size of the largest batch that an index may point to.",
)
@click.option("--offsets-decoder", "decoder", flag_value="offsets", help="__consumer_offsets.")
@click.option(
    "--transaction-log-decoder",
    "decoder",
    flag_value="transaction-log",
    help="__transaction_state.",
)
@click.option(
    "--cluster-metadata-decoder",
    "decoder",
    flag_value="cluster-metadata",
    help="__cluster_metadata.",
)
@click.option(
    "--share-group-state-decoder",
    "decoder",
    flag_value="share-group-state",
    help="__share_group_state.",
)
@click.option(
    "--key-decoder-class",
    type=click.Choice(DECODER_CLASSES),
    is_flag=False,
    flag_value=DECODER_CLASSES[0],
    help="How keys are printed.",
)
@click.option(
    "--value-decoder-class",
    type=click.Choice(DECODER_CLASSES),
    is_flag=False,
    flag_value=DECODER_CLASSES[0],
    help="How values are printed.",
)
@click.version_option(package_name="odradek")
def dump_log(
    files: str,
    max_bytes: int,
    max_message_size: int,
    decoder: str | None,
    key_decoder_class: str | None,
    value_decoder_class: str | None,
    **flags: bool,
) -> None:
    """Print what is in the files of a log, to find out what is wrong with it."""
    # Not at the top: other commands must not pay for loading the storage engine.
    from odradek.storage.dump import DumpOptions, ReadOnlyDisk, decoder_for, dump

    flags["print_data_log"] |= bool(decoder or key_decoder_class or value_decoder_class)
    options = DumpOptions(
        bytes_max=max_bytes,
        message_bytes_max=max_message_size,
        decoder=decoder_for(decoder, key_decoder_class, value_decoder_class),
        **flags,
    )
    lines = dump(files.split(","), options, disk=ReadOnlyDisk(), working_folder=Path.cwd())
    if _print(lines):
        raise click.exceptions.Exit(1)


def _print(lines: "Iterator[Line]") -> bool:
    """Print lines in pieces, as UTF-8 whatever the terminal says; return whether any failed."""
    failed = False
    for is_problem, group in groupby(lines, key=attrgetter("is_problem")):
        while piece := list(islice(group, LINES_PER_WRITE)):
            text = "".join(f"{line.text}\n" for line in piece)
            click.echo(text.encode("utf-8", "replace"), nl=False, err=is_problem)
            failed |= any(line.is_failure for line in piece)
    return failed
