"""What a node wants done, in the order in which it must be done.

1. ``hard_state``: write ``quorum-state`` and fsync. A vote that a peer hears of before it is on
   disk can be given twice.
2. ``log_instruction``: at most one. Done before the node hears of anything else, because it decides
   by what the log says.
3. ``events``, ``high_watermark``: news for the state machines on top of the log.
4. ``reads`` and ``messages``: for each read, take records from the log (flushed or not), put them
   into the response, send it. Only now may others learn what this node decided.

Flushing is no instruction: what was appended should be flushed soon, and then ``on_flushed`` is
called. A truncation must wait for a flush under way, or the flush's result be thrown away.
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from odradek.raft.hard_state import HardState
from odradek.raft.messages import FetchResponse, Message


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log so that it ends at ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append what the leader sent, offsets and epochs as they are; then flush."""

    records: object


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append a LeaderChange control record in ``epoch``, call ``on_appended``; then flush.

    It is the first record of its epoch. Records of earlier epochs are not committed before it is.
    """

    epoch: int
    leader_id: int
    voter_ids: tuple[int, ...]
    granting_voter_ids: tuple[int, ...]


LogInstruction: TypeAlias = Truncate | AppendFetched | AppendLeaderChange


@dataclass(frozen=True, slots=True)
class BecameLeader:
    """This node may append in ``epoch``.

    What it knows of the log may be old: wait until the high watermark is past
    ``epoch_start_offset`` and all up to there is replayed before deciding anything new.
    """

    epoch: int
    epoch_start_offset: int


@dataclass(frozen=True, slots=True)
class LostLeadership:
    """Appends of ``epoch`` that are not committed may still be, or may be lost."""

    epoch: int


@dataclass(frozen=True, slots=True)
class LeaderChanged:
    """Another node leads, or none that is known."""

    epoch: int
    leader_id: int | None


RoleEvent: TypeAlias = BecameLeader | LostLeadership | LeaderChanged


class Send(NamedTuple):
    target: int
    message: Message


class FetchRead(NamedTuple):
    target: int
    fetch_offset: int
    response: FetchResponse


class Ready(NamedTuple):
    hard_state: HardState | None = None
    log_instruction: LogInstruction | None = None
    events: tuple[RoleEvent, ...] = ()
    high_watermark: int | None = None
    reads: tuple[FetchRead, ...] = ()
    messages: tuple[Send, ...] = ()


class Outbox:
    """Collects what goes into the next :class:`Ready`."""

    __slots__ = ("events", "hard_state", "high_watermark", "log_instruction", "messages", "reads")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.hard_state: HardState | None = None
        self.log_instruction: LogInstruction | None = None
        self.events: list[RoleEvent] = []
        self.high_watermark: int | None = None
        self.reads: list[FetchRead] = []
        self.messages: list[Send] = []

    def send(self, target: int, message: Message) -> None:
        self.messages.append(Send(target, message))

    def take(self) -> Ready:
        ready = Ready(
            self.hard_state,
            self.log_instruction,
            tuple(self.events),
            self.high_watermark,
            tuple(self.reads),
            tuple(self.messages),
        )
        self._clear()
        return ready
