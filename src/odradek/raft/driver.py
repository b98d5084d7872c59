"""Carries out what a ``RaftNode`` wants: the one driver, of real nodes and of the simulation.

The driver owns the order of things (see ``ready``) and the rules about flushing; the disk, the
network, timers and the state machine on top are ports. It has no loop of its own: messages, timers
and finished flushes call it, and it returns when there is nothing left to do.

A port may call the driver back while a Ready is carried out (a new leader appends at once, say).
What follows from that waits until the Ready is done with.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, assert_never

from odradek.raft.hard_state import HardState
from odradek.raft.messages import Message, OffsetAndEpoch, Request, Response
from odradek.raft.node import RaftNode
from odradek.raft.ready import (
    AppendFetched,
    AppendLeaderChange,
    AppendVoters,
    FetchRead,
    LogInstruction,
    Ready,
    RoleEvent,
    SnapshotRead,
    StoreSnapshotPiece,
    Truncate,
)
from odradek.raft.voters import VoterSet

AppendedVoters = tuple[int, VoterSet]
"""An offset, and the voters that the record there names."""


class DriverPorts(Protocol):
    # The disk.

    def persist(self, state: HardState) -> None:
        """Write the hard state; return when it is on disk."""

    def truncate(self, offset: int) -> None: ...

    def append_fetched(self, records: object) -> Iterable[AppendedVoters]:
        """Append what a leader sent; nothing at all if it is damaged or there is no space.

        The node then waits a moment before it fetches again.
        """

    def append_leader_change(self, change: AppendLeaderChange) -> Iterable[AppendedVoters]:
        """Append the first record of a leader; nothing if there is no space for it."""

    def append_voters(self, change: AppendVoters) -> Iterable[AppendedVoters]:
        """Append a record that names the voters; nothing if there is no space for it."""

    def flush(self, then: Callable[[int], None]) -> None:
        """Flush all that is appended now; then call back with the offset up to which it is."""

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> bool:
        """Write a piece of an unfinished snapshot; return False if there is no space for it."""

    def install_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        then: Callable[[VoterSet | None], None],
        refused: Callable[[], None],
    ) -> None:
        """Finish the file, let the log begin anew behind it, call back with its voters.

        Or throw it away if it is damaged, and call ``refused``.
        """

    # The network.

    def send(self, target: int, request: Request) -> None:
        """Send a request; its response comes to ``step``, its loss to ``on_send_failed``."""

    def reply(self, response: Response) -> None: ...

    def reply_with_records(self, read: FetchRead) -> None: ...

    def reply_with_piece(self, read: SnapshotRead) -> None: ...

    # Time, and the state machine on top.

    def monotonic_ms(self) -> int: ...

    def wake_at(self, deadline_ms: int) -> None:
        """Call ``tick`` then; replaces the time that was asked for before."""

    def on_event(self, event: RoleEvent) -> None: ...

    def on_high_watermark(self, offset: int) -> None: ...


class RaftDriver:
    def __init__(self, node: RaftNode, ports: DriverPorts) -> None:
        self.node = node
        self._ports = ports
        self._is_carrying_out = False
        self._is_flushing = False
        self._truncations = 0
        self._wakes_at_ms: int | None = None

    def start(self) -> None:
        """Do what the node wants at its start; call it once, before anything else."""
        self._carry_out()

    def step(self, message: Message) -> None:
        self.node.step(message, self._ports.monotonic_ms())
        self._carry_out()

    def on_send_failed(self, target: int, correlation_id: int) -> None:
        self.node.on_send_failed(target, correlation_id, self._ports.monotonic_ms())
        self._carry_out()

    def tick(self) -> None:
        self._wakes_at_ms = None
        self.node.tick(self._ports.monotonic_ms())
        self._carry_out()

    def on_appended(self, voters: Iterable[AppendedVoters] = (), *, is_no_op: bool = False) -> None:
        """Say that the owner appended to the log, which it may do only while the node leads."""
        assert self.node.is_leader
        self._note_voters(voters)
        self.node.on_appended(self._ports.monotonic_ms(), is_no_op=is_no_op)
        self._carry_out()

    def resign(self) -> None:
        self.node.resign(self._ports.monotonic_ms())
        self._carry_out()

    def _carry_out(self) -> None:
        if self._is_carrying_out:
            return  # whoever does takes what is new, too
        self._is_carrying_out = True
        try:
            while not (ready := self.node.take_ready()).is_empty:
                self._carry_out_one(ready)
        finally:
            self._is_carrying_out = False
        self._flush_soon()
        self._wake_in_time()

    def _carry_out_one(self, ready: Ready) -> None:
        # The order is the safety argument: see odradek.raft.ready.
        ports = self._ports
        if ready.hard_state is not None:
            ports.persist(ready.hard_state)
        if ready.log_instruction is not None:
            self._change_log(ready.log_instruction)
        for event in ready.events:
            ports.on_event(event)
        if ready.high_watermark is not None:
            ports.on_high_watermark(ready.high_watermark)
        for read in ready.reads:
            ports.reply_with_records(read)
        for snapshot_read in ready.snapshot_reads:
            ports.reply_with_piece(snapshot_read)
        for response in ready.replies:
            ports.reply(response)
        for target, request in ready.requests:
            ports.send(target, request)

    def _change_log(self, instruction: LogInstruction) -> None:
        match instruction:
            case Truncate(offset=offset):
                self._truncations += 1
                self._ports.truncate(offset)
                self.node.on_truncated(self._ports.monotonic_ms())
            case AppendFetched(records=records):
                self._append_fetched(records)
            case AppendLeaderChange() as change:
                self._append_leader_change(change)
            case AppendVoters() as change:
                self._append_voters(change)
            case StoreSnapshotPiece() as piece:
                if not self._ports.store_piece(piece.snapshot_id, piece.position, piece.data):
                    self.node.on_snapshot_refused(self._ports.monotonic_ms())
                elif piece.is_last:
                    self._install(piece.snapshot_id)
            case _ as unreachable:
                assert_never(unreachable)

    def _append_fetched(self, records: object) -> None:
        before = self.node.log_end_offset
        self._note_voters(self._ports.append_fetched(records))
        now_ms = self._ports.monotonic_ms()
        if self.node.log_end_offset > before:
            self.node.on_appended(now_ms)
        else:
            self.node.on_append_refused(now_ms)

    def _append_leader_change(self, change: AppendLeaderChange) -> None:
        before = self.node.log_end_offset
        self._note_voters(self._ports.append_leader_change(change))
        now_ms = self._ports.monotonic_ms()
        if self.node.log_end_offset > before:
            self.node.on_appended(now_ms)
        else:
            self.node.resign(now_ms)

    def _append_voters(self, change: AppendVoters) -> None:
        appended = list(self._ports.append_voters(change))
        self._note_voters(appended)
        now_ms = self._ports.monotonic_ms()
        if appended:
            self.node.on_appended(now_ms)
        else:
            self.node.on_voters_refused(now_ms)

    def _install(self, snapshot_id: OffsetAndEpoch) -> None:
        def refused() -> None:
            self.node.on_snapshot_refused(self._ports.monotonic_ms())
            self._carry_out()

        def installed(voters: VoterSet | None) -> None:
            self._truncations += 1
            self.node.on_snapshot_installed(snapshot_id, voters, self._ports.monotonic_ms())
            self._carry_out()

        self._ports.install_snapshot(snapshot_id, installed, refused)

    def _note_voters(self, appended: Iterable[AppendedVoters]) -> None:
        for offset, voters in appended:
            self.node.on_voters_appended(offset, voters, self._ports.monotonic_ms())

    def _flush_soon(self) -> None:
        """Keep one flush under way as long as something is not on disk: many appends share it."""
        if self._is_flushing or not self.node.has_unflushed:
            return
        self._is_flushing = True
        truncations = self._truncations

        def flushed(offset: int) -> None:
            self._is_flushing = False
            if truncations == self._truncations:  # else it flushed what is gone now
                self.node.on_flushed(offset, self._ports.monotonic_ms())
            self._carry_out()

        self._ports.flush(flushed)

    def _wake_in_time(self) -> None:
        """Ask for a tick when the node needs one.

        A timer that is early costs one tick for nothing; so one is not put off for each message.
        """
        deadline_ms = self.node.next_deadline_ms()
        if deadline_ms is None:
            return
        if self._wakes_at_ms is None or deadline_ms < self._wakes_at_ms:
            self._wakes_at_ms = deadline_ms
            self._ports.wake_at(deadline_ms)
