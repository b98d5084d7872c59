"""``odradek metadata-quorum``, the twin of ``kafka-metadata-quorum``.

A controller that joins by itself (``controller.quorum.auto.join.enable``) is back soon after it was
removed (KAFKA-19850): ``remove-controller`` says that it has to be stopped first.
"""

import json
from collections.abc import Iterable
from typing import Final

import click

from odradek.cli.added_controller import NO_CONFIG, AddedController
from odradek.cli.tables import print_json, print_tabbed
from odradek.cli.tool_options import (
    BROKERS_OR_CONTROLLERS,
    Server,
    ToolError,
    ToolGroup,
    now_ms,
    pass_server,
    server_options,
)
from odradek.client.admin.admin import SETTINGS, Admin
from odradek.client.admin.brokers import QuorumEndpoint, QuorumInfo, QuorumReplica
from odradek.client.settings import CONTROLLERS, SERVERS
from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid

_HEADERS: Final = (
    "NodeId",
    "DirectoryId",
    "LogEndOffset",
    "Lag",
    "LastFetchTimestamp",
    "LastCaughtUpTimestamp",
    "Status",
)
_NO_TIME: Final = -1


@click.group(cls=ToolGroup, no_args_is_help=False)
@server_options(controller=BROKERS_OR_CONTROLLERS, required=False)
@click.pass_context
def metadata_quorum(ctx: click.Context, server: Server | None) -> None:
    """Describe and change the metadata quorum."""
    ctx.obj = server


@metadata_quorum.command()
@click.option("--status", is_flag=True, help="A summary.")
@click.option("--replication", is_flag=True, help="How far each replica is.")
@click.option("--human-readable", is_flag=True, help="With --replication: times as 'ms ago'.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, of both.")
@pass_server
def describe(
    server: Server, *, status: bool, replication: bool, human_readable: bool, as_json: bool
) -> None:
    """Describe the quorum: one of --status and --replication."""

    async def work(admin: Admin) -> None:
        _check(status=status, replication=replication, human_readable=human_readable)
        quorum = await admin.describe_quorum()
        if as_json:
            print_json(_document(quorum))
        elif replication:
            print_tabbed(_HEADERS, _rows(quorum, human_readable=human_readable))
        else:
            _print_status((await admin.describe_cluster()).cluster_id, quorum)

    server.run(work)


def _check(*, status: bool, replication: bool, human_readable: bool) -> None:
    problem = "of --status or --replication"
    if status and replication:
        raise ToolError(f"Only one {problem} should be specified with describe sub-command")
    if not status and not replication:
        raise ToolError(f"One {problem} must be specified with describe sub-command")
    if status and human_readable:
        raise ToolError("The option --human-readable is only supported along with --replication")


@metadata_quorum.command("add-controller")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@pass_server
def add_controller(server: Server, *, dry_run: bool) -> None:
    """Give a controller a vote; --command-config is its own config file."""

    async def work(admin: Admin) -> None:
        if not server.settings.keys() - {SERVERS, CONTROLLERS}:
            raise ToolError(NO_CONFIG)
        added = AddedController.of(server.settings)
        if not dry_run:
            await admin.add_raft_voter(*added)
        shown = ", ".join(map(_url, added.endpoints))
        click.echo(
            f"{'DRY RUN of adding' if dry_run else 'Added'} controller {added.controller_id} with"
            f" directory id {added.directory_id} and endpoints: {shown}"
        )

    # The rest of the file is the controller's own business.
    known = {name: each for name, each in server.settings.items() if name in SETTINGS}
    Server(known).run(work)


@metadata_quorum.command("remove-controller")
@click.option("--controller-id", "-i", type=int, required=True, help="Which voter to remove.")
@click.option("--controller-directory-id", "-d", "directory", required=True, help="Its directory.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and do nothing.")
@pass_server
def remove_controller(server: Server, *, controller_id: int, directory: str, dry_run: bool) -> None:
    """Take the vote of a controller. Stop it first if it joins by itself."""

    async def work(admin: Admin) -> None:
        if controller_id < 0:
            raise ToolError(f"Invalid negative --controller-id: {controller_id}")
        try:
            directory_id = Uuid.from_text(directory)
        except CorruptionError as error:
            raise ToolError(f"Failed to parse --controller-directory-id: {error}") from error
        if not dry_run:
            await admin.remove_raft_voter(controller_id, directory_id)
        # With two blanks, as Kafka's tool prints it; scripts look for the line.
        verb = "DRY RUN of removing " if dry_run else "Removed "
        click.echo(f"{verb} KRaft controller {controller_id} with directory id {directory_id}")

    server.run(work)


def _url(endpoint: QuorumEndpoint) -> str:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def _leader(quorum: QuorumInfo) -> QuorumReplica:
    for voter in quorum.voters:
        if voter.replica_id == quorum.leader_id:
            return voter
    raise ToolError("The quorum has no leader now")


def _rows(quorum: QuorumInfo, *, human_readable: bool) -> list[tuple[object, ...]]:
    leader = _leader(quorum)
    replicas = [(leader, "Leader")]
    replicas += [(each, "Follower") for each in quorum.voters if each is not leader]
    replicas += [(each, "Observer") for each in quorum.observers]
    return [
        (
            each.replica_id,
            each.directory_id,
            each.log_end_offset,
            leader.log_end_offset - each.log_end_offset,
            _moment(each.last_fetch_timestamp, human_readable=human_readable),
            _moment(each.last_caught_up_timestamp, human_readable=human_readable),
            status,
        )
        for each, status in replicas
    ]


def _moment(timestamp: int, *, human_readable: bool) -> str:
    if timestamp == _NO_TIME or not human_readable:
        return str(timestamp)
    age_ms = now_ms() - timestamp
    if age_ms < 0:
        raise ToolError(f"{timestamp} is in the future: do the clocks of the machines differ?")
    return f"{age_ms} ms ago"


def _print_status(cluster_id: str, quorum: QuorumInfo) -> None:
    leader = _leader(quorum)
    slowest = min(quorum.voters, key=lambda voter: voter.log_end_offset)
    times = (leader.last_caught_up_timestamp, slowest.last_caught_up_timestamp)
    lag_ms = 0 if slowest is leader else _NO_TIME
    if slowest is not leader and _NO_TIME not in times:
        lag_ms = times[0] - times[1]
    fields = {
        "ClusterId": cluster_id,
        "LeaderId": quorum.leader_id,
        "LeaderEpoch": quorum.leader_epoch,
        "HighWatermark": quorum.high_watermark,
        "MaxFollowerLag": leader.log_end_offset - slowest.log_end_offset,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _nodes(quorum, quorum.voters),
        "CurrentObservers": _nodes(quorum, quorum.observers),
    }
    for name, value in fields.items():
        click.echo(f"{name + ':':<24}{value}")


def _nodes(quorum: QuorumInfo, replicas: Iterable[QuorumReplica]) -> str:
    return json.dumps([_node(quorum, each) for each in replicas])


def _node(quorum: QuorumInfo, replica: QuorumReplica) -> dict[str, object]:
    node: dict[str, object] = {"id": replica.replica_id}
    if replica.directory_id != ZERO_UUID:
        node["directoryId"] = str(replica.directory_id)
    endpoints = quorum.endpoints.get(replica.replica_id, ())
    if endpoints:
        node["endpoints"] = [f"{each.listener}://{each.host}:{each.port}" for each in endpoints]
    return node


def _document(quorum: QuorumInfo) -> dict[str, object]:
    names = [name[0].lower() + name[1:] for name in _HEADERS]
    rows = [
        dict(zip(names, map(_plain, row), strict=True))
        for row in _rows(quorum, human_readable=False)
    ]
    return {
        "leaderId": quorum.leader_id,
        "leaderEpoch": quorum.leader_epoch,
        "highWatermark": quorum.high_watermark,
        "replicas": rows,
    }


def _plain(value: object) -> object:
    text = str(value)
    return int(text) if text.lstrip("-").isdecimal() else text
