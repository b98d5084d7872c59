"""``odradek verifiable-consumer``: reads a topic in a group and tells, in JSON, what happens."""

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

import click

from odradek.cli import name_completion
from odradek.cli.client_options import Wording, assignor_name, client_options, client_settings
from odradek.cli.json_events import print_event
from odradek.cli.running import run_until_stopped
from odradek.cli.tool_options import Server, Tool, reason
from odradek.client.consumer import (
    Consumer,
    ConsumerRecord,
    FencedError,
    OffsetAndMetadata,
    RebalanceListener,
    TopicPartition,
)
from odradek.client.consumer.settings import DEFINITIONS
from odradek.client.errors import KafkaError
from odradek.client.settings import as_settings
from odradek.storage.dump.java_text import text_of

_WORDING: Final = Wording(
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead.",
    "Options {old} and {new} are mutually exclusive.",
)
Shares = Mapping[TopicPartition, list[ConsumerRecord]]


@click.command(cls=Tool)
@client_options(old_config="--consumer.config", wording=_WORDING)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    required=True,
    help="The topic to read. REQUIRED.",
)
@click.option(
    "--group-id",
    shell_complete=name_completion.groups,
    required=True,
    help="The group to be in. REQUIRED.",
)
@click.option(
    "--group-protocol",
    type=click.Choice(["classic", "consumer"], case_sensitive=False),
    default="classic",
    show_default=True,
)
@click.option("--group-remote-assignor", help="With the consumer protocol: the group's assignor.")
@click.option("--group-instance-id", help="The name of a static member.")
@click.option("--max-messages", type=int, default=-1, help="How many; for ever without it.")
@click.option("--session-timeout", type=int, help="session.timeout.ms.")
@click.option("--verbose", is_flag=True, help="Print every record.")
@click.option("--enable-autocommit", is_flag=True, help="Commit now and then, not every time.")
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    show_default=True,
)
@click.option(
    "--assignment-strategy",
    default="range",
    show_default=True,
    help="With the classic protocol: range, roundrobin, sticky, … or Kafka's class.",
)
def verifiable_consumer(
    server: Server, topic: str, max_messages: int, verbose: bool, **options: Any
) -> None:
    """Read a topic; print a line of JSON for each thing that happens.

    SIGTERM ends it in order.
    """
    commits = not options["enable_autocommit"]
    session = _Session(max_messages, is_verbose=verbose, commits=commits)
    settings = client_settings(server, DEFINITIONS) | _settings(options)
    run_until_stopped(_consume(settings, topic, session))


def _settings(options: Mapping[str, Any]) -> dict[str, str]:
    settings = {
        "group.id": options["group_id"],
        "group.protocol": options["group_protocol"],
        "enable.auto.commit": str(options["enable_autocommit"]).lower(),
        "auto.offset.reset": options["reset_policy"],
    }
    if options["group_protocol"] == "classic":
        names = options["assignment_strategy"].split(",")
        settings["partition.assignment.strategy"] = ",".join(map(assignor_name, names))
    elif options["group_remote_assignor"] is not None:
        settings["group.remote.assignor"] = options["group_remote_assignor"]
    if options["session_timeout"] is not None:
        settings["session.timeout.ms"] = str(options["session_timeout"])
    if options["group_instance_id"] is not None:
        settings["group.instance.id"] = options["group_instance_id"]
    return settings


async def _consume(settings: dict[str, str], topic: str, session: "_Session") -> None:
    try:
        async with Consumer(settings=as_settings(settings)) as consumer:
            print_event("startup_complete")
            consumer.subscribe([topic], _Events())
            try:
                await session.run(consumer)
            except asyncio.CancelledError:
                print_event("shutdown_requested")
                raise
    finally:
        print_event("shutdown_complete")


class _Events(RebalanceListener):
    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        print_event("partitions_assigned", partitions=_places(partitions))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        print_event("partitions_revoked", partitions=_places(partitions))


def _places(partitions: Collection[TopicPartition]) -> list[dict[str, Any]]:
    return [_place(each) for each in sorted(partitions)]


def _place(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}


class _Session:
    def __init__(self, records_max: int, *, is_verbose: bool, commits: bool) -> None:
        self._records_max = records_max
        self._is_verbose = is_verbose
        self._commits = commits
        self._count = 0

    async def run(self, consumer: Consumer) -> None:
        while self._records_max < 0 or self._count < self._records_max:
            left = None if self._records_max < 0 else self._records_max - self._count
            shares = await consumer.poll(max_records=left)
            offsets = self._tell(shares)
            if self._commits:
                await self._commit(consumer, offsets)

    def _tell(self, shares: Shares) -> dict[TopicPartition, OffsetAndMetadata]:
        if self._is_verbose:
            for records in shares.values():
                for record in records:
                    _tell_record(record)
        count = sum(map(len, shares.values()))
        self._count += count
        summaries = [
            _place(partition)
            | {
                "count": len(records),
                "minOffset": records[0].offset,
                "maxOffset": records[-1].offset,
            }
            for partition, records in shares.items()
        ]
        print_event("records_consumed", count=count, partitions=summaries)
        return {each: OffsetAndMetadata(share[-1].offset + 1) for each, share in shares.items()}

    async def _commit(
        self, consumer: Consumer, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        shown = [_place(each) | {"offset": at.offset} for each, at in offsets.items()]
        try:
            await consumer.commit(offsets)
        except FencedError:
            raise
        except KafkaError as error:
            print_event("offsets_committed", offsets=shown, error=reason(error), success=False)
        else:
            print_event("offsets_committed", offsets=shown, success=True)


def _tell_record(record: ConsumerRecord) -> None:
    key, value = (None if each is None else text_of(each) for each in (record.key, record.value))
    print_event(
        "record_data", key=key, value=value, **_place(record.topic_partition), offset=record.offset
    )
