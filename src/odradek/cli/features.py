"""``odradek features``, the twin of ``kafka-features``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import click

from odradek.broker.feature_choice import (
    FEATURES,
    FeatureError,
    default_level,
    dependency_lines,
    parse_feature,
    release_at,
    release_named,
)
from odradek.cli.tables import print_json
from odradek.cli.tool_options import (
    BROKERS_OR_CONTROLLERS,
    Server,
    ToolError,
    ToolGroup,
    pass_server,
    reason,
    server_options,
)
from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import FeatureUpdate, UpgradeType
from odradek.client.errors import KafkaError
from odradek.core.errors import OdradekError
from odradek.metadata.features import METADATA_VERSION, METADATA_VERSIONS

_LINE: Final = (
    "Feature: {:<40}  SupportedMinVersion: {:<15}  SupportedMaxVersion: {:<15}"
    "  FinalizedVersionLevel: {:<15}  Epoch: {}"
)


@click.group(cls=ToolGroup, no_args_is_help=False)
@server_options(controller=BROKERS_OR_CONTROLLERS, required=False)
@click.pass_context
def features(ctx: click.Context, server: Server | None) -> None:
    """Describe, upgrade and downgrade the features of a cluster."""
    ctx.obj = server


@features.command()
@click.option("--node-id", type=click.IntRange(0), help="Ask this broker. Default: any.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_server
def describe(server: Server, node_id: int | None, *, as_json: bool) -> None:
    """Show the levels of features, those in use and those that are possible."""

    async def work(admin: Admin) -> None:
        found = await admin.describe_features(node_id=node_id)
        rows = []
        for name, supported in sorted(found.supported.items()):
            finalized = found.finalized.get(name)
            level = 0 if finalized is None else finalized.max_version
            levels = (supported.min_version, supported.max_version, level)
            epoch = found.finalized_epoch if found.finalized_epoch >= 0 else "-"
            rows.append((name, *(_shown(name, each) for each in levels), epoch))
        if as_json:
            names = ("feature", "supportedMin", "supportedMax", "finalized", "epoch")
            print_json([dict(zip(names, row, strict=True)) for row in rows])
            return
        for row in rows:
            click.echo(_LINE.format(*row))

    server.run(work)


def _shown(name: str, level: int) -> str:
    if name != METADATA_VERSION:
        return str(level)
    try:
        return release_at(level).name
    except FeatureError:
        return f"UNKNOWN {level}"


feature_option = click.option("--feature", "chosen", multiple=True, metavar="FEATURE=LEVEL")
metadata_option = click.option("--metadata", hidden=True)
release_option = click.option("--release-version", help="All features as this release has them.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only tell whether it could be.")
unsafe_option = click.option("--unsafe", is_flag=True, help="Even if metadata is lost by it.")


@features.command()
@feature_option
@metadata_option
@release_option
@dry_run_option
@pass_server
def upgrade(server: Server, *, dry_run: bool, **choice: Any) -> None:
    """Raise levels of features."""
    _change(server, "upgrade", UpgradeType.UPGRADE, dry_run=dry_run, **choice)


@features.command()
@feature_option
@metadata_option
@release_option
@unsafe_option
@dry_run_option
@pass_server
def downgrade(server: Server, *, unsafe: bool, dry_run: bool, **choice: Any) -> None:
    """Lower levels of features."""
    _change(server, "downgrade", _downgrade_type(unsafe=unsafe), dry_run=dry_run, **choice)


@features.command()
@click.option("--feature", "chosen", multiple=True, metavar="FEATURE")
@unsafe_option
@dry_run_option
@pass_server
def disable(server: Server, chosen: tuple[str, ...], *, unsafe: bool, dry_run: bool) -> None:
    """Take features out of use: level 0."""
    kind = _downgrade_type(unsafe=unsafe)

    async def work(admin: Admin) -> None:
        levels = _once([(name, 0) for name in chosen])
        await _update(admin, "disable", levels, kind, dry_run=dry_run)

    server.run(work)


@features.command("version-mapping")
@click.option("--release-version", help="Default: the latest stable one.")
def version_mapping(release_version: str | None) -> None:
    """List the features of a release."""
    name = release_version or METADATA_VERSIONS[-1].name
    try:
        level = release_named(name, unstable=True).level
    except FeatureError as error:
        _fail(error)
    click.echo(f"{METADATA_VERSION}={level} ({name})")
    for feature in FEATURES:
        click.echo(f"{feature}={default_level(feature, level)}")


@features.command("feature-dependencies")
@click.option("--feature", "chosen", multiple=True, required=True, metavar="FEATURE=LEVEL")
def feature_dependencies(chosen: tuple[str, ...]) -> None:
    """Tell which other features a feature needs."""
    try:
        for each in chosen:
            for line in dependency_lines(each):
                click.echo(line)
    except FeatureError as error:
        _fail(error)


def _fail(error: OdradekError) -> NoReturn:
    click.echo(str(error), err=True)
    raise click.exceptions.Exit(1) from error


def _downgrade_type(*, unsafe: bool) -> UpgradeType:
    return UpgradeType.UNSAFE_DOWNGRADE if unsafe else UpgradeType.SAFE_DOWNGRADE


def _change(
    server: Server,
    verb: str,
    kind: UpgradeType,
    *,
    dry_run: bool,
    chosen: Sequence[str],
    metadata: str | None,
    release_version: str | None,
) -> None:
    async def work(admin: Admin) -> None:
        if release_version is None:
            levels = _chosen_levels(chosen, metadata)
        elif chosen or metadata is not None:
            raise ToolError("Can not specify `release-version` with other feature flags.")
        else:
            levels = _release_levels(release_version, kind)
        await _update(admin, verb, levels, kind, dry_run=dry_run)

    server.run(work)


def _chosen_levels(chosen: Sequence[str], metadata: str | None) -> dict[str, int]:
    pairs = [parse_feature(each) for each in chosen]
    if metadata is not None:
        click.echo(" `metadata` flag is deprecated and may be removed in a future release.")
        pairs.append((METADATA_VERSION, release_named(metadata, unstable=True).level))
    return _once(pairs)


def _release_levels(name: str, kind: UpgradeType) -> dict[str, int]:
    level = release_named(name, unstable=True).level
    levels = {each: default_level(each, level) for each in FEATURES}
    if kind is UpgradeType.UPGRADE:  # nothing is upgraded to nothing
        levels = {each: number for each, number in levels.items() if number > 0}
    return {METADATA_VERSION: level, **levels}


def _once(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for name, level in pairs:
        if name in levels:
            raise ToolError(f"Feature {name} was specified more than once.")
        levels[name] = level
    return levels


async def _update(
    admin: Admin, verb: str, levels: Mapping[str, int], kind: UpgradeType, *, dry_run: bool
) -> None:
    if not levels:
        raise ToolError(f"You must specify at least one feature to {verb}")
    if kind is UpgradeType.UPGRADE and min(levels.values()) < 1:
        problem = "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE"
        raise ToolError(f"{problem} when the provided maxVersionLevel:0 is < 1.")
    updates: dict[str, FeatureUpdate | int] = {
        name: FeatureUpdate(level, kind) for name, level in levels.items()
    }
    errors: Mapping[str, KafkaError]
    try:
        errors = (await admin.update_features(updates, validate_only=dry_run)).errors
    except KafkaError as error:  # brokers since 4.0 change all or none, and give one reason
        errors = dict.fromkeys(levels, error)
    for name, level in sorted(levels.items()):
        _print_outcome(verb, name, level, errors.get(name), dry_run=dry_run)
    if errors:
        raise ToolError(f"{len(errors)} out of {len(levels)} operation(s) failed.")


def _print_outcome(
    verb: str, name: str, level: int, error: KafkaError | None, *, dry_run: bool
) -> None:
    is_disabled = verb == "disable"
    if error is None:
        done = "can be" if dry_run else "was"
        what = "disabled." if is_disabled else f"{verb}d to {level}."
        click.echo(f"{name} {done} {what}")
        return
    begun = "Can not" if dry_run else "Could not"
    what = f"disable {name}" if is_disabled else f"{verb} {name} to {level}"
    click.echo(f"{begun} {what}. {reason(error)}")
