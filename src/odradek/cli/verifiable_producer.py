"""``odradek verifiable-producer``: sends numbers and tells, in JSON, what became of each."""

import asyncio
import time
from functools import partial
from typing import Final, NamedTuple

import click

from odradek.cli import name_completion
from odradek.cli.client_options import Wording, client_options, client_settings
from odradek.cli.json_events import print_event
from odradek.cli.running import run_until_stopped
from odradek.cli.throttle import Throttle
from odradek.cli.tool_options import Server, Tool, reason
from odradek.client.errors import KafkaError
from odradek.client.producer import Producer, RecordMetadata
from odradek.client.producer.settings import DEFINITIONS
from odradek.client.settings import as_settings

_WORDING: Final = Wording(
    "Option {old} has been deprecated and will be removed in a future version. Use {new} instead.",
    "Options {old} and {new} are mutually exclusive.",
)


class Numbers(NamedTuple):
    """What is sent: numbers from 0 on."""

    topic: str
    records_max: int
    throughput: int
    value_prefix: int | None
    repeating_keys: int | None
    create_time_ms: int | None

    def value(self, index: int) -> str:
        return str(index) if self.value_prefix is None else f"{self.value_prefix}.{index}"

    def key(self, index: int) -> str | None:
        return None if self.repeating_keys is None else str(index % self.repeating_keys)


@click.command(cls=Tool)
@client_options(old_config="--producer.config", wording=_WORDING)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    required=True,
    help="The topic to send to. REQUIRED.",
)
@click.option("--max-messages", type=int, default=-1, help="How many; for ever without it.")
@click.option("--throughput", type=int, default=-1, help="Records a second; -1: no limit.")
@click.option("--acks", type=click.Choice(["0", "1", "-1"]), default="-1", show_default=True)
@click.option("--message-create-time", type=int, default=-1, help="Timestamp of the first one.")
@click.option("--value-prefix", type=int, help="A number before each value, and a dot.")
@click.option("--repeating-keys", type=click.IntRange(1), help="Keys from 0 to this, again and on.")
def verifiable_producer(
    server: Server,
    topic: str,
    max_messages: int,
    throughput: int,
    acks: str,
    message_create_time: int,
    value_prefix: int | None,
    repeating_keys: int | None,
) -> None:
    """Send increasing numbers; print a line of JSON for each one delivered or lost.

    A record is tried once. SIGTERM ends it in order.
    """
    settings = {"acks": acks, "retries": "0", **client_settings(server, DEFINITIONS)}
    create_time_ms = None if message_create_time == -1 else message_create_time
    numbers = Numbers(topic, max_messages, throughput, value_prefix, repeating_keys, create_time_ms)
    run_until_stopped(_produce(settings, numbers))


async def _produce(settings: dict[str, str], numbers: Numbers) -> None:
    counts = _Counts(numbers.topic)
    start = time.monotonic()
    try:
        async with Producer(as_settings(settings)) as producer:
            print_event("startup_complete")
            await _send_all(producer, numbers, counts)
    finally:
        print_event("shutdown_complete")
        elapsed = max(time.monotonic() - start, 1e-3)
        print_event(
            "tool_data",
            sent=counts.sent,
            acked=counts.acked,
            target_throughput=numbers.throughput,
            avg_throughput=counts.acked / elapsed,
        )


async def _send_all(producer: Producer, numbers: Numbers, counts: "_Counts") -> None:
    throttle = Throttle(numbers.throughput)
    start_ms = time.time_ns() // 1_000_000
    timestamp = numbers.create_time_ms
    index = 0
    while numbers.records_max < 0 or index < numbers.records_max:
        key, value = numbers.key(index), numbers.value(index)
        counts.sent += 1
        try:
            sent = await producer.send(
                numbers.topic,
                value.encode(),
                None if key is None else key.encode(),
                timestamp=timestamp,
            )
        except KafkaError as error:
            counts.on_error(key, value, error)
        else:
            sent.add_done_callback(partial(counts.on_done, key, value))
        if timestamp is not None:
            timestamp += time.time_ns() // 1_000_000 - start_ms
        index += 1
        await throttle.wait(index)


class _Counts:
    def __init__(self, topic: str) -> None:
        self._topic = topic
        self.sent = 0
        self.acked = 0

    def on_done(self, key: str | None, value: str, sent: "asyncio.Future[RecordMetadata]") -> None:
        if sent.cancelled():
            return
        error = sent.exception()
        if isinstance(error, Exception):
            self.on_error(key, value, error)
            return
        self.acked += 1
        topic, partition, offset, _ = sent.result()
        print_event(
            "producer_send_success",
            key=key,
            value=value,
            offset=offset,
            topic=topic,
            partition=partition,
        )

    def on_error(self, key: str | None, value: str, error: Exception) -> None:
        kind = type(error)
        print_event(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=f"class {kind.__module__}.{kind.__qualname__}",
            message=reason(error),
        )
