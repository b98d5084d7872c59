"""What a move of a partition waits for, in a sentence."""

from typing import Final

import pytest

from odradek.cli.reassignment_progress import Cluster, Copy, explain, in_bytes, waits_for
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import Reassignment
from odradek.client.admin.topics import PartitionDescription
from odradek.core.ids import TopicPartition

T: Final = TopicPartition("orders", 3)
MOVE: Final = Reassignment((4, 1, 2), (4,), (2,))


@pytest.mark.parametrize(
    ("move", "isr", "expected"),
    [
        (MOVE, (1, 2), [4]),
        (MOVE, (1, 2, 4), []),
        (MOVE, (4,), []),  # 1 is neither added nor removed
        (Reassignment((4, 5, 1), (4, 5), (1,)), (1, 5), [4]),
        (Reassignment((1, 2, 3), (), (3,)), (1, 3), [2]),
        (Reassignment((1, 2, 3), (), (3,)), (1, 2), []),
        (Reassignment((4, 1, 2, 3), (4,), (2, 3)), (2, 3, 4), [1]),
        (Reassignment((1, 2), (), (2,)), (2,), [1]),
    ],
)
def test_which_brokers_it_waits_for(
    move: Reassignment, isr: tuple[int, ...], expected: list[int]
) -> None:
    assert waits_for(move, isr) == expected


def seen(
    *,
    leader: int = 1,
    isr: tuple[int, ...] = (1, 2),
    running: tuple[int, ...] = (1, 2, 4),
    before: dict[int, Copy] | None = None,
    after: dict[int, Copy] | None = None,
    rates: dict[int, int] | None = None,
) -> Cluster:
    partition = PartitionDescription(3, leader, 0, (4, 1, 2), isr)
    ends = [
        {TopicPartitionReplica(*T, node_id): copy for node_id, copy in (each or {}).items()}
        for each in (before, after)
    ]
    return Cluster(frozenset(running), {T: partition}, ends[0], ends[1], 2.0, rates or {})


WAITS: Final = "orders-3 waits for broker 4, which"
CASES: Final[dict[str, tuple[Cluster, str]]] = {
    "down": (
        seen(running=(1, 2)),
        f"{WAITS} does not run: start it, or stop the move with --cancel",
    ),
    "leaderless": (
        seen(leader=-1),
        "orders-3 has no leader, so no replica can catch up: start one of 1, 2",
    ),
    "nothing in sync": (
        seen(leader=-1, isr=()),
        "orders-3 has no leader, so no replica can catch up: elect one with odradek"
        " leader-election",
    ),
    "in sync": (seen(isr=(1, 2, 4)), "orders-3 is about to be done"),
    "the leader is silent": (seen(), f"{WAITS} is not in sync yet"),
    "all there": (
        seen(before={1: Copy(9, 900), 4: Copy(5, 500)}, after={1: Copy(9, 900), 4: Copy(9, 900)}),
        f"{WAITS} has all records and is about to be in sync",
    ),
    "not begun": (
        seen(before={1: Copy(9, 900)}, after={1: Copy(9, 900)}),
        f"{WAITS} lacks 9 records (900 B); nothing arrived in 2 s",
    ),
    "catching up": (
        seen(
            before={1: Copy(10_000, 12_000_000_000), 4: Copy(1_000, 1_000_000_000)},
            after={1: Copy(10_000, 12_000_000_000), 4: Copy(1_010, 1_006_000_000)},
            rates={4: 3_000_000},
        ),
        f"{WAITS} lacks 8990 records (11.0 GB); 3.0 MB/s arrive;"
        " replication is throttled to 3.0 MB/s; about 30 min left",
    ),
    "never": (
        seen(
            before={1: Copy(100, 1_000), 4: Copy(50, 500)},
            after={1: Copy(120, 1_200), 4: Copy(60, 600)},
            rates={1: 500, 4: 50},
        ),
        f"{WAITS} lacks 60 records (600 B); 50 B/s arrive; replication is throttled to 50 B/s;"
        " as fast as producers write, so this does not end",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_why_it_is_not_over(case: str) -> None:
    cluster, expected = CASES[case]
    assert explain(T, MOVE, cluster) == [expected]


def test_what_is_not_there_any_more_waits_for_nothing() -> None:
    assert explain(TopicPartition("gone", 0), MOVE, seen()) == []


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (5e15, "5000.0 TB")]
)
def test_sizes(count: float, expected: str) -> None:
    assert in_bytes(count) == expected
