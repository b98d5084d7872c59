"""What a node wants done, in the order in which it must be done.

1. ``hard_state``: write ``quorum-state`` and fsync. A vote that a peer hears of before it is on
   disk can be given twice.
2. ``log_instruction``: at most one. Done before the node hears of anything else, because it decides
   by what the log says.
3. ``events``, ``high_watermark``: news for the state machines on top of the log.
4. ``reads``, ``snapshot_reads``, ``replies`` and ``requests``: for each read, take bytes from the
   log (flushed or not) or the snapshot, put them into the response, send it. Only now may others
   learn what this node decided.

A reply goes to where its request came from: its correlation id is the token that the driver had put
into the request. A request goes to a peer by id; negative ids are bootstrap servers.

Flushing is no instruction: what was appended should be flushed soon, and then ``on_flushed`` is
called. A truncation must wait for a flush under way, or the flush's result be thrown away.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from odradek.raft.hard_state import HardState
from odradek.raft.messages import (
    FetchResponse,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    Request,
    Response,
)
from odradek.raft.voters import VoterSet


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log so that it ends at ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class AppendFetched:
    """Append what the leader sent, offsets and epochs as they are; then flush.

    If voters are among it, call ``on_voters_appended``.
    """

    records: object


@dataclass(frozen=True, slots=True)
class StoreSnapshotPiece:
    """Write ``data`` into the unfinished file of a snapshot; at position 0 begin it anew.

    After the last piece: sync and rename the file, let the log begin anew at the snapshot's end,
    call ``on_snapshot_installed``. That may take time; nothing is fetched meanwhile.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    data: bytes
    is_last: bool


@dataclass(frozen=True, slots=True)
class AppendLeaderChange:
    """Append a LeaderChange control record in ``epoch``, call ``on_appended``; then flush.

    It is the first record of its epoch. Records of earlier epochs are not committed before it is.
    """

    epoch: int
    leader_id: int
    voter_ids: tuple[int, ...]
    granting_voter_ids: tuple[int, ...]
    voters: VoterSet | None = None
    """What to name as the voters in the same batch, as the log has this leader otherwise."""


@dataclass(frozen=True, slots=True)
class AppendVoters:
    """Append a record that names the voters in ``epoch``, call ``on_voters_appended``; then flush.

    If there is no space for it, call ``on_voters_refused``.
    """

    epoch: int
    voters: VoterSet


LogInstruction: TypeAlias = (
    Truncate | AppendFetched | AppendLeaderChange | AppendVoters | StoreSnapshotPiece
)


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
    request: Request


class FetchRead(NamedTuple):
    fetch_offset: int
    response: FetchResponse


class SnapshotRead(NamedTuple):
    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int
    response: FetchSnapshotResponse


class Ready(NamedTuple):
    hard_state: HardState | None = None
    log_instruction: LogInstruction | None = None
    events: tuple[RoleEvent, ...] = ()
    high_watermark: int | None = None
    reads: tuple[FetchRead, ...] = ()
    snapshot_reads: tuple[SnapshotRead, ...] = ()
    replies: tuple[Response, ...] = ()
    requests: tuple[Send, ...] = ()

    @property
    def is_empty(self) -> bool:
        return self == _NOTHING


_NOTHING: Final = Ready()


class Outbox:
    """Collects what goes into the next :class:`Ready`."""

    __slots__ = (
        "events",
        "hard_state",
        "high_watermark",
        "log_instruction",
        "reads",
        "replies",
        "requests",
        "snapshot_reads",
    )

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self.hard_state: HardState | None = None
        self.log_instruction: LogInstruction | None = None
        self.events: list[RoleEvent] = []
        self.high_watermark: int | None = None
        self.reads: list[FetchRead] = []
        self.snapshot_reads: list[SnapshotRead] = []
        self.replies: list[Response] = []
        self.requests: list[Send] = []

    def send(self, target: int, request: Request) -> None:
        self.requests.append(Send(target, request))

    def reply(self, response: Response) -> None:
        self.replies.append(response)

    def take(self) -> Ready:
        ready = Ready(
            self.hard_state,
            self.log_instruction,
            tuple(self.events),
            self.high_watermark,
            tuple(self.reads),
            tuple(self.snapshot_reads),
            tuple(self.replies),
            tuple(self.requests),
        )
        if ready.is_empty:
            return _NOTHING
        self._clear()
        return ready
