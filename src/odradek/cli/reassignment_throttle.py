"""Limits on what moves of partitions may take of the network and of disks.

A rate is a config of every broker that takes part; which replicas it holds for is a config of their
topics. Both stay until they are cleared, which ``--verify`` does when all moves are over.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import click

from odradek.cli.reassignment_plan import Replicas, comma_separated
from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import VALUE_BYTES_MAX, ConfigResource
from odradek.client.admin.partitions import Reassignment
from odradek.client.errors import KafkaTimeoutError
from odradek.core.ids import TopicPartition

ANSWER_MS_MAX: Final = 15_000
"""A broker may have died a moment ago and still be listed: it is not waited for much longer."""
_LEADER_RATE: Final = "leader.replication.throttled.rate"
_FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
_LOG_DIRS_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
_LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
_FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


ALL_REPLICAS: Final = "*"


class Move(NamedTuple):
    """A partition that goes from brokers that have it to others."""

    sources: frozenset[int]
    destinations: frozenset[int]


def moves_with(
    under_way: Mapping[TopicPartition, Reassignment], proposed: Replicas, current: Replicas
) -> dict[TopicPartition, Move]:
    """Return all moves there will be: a plan, and beside it what goes on already."""
    moves = {
        key: Move(
            frozenset(each.replicas) - frozenset(each.adding_replicas),
            frozenset(each.adding_replicas),
        )
        for key, each in under_way.items()
    }
    for key, replicas in proposed.items():
        sources = moves[key].sources if key in moves else frozenset(current[key])
        moves[key] = Move(sources, frozenset(replicas) - sources)
    return moves


def throttled_replicas(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str]]:
    """Return the configs of topics: ``partition:broker,…`` on either side, or ``*``."""
    configs = {}
    for topic in sorted({key.topic for key in moves}):
        of_topic = {key.partition: move for key, move in moves.items() if key.topic == topic}
        configs[topic] = {
            _LEADER_REPLICAS: _pairs({n: move.sources for n, move in of_topic.items()}),
            _FOLLOWER_REPLICAS: _pairs({n: move.destinations for n, move in of_topic.items()}),
        }
    return configs


def _pairs(brokers: Mapping[int, Collection[int]]) -> str:
    """Return the replicas, or all of the topic if so many cannot be named in one config."""
    named = sorted(f"{number}:{each}" for number, ids in brokers.items() for each in ids)
    text = ",".join(named)
    return text if len(text) <= VALUE_BYTES_MAX else ALL_REPLICAS


async def limit_replication(
    admin: Admin, moves: Mapping[TopicPartition, Move], bytes_per_second: int
) -> None:
    throttled = throttled_replicas(moves)
    for name, configs in throttled.items():
        if ALL_REPLICAS in configs.values():
            problem = f"topic {name} has too many replicas to name: all that are not in sync"
            click.echo(f"Warning: {problem} are throttled.", err=True)
    topics = {ConfigResource.topic(name): each for name, each in throttled.items()}
    (await admin.alter_configs(topics)).unwrap()
    brokers = {each for move in moves.values() for each in move.sources | move.destinations}
    await _set(admin, brokers, (_LEADER_RATE, _FOLLOWER_RATE), str(bytes_per_second))
    click.echo(f"The inter-broker throttle limit was set to {bytes_per_second} B/s")


async def limit_log_dirs(admin: Admin, brokers: Collection[int], bytes_per_second: int) -> None:
    await _set(admin, brokers, (_LOG_DIRS_RATE,), str(bytes_per_second))
    click.echo(f"The replica-alter-dir throttle limit was set to {bytes_per_second} B/s")


async def clear_throttles(admin: Admin, brokers: Collection[int], topics: Sequence[str]) -> None:
    """Take all limits back: from the brokers named, from all that are there, and from topics."""
    ids = sorted((await _running(admin)).union(brokers))
    click.echo(f"Clearing broker-level throttles on broker{_s(ids)} {comma_separated(ids)}")
    await _set(admin, ids, (_LEADER_RATE, _FOLLOWER_RATE, _LOG_DIRS_RATE), None)
    click.echo(f"Clearing topic-level throttles on topic{_s(topics)} {comma_separated(topics)}")
    cleared = {_LEADER_REPLICAS: None, _FOLLOWER_REPLICAS: None}
    resources = {ConfigResource.topic(name): cleared for name in topics}
    (await admin.alter_configs(resources)).unwrap()


def _s(items: Collection[object]) -> str:
    return "" if len(items) == 1 else "s"


async def _running(admin: Admin) -> set[int]:
    return {each.node_id for each in (await admin.describe_cluster()).brokers}


async def _set(
    admin: Admin, brokers: Collection[int], names: Sequence[str], value: str | None
) -> None:
    """Change configs of brokers; only a broker itself can, so those that do not run are left out.

    Kafka's tool waits for them, and does nothing else before it gives up (KAFKA-13392).
    """
    change = dict.fromkeys(names, value)
    ids = (await _running(admin)).intersection(brokers)
    resources = {ConfigResource.broker(each): change for each in sorted(ids)}
    results = await admin.alter_configs(resources, timeout_ms=ANSWER_MS_MAX)
    for resource, result in results.items():
        if isinstance(result.error, KafkaTimeoutError):
            ids.remove(int(resource.name))
        else:
            result.unwrap()
    left_out = sorted(set(brokers).difference(ids))
    if left_out:
        do = "run --verify again" if value is None else "run --execute --additional again"
        click.echo(
            f"Warning: broker{_s(left_out)} {comma_separated(left_out)} did not answer, and"
            f" throttles there stay as they are: {do} when it is back.",
            err=True,
        )
