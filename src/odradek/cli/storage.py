"""``odradek storage``, the twin of ``kafka-storage``: options in, lines out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from odradek.core.config import BrokerConfig

VOTER = "ID@HOST:PORT:DIRECTORY,…"


def _refuse(ctx: click.Context, error: click.UsageError) -> NoReturn:
    """Behave as Kafka's tools do when they are called wrongly: usage on stderr, exit code 1."""
    click.echo(f"{ctx.get_usage()}\n{ctx.info_name}: error: {error.format_message()}", err=True)
    ctx.exit(1)


class StorageCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _refuse(ctx, error)


class StorageGroup(click.Group):
    command_class = StorageCommand

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args:
            _refuse(ctx, click.UsageError("Missing command."))
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            _refuse(ctx, error)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            _refuse(ctx, error)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    from odradek.core.errors import OdradekError

    try:
        yield
    except (OdradekError, OSError) as error:
        click.echo(str(error), err=True)
        raise click.exceptions.Exit(1) from error


def _load(config_file: Path) -> "BrokerConfig":
    from odradek.node.serving import load_config

    return load_config(config_file, ()).config


config_option = click.option(
    "--config",
    "-c",
    "config_file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server.properties file of the node.",
)


@click.group(
    cls=StorageGroup,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
def storage() -> None:
    """Format log directories, and look at them.

    `odradek serve` formats an empty directory by itself if the node names no controllers.
    """


@storage.command()
@config_option
def info(config_file: Path) -> None:
    """Tell what the log directories of this node are, and what is wrong with them."""
    # Not at the top, here and below: other commands must not pay for loading a broker.
    from odradek.broker.format_request import all_directories
    from odradek.broker.formatting import describe_directories
    from odradek.storage.disk import OsDisk

    with _one_line_errors():
        directories = all_directories(_load(config_file))
        if not describe_directories(OsDisk(), directories, click.echo):
            raise click.exceptions.Exit(1)


@storage.command("format")
@config_option
@click.option("--cluster-id", "-t", required=True, help="The id of the cluster, from random-uuid.")
@click.option("--add-scram", "-S", multiple=True, help="Comes later: credentials of a user.")
@click.option("--ignore-formatted", "-g", is_flag=True, help="Skip what is formatted already.")
@click.option("--release-version", "-r", help="Start with the features of this release.")
@click.option("--feature", "-f", "features", multiple=True, metavar="FEATURE=LEVEL")
@click.option("--standalone", "-s", is_flag=True, help="This controller is a quorum by itself.")
@click.option("--no-initial-controllers", "-N", is_flag=True, help="It joins a quorum later.")
@click.option("--initial-controllers", "-I", metavar=VOTER, help="The voters of the quorum.")
@click.pass_context
def format_command(
    ctx: click.Context, /, config_file: Path, add_scram: tuple[str, ...], **options: Any
) -> None:
    """Format the log directories of this node."""
    from random import SystemRandom

    from odradek.broker.clock import SystemClock
    from odradek.broker.format_request import FormatRequest, make_plan
    from odradek.broker.formatting import format_directories
    from odradek.storage.disk import OsDisk

    request = FormatRequest(**options)
    if request.ways_to_name_voters > 1:
        problem = "give one of --standalone, --no-initial-controllers, --initial-controllers"
        _refuse(ctx, click.UsageError(problem))
    if add_scram:
        click.echo("--add-scram comes later: there are no SCRAM credentials yet", err=True)
        ctx.exit(1)
    random, now_ms = SystemRandom(), SystemClock().now_ms()
    with _one_line_errors():
        plan = make_plan(_load(config_file), request, random)
        format_directories(OsDisk(), plan, now_ms=now_ms, random=random, say=click.echo)


@storage.command("version-mapping")
@click.option("--release-version", "-r", help="Default: the latest stable one.")
def version_mapping(release_version: str | None) -> None:
    """List the features with which a release starts."""
    from odradek.broker.feature_choice import FEATURES, default_level, release_named
    from odradek.metadata.features import METADATA_VERSION, METADATA_VERSIONS

    with _one_line_errors():
        name = release_version or METADATA_VERSIONS[-1].name
        level = release_named(name, unstable=True).level
        click.echo(f"{METADATA_VERSION}={level} ({name})")
        for feature in FEATURES:
            click.echo(f"{feature}={default_level(feature, level)}")


@storage.command("feature-dependencies")
@click.option("--feature", "-f", "features", multiple=True, required=True, metavar="FEATURE=LEVEL")
def feature_dependencies(features: tuple[str, ...]) -> None:
    """Tell which other features a feature needs."""
    from odradek.broker.feature_choice import dependency_lines

    with _one_line_errors():
        for feature in features:
            for line in dependency_lines(feature):
                click.echo(line)


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a random id."""
    from random import SystemRandom

    from odradek.core.ids import Uuid

    click.echo(str(Uuid.random(SystemRandom())))
