"""``odradek console-producer``: every line of stdin becomes a record.

Of Kafka's options ``--socket-buffer-size`` is taken and has no effect, and ``--line-reader`` knows
the one reader there is.
"""

import asyncio
import sys
from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli import name_completion
from odradek.cli.client_options import (
    FILE,
    Wording,
    client_options,
    client_settings,
    newer,
    raw_pairs,
)
from odradek.cli.line_reader import LineReader, LineRecord
from odradek.cli.running import run_until_stopped
from odradek.cli.standard_streams import line_batches
from odradek.cli.tool_options import Server, Tool, ToolError, load_properties, reason
from odradek.client.errors import KafkaError
from odradek.client.producer import Producer, RecordMetadata
from odradek.client.producer.settings import DEFINITIONS
from odradek.client.settings import as_settings

_READERS: Final = ("org.apache.kafka.tools.LineMessageReader", "LineMessageReader")
_WORDING: Final = Wording(
    "Warning: {old} is deprecated and will be removed in a future version. Use {new} instead.",
    "Options {new} and {old} cannot be specified together.",
)
_FAILURES_SHOWN_MAX: Final = 10
# Options, what they set, and what that is where nobody says anything: Kafka's choices.
_SETTINGS: Final = {
    "timeout": ("linger.ms", "1000"),
    "request_required_acks": ("acks", "-1"),
    "request_timeout_ms": ("request.timeout.ms", "1500"),
    "message_send_max_retries": ("retries", "3"),
    "retry_backoff_ms": ("retry.backoff.ms", "100"),
    "max_memory_bytes": ("buffer.memory", "33554432"),
    "batch_size": ("batch.size", "16384"),
    "max_partition_memory_bytes": ("batch.size", "16384"),
    "metadata_expiry_ms": ("metadata.max.age.ms", "300000"),
    "max_block_ms": ("max.block.ms", "60000"),
}


@click.command(cls=Tool)
@client_options(
    old_config="--producer.config", old_property="--producer-property", wording=_WORDING
)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    required=True,
    help="The topic to send to. REQUIRED.",
)
@click.option("--sync", is_flag=True, help="Wait for each record before the next is sent.")
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    default="none",
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd; gzip if no name follows.",
)
@click.option("--reader-property", multiple=True, metavar="NAME=VALUE", help="See above.")
@click.option("--property", "old_reader_property", multiple=True, hidden=True)
@click.option("--reader-config", type=FILE, help="A properties file with reader properties.")
@click.option("--line-reader", default=_READERS[0], hidden=True)
@click.option("--timeout", type=int, help="linger.ms; 1000 if nobody says otherwise.")
@click.option("--request-required-acks", help="acks; all.")
@click.option("--request-timeout-ms", type=int, help="request.timeout.ms; 1500.")
@click.option("--message-send-max-retries", type=int, help="retries; 3.")
@click.option("--retry-backoff-ms", type=int, help="retry.backoff.ms; 100.")
@click.option("--max-memory-bytes", type=int, help="buffer.memory; 32 MiB.")
@click.option("--batch-size", type=int, help="batch.size; 16384.")
@click.option("--max-partition-memory-bytes", type=int, hidden=True)
@click.option("--metadata-expiry-ms", type=int, help="metadata.max.age.ms; 300000.")
@click.option("--max-block-ms", type=int, help="max.block.ms; 60000.")
@click.option("--socket-buffer-size", type=int, hidden=True)
def console_producer(
    server: Server,
    topic: str,
    sync: bool,
    compression_codec: str,
    reader_property: tuple[str, ...],
    old_reader_property: tuple[str, ...],
    reader_config: Path | None,
    line_reader: str,
    **options: Any,
) -> None:
    r"""Read lines from stdin and send each as a record.

    Reader properties: parse.key=false, parse.headers=false, ignore.error=false, key.separator=TAB,
    headers.delimiter=TAB, headers.separator=, headers.key.separator=: and null.marker, a text that
    stands for null. With parse.headers and parse.key a line is h1:v1,h2:v2 TAB key TAB value.

    Exit code 1 if any record could not be delivered. (Kafka's tool logs that and exits with 0.)
    """
    if line_reader not in _READERS:
        raise click.UsageError(f"--line-reader: {line_reader} is not known, only {_READERS[0]}")
    properties = {} if reader_config is None else load_properties(reader_config)
    pairs = newer(
        ("--reader-property", reader_property), ("--property", old_reader_property), _WORDING
    )
    settings = _producer_settings(server, options) | {"compression.type": compression_codec}

    async def work() -> None:
        reader = LineReader({**properties, **raw_pairs(pairs)})
        if reader.unknown:
            unknown = ", ".join(reader.unknown)
            click.echo(f"WARN: these reader properties are not known: {unknown}", err=True)
        await produce(settings, topic, reader, is_sync=sync)

    run_until_stopped(work())


def _producer_settings(server: Server, options: Mapping[str, Any]) -> dict[str, str]:
    """Put settings together: what an option says, then what was set by name, then a default."""
    settings = client_settings(server, DEFINITIONS, client_id="console-producer")
    for option, (name, default) in _SETTINGS.items():
        if options[option] is not None:
            settings[name] = str(options[option])
        else:
            settings.setdefault(name, default)
    if options["max_partition_memory_bytes"] is not None:
        click.echo(
            "Warning: --max-partition-memory-bytes is deprecated and will be removed in"
            " Apache Kafka 5.0. Use --batch-size instead."
        )
    return settings


async def produce(
    settings: Mapping[str, str], topic: str, reader: LineReader, *, is_sync: bool
) -> None:
    """Send what comes from stdin, until its end.

    Raises:
        ToolError: A line cannot be read, or records were not delivered.
    """
    failures = _Failures(topic)
    prompt = _prompt if sys.stdin.isatty() and sys.stdout.isatty() else _no_prompt
    async with Producer(as_settings(settings)) as producer, aclosing(line_batches()) as batches:
        prompt()
        async for lines in batches:
            for line in lines:
                record = reader.read(line)
                try:
                    sent = await producer.send(
                        topic, record.value, record.key, headers=record.headers
                    )
                    if is_sync:
                        await sent
                except KafkaError as error:
                    if is_sync:
                        raise
                    failures.add(record, error)
                else:
                    sent.add_done_callback(partial(failures.on_done, record))
            prompt()
    failures.check()


def _prompt() -> None:
    click.echo(">", nl=False)


def _no_prompt() -> None:
    """Say nothing: nobody sits there."""


class _Failures:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._count = 0

    def on_done(self, record: LineRecord, sent: "asyncio.Future[RecordMetadata]") -> None:
        if not sent.cancelled() and (error := sent.exception()) is not None:
            assert isinstance(error, Exception)
            self.add(record, error)

    def add(self, record: LineRecord, error: Exception) -> None:
        self._count += 1
        if self._count > _FAILURES_SHOWN_MAX:
            return
        key, value = (
            "null" if each is None else f"{len(each)} bytes" for each in (record.key, record.value)
        )
        click.echo(
            f"Error when sending message to topic {self._topic} with key: {key}, value: {value}"
            f" with error: {reason(error)}",
            err=True,
        )

    def check(self) -> None:
        if self._count:
            raise ToolError(f"{self._count} records were not delivered")
