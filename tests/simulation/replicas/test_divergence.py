"""Logs that part when a leader is cut off come together again, without what was never committed."""

from contextlib import ExitStack
from typing import Any

import pytest

from odradek.client.errors import KafkaError
from odradek.storage.log import Log
from odradek.storage.scan import iter_batches
from tests.simulation.replicas.three_nodes import IDS, ThreeNodes, three_nodes

NO_TIME: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 1_500}


def batches(log: Log) -> list[tuple[int, int, int]]:
    """Return base offset, leader epoch and checksum of each batch."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        for header in iter_batches(log.read(offset, bytes_max=1 << 20).records):
            found.append((header.base_offset, header.partition_leader_epoch, header.crc))
            offset = header.next_offset
    return found


def are_equal(nodes: ThreeNodes) -> bool:
    found = [batches(nodes.replica(each).log) for each in IDS]
    return found[0] == found[1] == found[2]


def isolate(nodes: ThreeNodes, stack: ExitStack, node_id: int) -> None:
    """Cut a node off from the others; clients reach it still."""
    for other in IDS:
        if other != node_id:
            stack.enter_context(nodes.cut(node_id, other))
            stack.enter_context(nodes.cut(other, node_id))


@pytest.mark.seed_row("3.5")
def test_a_leader_that_is_cut_off_gives_up_what_it_alone_has() -> None:
    with three_nodes(min_insync_replicas="2") as nodes:
        nodes.run(nodes.send(b"a", b"b", acks="all"))
        with ExitStack() as cuts:
            isolate(nodes, cuts, 1)
            nodes.run(nodes.send(b"only here", acks=1, servers=[1]))
            with pytest.raises(KafkaError):
                nodes.run(nodes.send(b"in doubt", acks="all", servers=[1], **NO_TIME))
            alone = nodes.replica(1).log
            assert alone.log_end_offset > alone.high_watermark == 2
            nodes.wait_until(lambda: nodes.replica(2).is_leader or nodes.replica(3).is_leader)
            nodes.run(nodes.send(b"c", b"d", b"e", acks="all", servers=[2, 3]))
        nodes.wait_until(lambda: nodes.isr() == set(IDS))
        nodes.wait_until(lambda: are_equal(nodes))
        assert nodes.replica(1).log.log_end_offset == 5


def test_logs_are_equal_after_two_elections_in_which_nothing_was_written() -> None:
    with three_nodes() as nodes:
        nodes.run(nodes.send(b"a", acks="all"))
        for _ in range(2):
            leader = nodes.leader()
            nodes.machines[leader].kill()
            nodes.wait_until(lambda gone=leader: nodes.leader() not in (-1, gone))  # type: ignore[misc]
            nodes.machines[leader].start()
            nodes.wait_until(lambda: nodes.isr() == set(IDS))
        nodes.run(nodes.send(b"b", acks="all"))
        nodes.wait_until(lambda: are_equal(nodes))


@pytest.mark.seed_row("3.2")
def test_reads_end_at_the_high_watermark_while_a_follower_stands_still() -> None:
    with three_nodes(broker_session_timeout_ms="60000") as nodes:
        nodes.run(nodes.send(b"a", acks="all"))
        with nodes.cut(nodes.bystander, 1):
            nodes.run(nodes.send(b"b", acks=1))
            assert nodes.replica(1).log.log_end_offset == 2
            assert nodes.run(nodes.read_all()) == [b"a"]
        nodes.wait_until(lambda: nodes.replica(1).log.high_watermark == 2)
        assert nodes.run(nodes.read_all()) == [b"a", b"b"]
