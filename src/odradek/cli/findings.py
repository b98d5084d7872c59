"""A thing that is wrong with a cluster, as one sentence: its cause, and the next step as a command.

What the sentences have in common: how they name nodes and partitions, and the commands in them.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from odradek.core.ids import TopicPartition

NAMED_MAX: Final = 3
"""Partitions that are named where there are more of a kind."""
_MS_PER_SECOND: Final = 1_000
_SECONDS_PER_MINUTE: Final = 60
_SECONDS_SHOWN_MAX: Final = 120


class State(StrEnum):
    """What is wrong, as ``--json`` names it."""

    NO_QUORUM = "noQuorum"
    VOTER_LOST = "voterLost"
    METADATA_LAG = "metadataLag"
    NO_LEADER = "noLeader"
    UNDER_MIN_ISR = "underMinIsr"
    CATCHING_UP = "catchingUp"
    NODE_DOWN = "nodeDown"
    NODE_PAUSED = "nodePaused"
    NODE_SILENT = "nodeSilent"
    NODE_FENCED = "nodeFenced"
    OLD_SESSION = "oldSession"
    MOVING = "moving"
    FLAPPING = "flapping"


class Finding(NamedTuple):
    state: State
    sentence: str
    partitions: tuple[TopicPartition, ...] = ()
    nodes: tuple[int, ...] = ()


class Commands(NamedTuple):
    """The commands for a cluster: how brokers are reached, and the folder of a local one."""

    servers: str = "HOST:PORT"
    dir_argument: str | None = None
    """What commands of ``odradek local`` need after them; None if it is no local cluster."""

    def local(self, words: str) -> str | None:
        """Return a command of ``odradek local``, if there is a local cluster."""
        if self.dir_argument is None:
            return None
        return f"`odradek local {words}{self.dir_argument}`"

    def tool(self, words: str) -> str:
        """Return a command of a tool; its words begin with the name of the tool."""
        name, _, options = words.partition(" ")
        return f"`odradek {name} --bootstrap-server {self.servers} {options}`"

    def start(self, node: int) -> str:
        """Return how a node is started, as the end of a sentence."""
        command = self.local(f"restart {node}")
        return "start it" if command is None else f"{command} starts it"

    def log(self, node: int) -> str:
        """Return where the log of a node is to be found."""
        command = self.local(f"logs {node}")
        return "its log" if command is None else f"its log ({command})"


def node_names(nodes: Iterable[int], last: str = "and") -> str:
    ids = [str(each) for each in sorted(nodes)]
    if len(ids) == 1:
        return f"node {ids[0]}"
    return f"nodes {', '.join(ids[:-1])} {last} {ids[-1]}"


def partition_names(partitions: Iterable[TopicPartition]) -> str:
    names = [str(each) for each in sorted(partitions)]
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more


def verb(things: Sequence[object], one: str, many: str) -> str:
    return one if len(things) == 1 else many


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def duration(ms: int) -> str:
    """Return how long something took, as people say it."""
    seconds = ms // _MS_PER_SECOND
    if seconds < _SECONDS_SHOWN_MAX:
        return f"{seconds} s"
    return f"{seconds // _SECONDS_PER_MINUTE} min"
