"""Where each planted bug is found, and by how many seeds: the thirty of the design, and more.

``docs/simulation.md`` has the same table; ``test_planted_table`` holds both against the tests.
"""

from enum import Enum
from typing import Final, NamedTuple


class Where(Enum):
    QUORUM = "storm of quorums"
    NODES = "storm of clusters"
    VOTERS = "storm of quorums whose voters change"
    DATA = "storm of clusters with data"
    MOVES = "storm of clusters whose partitions move"
    OPERATIONS = "storm of clusters under operation"
    REPLICATION = "simulation of replication alone"
    TRANSACTIONS = "simulation of transactions alone"
    STORY = "a story of its own"


class Row(NamedTuple):
    number: int
    what: str
    where: Where
    name: str
    """What the bug is called there; for stories the test."""
    seeds_max: int = 0

    def __str__(self) -> str:
        seeds = str(self.seeds_max) if self.seeds_max else "-"
        return f"| {self.number} | {self.what} | {self.where.value} | {seeds} |"


TABLE: Final = (
    Row(1, "high watermark moves on append", Where.DATA, "1 commits on append", 12),
    Row(2, "min.insync.replicas not looked at", Where.DATA, "2 commits under min ISR", 12),
    Row(3, "follower cuts at its high watermark", Where.DATA, "3 cuts at the high watermark", 12),
    Row(4, "vote not durable", Where.QUORUM, "4 a vote is not durable", 12),
    Row(4, "two votes in an epoch", Where.QUORUM, "4 two votes in an epoch", 30),
    Row(
        5,
        "joins the ISR before the epoch's start",
        Where.REPLICATION,
        "5 joins before the epoch's start",
        400,
    ),
    Row(
        6,
        "joins the ISR with an old broker epoch",
        Where.STORY,
        "replication/test_replication_stories.py::a_fetch_of_an_earlier_run_arrives",
    ),
    Row(7, "leavers do not count", Where.DATA, "7 shrinks at once", 12),
    Row(
        8,
        "older partition epochs applied",
        Where.REPLICATION,
        "8 older partition epochs applied",
        400,
    ),
    Row(9, "stale fetch answers taken", Where.REPLICATION, "9 stale answers taken", 100),
    Row(10, "consumers read to the log end", Where.DATA, "10 shows what is written", 12),
    Row(11, "controller serves before replay", Where.NODES, "11 serves before replay", 12),
    Row(12, "controller answers before commit", Where.NODES, "12 answers before commit", 12),
    Row(13, "unclean restart stays in the ELR", Where.DATA, "13 stays eligible", 60),
    Row(14, "old epochs committed by count", Where.QUORUM, "14 old epochs by count", 12),
    Row(15, "no entry for a new epoch", Where.REPLICATION, "15 no entry for a new epoch", 100),
    Row(16, "unfenced without catch-up", Where.NODES, "16 unfenced too early", 12),
    Row(17, "coordinator reads uncommitted state", Where.DATA, "17 answers uncommitted", 24),
    Row(
        18,
        "markers forgotten on failover",
        Where.TRANSACTIONS,
        "forget_markers_on_loading",
        40,
    ),
    Row(19, "producer ids given twice", Where.NODES, "19 producer ids given twice", 12),
    Row(
        20,
        "recreated topic keeps the old log",
        Where.DATA,
        "20 keeps the log of a deleted topic",
        24,
    ),
    Row(21, "voters change twice at once", Where.VOTERS, "21 two changes of voters", 18),
    Row(22, "removed leader counts itself", Where.VOTERS, "22 a removed leader counts", 12),
    Row(
        23,
        "leader's high watermark taken as it is",
        Where.DATA,
        "23 takes the leader's high watermark",
        12,
    ),
    Row(
        24,
        "failed fetches count (KAFKA-8400)",
        Where.REPLICATION,
        "24 failed fetches count",
        400,
    ),
    Row(25, "uncommitted state kept", Where.NODES, "25 keeps uncommitted state", 24),
    Row(26, "leader epoch kept when a move ends", Where.MOVES, "26 keeps the epoch", 6),
    Row(27, "fetches before a flush", Where.REPLICATION, "27 fetches before a flush", 400),
    Row(28, "log kept under a snapshot", Where.QUORUM, "28 log kept under a snapshot", 12),
    Row(29, "heartbeats count when processed", Where.NODES, "29 heartbeats count late", 12),
    Row(30, "no full truncation", Where.REPLICATION, "30 no full truncation", 100),
    Row(31, "a move ends too early", Where.MOVES, "31 completes too early", 6),
    Row(
        32,
        "change of voters answered before it is committed",
        Where.VOTERS,
        "32 a change is answered too early",
        12,
    ),
    Row(
        33, "new endpoints of a voter forgotten", Where.VOTERS, "33 new endpoints are forgotten", 24
    ),
    Row(
        34,
        "added replicas are in sync from the start",
        Where.MOVES,
        "34 added replicas are in sync",
        6,
    ),
    Row(
        35,
        "preferred leader elected out of sync",
        Where.OPERATIONS,
        "35 prefers whoever is alive",
        12,
    ),
    Row(
        36,
        "moved log used before all is copied",
        Where.OPERATIONS,
        "36 swaps before all is copied",
        12,
    ),
)
