"""``odradek replica-verification``, the twin of ``kafka-replica-verification``.

Round by round each partition is fetched from all its replicas at the same offset, and the batches
are compared (``replica_comparison``). It goes on until it is stopped; a replica that does not
answer holds its partitions up.
"""

import time
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import click

from odradek.cli.replica_comparison import OffsetsDifferError, compare
from odradek.cli.running import run_until_stopped
from odradek.cli.tool_options import Server, Tool, ToolError, reason, server_options
from odradek.cli.topic_filter import topic_filter
from odradek.client.admin.admin import SETTINGS, Admin
from odradek.client.admin.log_dirs import ReplicaBatches, TopicPartitionReplica
from odradek.client.settings import as_settings
from odradek.core.ids import TopicPartition

_NOTHING: Final = ReplicaBatches(-1, b"")
_ANSWER_MS_MAX: Final = 5_000
"""Beyond the wait for records. A broker that is down is asked again in the next round; until then
its partitions lag, and the lag is to be reported."""
Replicas = Mapping[TopicPartition, tuple[int, ...]]


@click.command(cls=Tool, no_args_is_help=True)
@server_options()
@click.option(
    "--fetch-size", type=click.IntRange(1), default=1 << 20, show_default=True, metavar="BYTES"
)
@click.option(
    "--max-wait-ms",
    type=click.IntRange(0),
    default=1_000,
    show_default=True,
    help="How long a broker may wait for new records.",
)
@click.option("--topics-include", default=".*", show_default=True, metavar="REGEX")
@click.option(
    "--time",
    "since",
    type=int,
    default=-1,
    show_default=True,
    help="Where to begin: -1 at the end, -2 at the start, or a time in ms.",
)
@click.option("--report-interval-ms", type=click.IntRange(0), default=30_000, show_default=True)
def replica_verification(
    server: Server,
    fetch_size: int,
    max_wait_ms: int,
    topics_include: str,
    since: int,
    report_interval_ms: int,
) -> None:
    """Compare all replicas of topics, batch by batch, until stopped."""
    is_meant = topic_filter(topics_include)

    async def work() -> None:
        async with Admin(as_settings(server.known(SETTINGS))) as admin:
            names = [each for each in await _names(admin) if is_meant(each)]
            if not names:
                problem = "No topics found. --topics-include if specified, is either filtering out"
                raise ToolError(f"{problem} all topics or there is no topic.")
            rounds = _Rounds(admin, await _replicas(admin, names), fetch_size, max_wait_ms)
            await rounds.begin(since)
            _say("verification process is started")
            reported = time.monotonic()
            while True:
                await rounds.take()
                if (time.monotonic() - reported) * 1000 > report_interval_ms:
                    _say(rounds.lag())
                    reported = time.monotonic()

    run_until_stopped(work())


async def _names(admin: Admin) -> list[str]:
    return sorted(each.name for each in await admin.list_topics(include_internal=True))


async def _replicas(admin: Admin, names: Iterable[str]) -> Replicas:
    topics = (await admin.describe_topics(list(names))).unwrap()
    return {
        TopicPartition(topic.name, each.partition): tuple(each.replicas)
        for topic in topics.values()
        for each in topic.partitions
    }


class _Rounds:
    """How far the replicas were compared."""

    def __init__(self, admin: Admin, replicas: Replicas, fetch_size: int, max_wait_ms: int) -> None:
        self._admin = admin
        self._replicas = replicas
        self._fetch_size = fetch_size
        self._max_wait_ms = max_wait_ms
        self._offsets: dict[TopicPartition, int] = {}
        self._lags: dict[TopicPartition, int] = {}
        self._told: set[str] = set()

    async def begin(self, since: int) -> None:
        """Find where to begin; a partition with nothing since then is compared from its end."""
        found = (await self._admin.list_offsets(dict.fromkeys(self._replicas, since))).unwrap()
        late = [key for key, each in found.items() if each.offset < 0]
        ends = (await self._admin.list_offsets(dict.fromkeys(late, -1))).unwrap()
        self._offsets = {key: each.offset for key, each in (found | ends).items()}

    async def take(self) -> None:
        """Fetch each partition from all its replicas, and compare what came.

        Raises:
            ToolError: Two replicas have batches that cannot be brought side by side.
        """
        wanted = {
            TopicPartitionReplica(*key, broker): self._offsets[key]
            for key, brokers in self._replicas.items()
            for broker in brokers
        }
        fetched = await self._admin.fetch_replicas(
            wanted,
            partition_bytes_max=self._fetch_size,
            max_wait_ms=self._max_wait_ms,
            timeout_ms=self._max_wait_ms + _ANSWER_MS_MAX,
        )
        for error in fetched.errors.values():
            self._tell(reason(error))
        for key, brokers in self._replicas.items():
            results = {broker: fetched[TopicPartitionReplica(*key, broker)] for broker in brokers}
            batches = {
                broker: _NOTHING if each.error else each.unwrap()
                for broker, each in results.items()
            }
            self._compare(key, batches)

    def _compare(self, key: TopicPartition, batches: Mapping[int, ReplicaBatches]) -> None:
        try:
            compared = compare(key, self._offsets[key], batches)
        except OffsetsDifferError as error:
            for each in (*error.differences, str(error)):
                _say(each)
            raise click.exceptions.Exit(1) from error
        for each in compared.differences:
            _say(each)
        self._offsets[key] = compared.next_offset
        high_watermark = max(each.high_watermark for each in batches.values())
        self._lags[key] = high_watermark - compared.next_offset

    def _tell(self, problem: str) -> None:
        """Say once why a replica holds its partition up."""
        if problem not in self._told:
            self._told.add(problem)
            click.echo(f"WARN: {problem}", err=True)

    def lag(self) -> str:
        key = max(self._lags, key=self._lags.__getitem__)
        return (
            f"max lag is {self._lags[key]} for partition {key} at offset {self._offsets[key]}"
            f" among {len(self._lags)} partitions"
        )


def _say(text: str) -> None:
    now = datetime.now().astimezone()
    click.echo(f"{now:%Y-%m-%d %H:%M:%S},{now.microsecond // 1000:03d}: {text}")
