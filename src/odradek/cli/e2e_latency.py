"""``odradek e2e-latency``: how long a record takes from a producer to a consumer."""

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Final, NamedTuple, TypeVar

import click

from odradek.cli import name_completion
from odradek.cli.client_options import Wording, client_options
from odradek.cli.producer_stats import percentiles
from odradek.cli.running import run_until_stopped
from odradek.cli.tool_options import Server, Tool, ToolError, refuse
from odradek.client.admin.admin import SETTINGS as ADMIN_SETTINGS
from odradek.client.admin.admin import Admin
from odradek.client.admin.topics import NewTopic
from odradek.client.consumer import Consumer, ConsumerRecord
from odradek.client.consumer.settings import DEFINITIONS as CONSUMER_SETTINGS
from odradek.client.producer import Producer
from odradek.client.producer.settings import DEFINITIONS as PRODUCER_SETTINGS
from odradek.client.settings import as_settings
from odradek.storage.dump.java_text import java_double

_POLL_MS: Final = 60_000
_REPORT_EVERY: Final = 1000
_RECORDS_MAX: Final = 2**31 - 1
_BLOCK_MS: Final = 2**31 - 1
_NAMES: Final = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")
_WORDING: Final = Wording("", "")

Headers = list[tuple[str, bytes | None]]
F = TypeVar("F", bound=Callable[..., object])


class LatencyTool(Tool):
    """Takes its arguments without names too, as it did before Kafka 4.2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or any(each.startswith("--") for each in args):
            return super().parse_args(ctx, args)
        if len(args) not in (len(_NAMES), len(_NAMES) + 1):
            refuse(
                ctx,
                f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got"
                f" {len(args)}. Usage: {' '.join(_NAMES)} [optional] command-config",
            )
        click.echo(
            "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka"
            " 5.0. Please use named arguments instead: --bootstrap-server, --topic, --num-records,"
            " --producer-acks, --record-size, --command-config"
        )
        named = zip((*_NAMES, "command-config"), args, strict=False)
        return super().parse_args(ctx, [each for n, v in named for each in (f"--{n}", v)])


class Shape(NamedTuple):
    """How many bytes each part of a record has; a header value of -1 is null."""

    value: int
    key: int
    headers: int
    header_key: int
    header_value: int


def _size(name: str, help_text: str, least: int = 0) -> Callable[[F], F]:
    return click.option(
        f"--{name}", type=click.IntRange(least), default=0, show_default=True, help=help_text
    )


@click.command(cls=LatencyTool)
@client_options(wording=_WORDING)
@click.option(
    "--topic",
    shell_complete=name_completion.topics,
    required=True,
    help="The topic for this; made if it is not there.",
)
@click.option("--num-records", type=click.IntRange(1, _RECORDS_MAX), required=True)
@click.option("--producer-acks", type=click.Choice(["1", "all"]), required=True)
@click.option("--record-size", type=click.IntRange(0), required=True, help="Bytes of a value.")
@_size("record-key-size", "Bytes of a key.")
@_size("num-headers", "How many headers.")
@_size("record-header-key-size", "Bytes of a header's key.")
@_size("record-header-size", "Bytes of a header's value; -1: null.", -1)
def e2e_latency(
    server: Server, topic: str, num_records: int, producer_acks: str, record_size: int, **sizes: int
) -> None:
    """Send records one by one, read each, and report how long that took."""
    shape = Shape(
        record_size,
        sizes["record_key_size"],
        sizes["num_headers"],
        sizes["record_header_key_size"],
        sizes["record_header_size"],
    )
    run_until_stopped(_measure(server, topic, num_records, producer_acks, shape))


async def _measure(server: Server, topic: str, records: int, acks: str, shape: Shape) -> None:
    known = {**ADMIN_SETTINGS, **CONSUMER_SETTINGS, **PRODUCER_SETTINGS}
    settings = server.known(known)
    await _ensure_topic(_for(settings, ADMIN_SETTINGS), topic)
    # No waiting for others to go with: neither on the way in nor on the way out.
    reads = _for(settings, CONSUMER_SETTINGS) | {
        "group.id": f"test-group-{time.time_ns() // 1_000_000}",
        "enable.auto.commit": "false",
        "auto.offset.reset": "latest",
        "fetch.max.wait.ms": "0",
    }
    sends = _for(settings, PRODUCER_SETTINGS) | {
        "linger.ms": "0",
        "max.block.ms": str(_BLOCK_MS),
        "acks": acks,
    }
    async with (
        Consumer(settings=as_settings(reads)) as consumer,
        Producer(as_settings(sends)) as producer,
    ):
        partitions = await consumer.partitions_for(topic)
        consumer.assign(partitions)
        consumer.seek_to_end()
        for partition in partitions:
            await consumer.position(partition)
        await _run(producer, consumer, topic, records, shape)


def _for(settings: Mapping[str, str], known: Mapping[str, object]) -> dict[str, str]:
    return {name: value for name, value in settings.items() if name in known}


async def _ensure_topic(settings: dict[str, str], topic: str) -> None:
    async with Admin(as_settings(settings)) as admin:
        if topic in {each.name for each in await admin.list_topics(include_internal=True)}:
            return
        click.echo(
            f'Topic "{topic}" does not exist.'
            " Will create topic with 1 partition(s) and replication factor = 1"
        )
        results = await admin.create_topics([NewTopic(topic, partitions=1, replication_factor=1)])
        if results[topic].error is not None:
            click.echo(f"Creation of topic {topic} failed")
        results.unwrap()


async def _run(
    producer: Producer, consumer: Consumer, topic: str, records: int, shape: Shape
) -> None:
    random = Random(0)  # noqa: S311  # the same load every time
    total_ns, latencies_ms = 0, []
    for index in range(records):
        key, value = _letters(random, shape.key), _letters(random, shape.value)
        headers = _headers(random, shape)
        start_ns = time.monotonic_ns()
        await (await producer.send(topic, value, key, headers=headers))
        polled = await consumer.poll(_POLL_MS / 1000)
        elapsed_ns = time.monotonic_ns() - start_ns
        _check([each for share in polled.values() for each in share], key, value, headers)
        if index % _REPORT_EVERY == 0:
            click.echo(f"{index}\t{java_double(elapsed_ns / 1000 / 1000)}")
        total_ns += elapsed_ns
        latencies_ms.append(elapsed_ns // 1_000_000)
    click.echo(f"Avg latency: {total_ns / records / 1_000_000:.4f} ms")
    p50, p99, p999 = percentiles(latencies_ms, (0.5, 0.99, 0.999))
    click.echo(f"Percentiles: 50th = {p50}, 99th = {p99}, 99.9th = {p999}")


def _letters(random: Random, size: int) -> bytes:
    return bytes([random.randrange(26) + 65]) * size


def _headers(random: Random, shape: Shape) -> Headers:
    return [
        (
            _letters(random, shape.header_key).decode(),
            None if shape.header_value < 0 else _letters(random, shape.header_value),
        )
        for _ in range(shape.headers)
    ]


def _check(records: list[ConsumerRecord], key: bytes, value: bytes, headers: Headers) -> None:
    """See that what was read is what was sent.

    Raises:
        ToolError: It is not; somebody else uses the topic, or something is very wrong.
    """
    if not records:
        raise ToolError(f"poll() timed out before finding a result (timeout:[{_POLL_MS}ms])")
    read = records[0]
    for name, got, sent in (("value", read.value, value), ("key", read.key, key)):
        if got != sent:
            shown = "null" if got is None else got.decode("utf-8", "replace")
            raise ToolError(
                f"The message {name} read [{shown}] did not match the message {name} sent"
                f" [{sent.decode()}]"
            )
    if list(read.headers) != headers:
        raise ToolError("The message headers read did not match the message headers sent")
    if len(records) != 1:
        raise ToolError(f"Only one result was expected during this test. We found [{len(records)}]")
