"""``consumer-groups --describe`` while members read: who has what, and how far each is."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.client import BlockingConsumer, BlockingProducer
from odradek.testing.broker import Broker

MEMBERS = 3
PARTITIONS = 2
ROUNDS_MAX = 1000
CONFIG = {"group.initial.rebalance.delay.ms": "0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"orders": PARTITIONS}, memory=True, config=CONFIG) as broker:
        yield broker


def described(broker: Broker, *options: str) -> str:
    server = ("--bootstrap-server", broker.bootstrap_servers)
    asked = ["consumer-groups", *server, "--describe", "--group", "readers", *options]
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    return result.stdout


def share(members: list[BlockingConsumer[Any, Any]]) -> list[int]:
    """Let members poll until each partition has a reader; return how many each of them has."""
    for _ in range(ROUNDS_MAX):
        for member in members:
            member.poll(0.1)
        held = [len(member.assignment()) for member in members]
        taken = {partition for member in members for partition in member.assignment()}
        if sum(held) == len(taken) == PARTITIONS and sorted(held) == [0, 1, 1]:
            return held
    raise AssertionError(f"members have {held} partitions")


@pytest.mark.seed_row("2.2")
def test_a_member_without_a_partition_is_shown_beside_those_that_have_one(broker: Broker) -> None:
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(PARTITIONS):
            producer.send("orders", b"x", partition=number).result(60)
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                BlockingConsumer(
                    "orders",
                    bootstrap_servers=broker.bootstrap_servers,
                    group_id="readers",
                    client_id=f"member-{number}",
                    heartbeat_interval_ms=100,
                )
            )
            for number in range(MEMBERS)
        ]
        held = share(members)
        rows = [line.split() for line in described(broker, "--members").splitlines() if line]
        assert rows[0] == ["GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
        shown = {row[3]: int(row[4]) for row in rows[1:]}
        assert shown == {f"member-{number}": count for number, count in enumerate(held)}
        (document,) = json.loads(described(broker, "--json"))
        assert len(document["members"]) == MEMBERS
        readers = [row["memberId"] for row in document["offsets"]]
        assert len(set(readers)) == len(readers) == PARTITIONS
