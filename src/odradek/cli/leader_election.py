"""``odradek leader-election``, the twin of ``kafka-leader-election``."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli import name_completion
from odradek.cli.json_files import Words, duplicates, partition_of, read_rows
from odradek.cli.tool_options import (
    Server,
    Tool,
    ToolError,
    is_given,
    reason,
    server_options,
)
from odradek.cli.unclean_loss import find_leaderless, losses
from odradek.client.admin.admin import Admin
from odradek.client.admin.partitions import ElectionType
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition

_TIMEOUTS: Final = {"default.api.timeout.ms": "30000", "request.timeout.ms": "15000"}
_WORDS: Final = Words(
    empty="Replica election data is empty",
    missing='Replica election data is missing "{}" field',
    has_version=False,
)
_NEEDS_ONE: Final = "An unclean election chooses a replica that runs: start one of the partition."
_SCOPES: Final = ("topic", "all-topic-partitions", "path-to-json-file")


@click.command(cls=Tool, no_args_is_help=True)
@server_options(old_config=["--admin.config"])
@click.option(
    "--election-type",
    required=True,
    type=click.Choice([each.name for each in ElectionType], case_sensitive=False),
    help="preferred: where another leads than the first replica. unclean: where nobody leads;"
    " records may be lost. REQUIRED.",
)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    help="One partition of this topic: give --partition too.",
)
@click.option("--partition", type=click.IntRange(0))
@click.option("--all-topic-partitions", is_flag=True, help="Wherever it is needed.")
@click.option(
    "--path-to-json-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help='{"partitions": [{"topic": "foo", "partition": 1}]}',
)
def leader_election(server: Server, election_type: str, **scope: Any) -> None:
    """Elect leaders of partitions; of an unclean election it says what is lost."""
    _check({name.replace("_", "-"): value for name, value in scope.items()})
    election = ElectionType[election_type]

    async def work(admin: Admin) -> None:
        await _elect(admin, election, _partitions(**scope))

    server.run(work, defaults=_TIMEOUTS)


def _check(scope: dict[str, object]) -> None:
    if sum(is_given(scope[name]) for name in _SCOPES) != 1:
        problem = "One and only one of the following options is required"
        raise click.UsageError(f"{problem}: {', '.join(_SCOPES)}")
    if is_given(scope["topic"]) and scope["partition"] is None:
        raise click.UsageError("Missing required option(s): partition")
    if scope["partition"] is not None and not is_given(scope["topic"]):
        raise click.UsageError("Option partition is only allowed if topic is used")


def _partitions(
    topic: str | None,
    partition: int | None,
    path_to_json_file: Path | None,
    *,
    all_topic_partitions: bool,
) -> list[TopicPartition] | None:
    if all_topic_partitions:
        return None
    if path_to_json_file is None:
        assert topic is not None
        assert partition is not None
        return [TopicPartition(topic, partition)]
    found = read_rows(path_to_json_file, "partitions", partition_of, _WORDS)
    twice = duplicates(found)
    if twice:
        problem = "Replica election data contains duplicate partitions"
        raise ToolError(f"{problem}: [{', '.join(map(str, twice))}]")
    return found


async def _elect(
    admin: Admin, election: ElectionType, partitions: list[TopicPartition] | None
) -> None:
    is_unclean = election is ElectionType.UNCLEAN
    before = await find_leaderless(admin, partitions) if is_unclean else {}
    try:
        results = await admin.elect_leaders(partitions, election=election)
    except KafkaTimeoutError as timeout:
        raise ToolError("Timeout waiting for election results") from timeout
    elected = [key for key, each in results.items() if each.error is None]
    unneeded = [key for key, error in results.errors.items() if _is_not_needed(error)]
    failed = {key: error for key, error in results.errors.items() if not _is_not_needed(error)}
    if elected:
        done = f"Successfully completed leader election ({election.name})"
        click.echo(f"{done} for partitions {_names(elected)}")
        for line in await losses(admin, before, elected):
            click.echo(line)
    if unneeded:
        click.echo(f"Valid replica already elected for partitions {_names(unneeded)}")
    for key, error in sorted(failed.items()):
        problem = f"Error completing leader election ({election.name}) for partition: {key}"
        click.echo(f"{problem}: {reason(error)}")
    if is_unclean and any(_has_no_replica(each) for each in failed.values()):
        click.echo(_NEEDS_ONE, err=True)
    if failed:
        raise ToolError(f"{len(failed)} replica(s) could not be elected")


def _is_not_needed(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.ELECTION_NOT_NEEDED


def _has_no_replica(error: KafkaError) -> bool:
    ineligible = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return isinstance(error, BrokerError) and error.code is ineligible


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
