"""What a raft driver finds under it in a node: the disk, the wire, the loop's timers, the loader.

Implements ``odradek.raft.driver.DriverPorts``. Flushes and the end of a snapshot's download wait on
worker threads; all else happens on the loop.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, cast

from odradek.core.clock import Clock
from odradek.core.errors import CorruptionError
from odradek.core.event import Event
from odradek.core.slices import Handle
from odradek.quorum.committed_loader import CommittedLoader
from odradek.quorum.metadata_log import MetadataLog
from odradek.quorum.metadata_snapshots import LoadedSnapshot
from odradek.quorum.metadata_upkeep import Run
from odradek.quorum.quorum_history import voter_set
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel_port import RaftChannel
from odradek.raft.driver import AppendedVoters, RaftDriver
from odradek.raft.hard_state import HardState
from odradek.raft.messages import OffsetAndEpoch, Request, Response
from odradek.raft.ready import AppendLeaderChange, AppendVoters, FetchRead, RoleEvent, SnapshotRead
from odradek.raft.voters import VoterSet
from odradek.storage.disk import Buffer
from odradek.storage.flush_plan import FlushPlan

if TYPE_CHECKING:
    from odradek.quorum.raft_service import RaftService

_logger: Final = logging.getLogger("odradek.quorum")

Flush: TypeAlias = Callable[[FlushPlan, Callable[[], None]], None]
"""Carries out a plan, here or on a thread, and then calls back on the owner's thread."""
CallLater: TypeAlias = Callable[[float, Callable[[], None]], Handle]
"""Calls back after so many seconds, on the owner's thread."""


class RaftPorts:
    driver: RaftDriver

    def __init__(
        self,
        log: MetadataLog,
        loader: CommittedLoader,
        find_service: "Callable[[], RaftService]",
        settings: QuorumSettings,
        *,
        clock: Clock,
        call_later: CallLater,
        find_channel: Callable[[], RaftChannel],
        on_event: Callable[[RoleEvent], None],
        on_voters: Callable[[], None],
        guard: Callable[[Callable[[], None]], None],
        on_woken: Callable[[], None],
    ) -> None:
        """``guard`` calls something and turns what it raises into the failure of the node.

        ``on_woken`` is called when raft has done what was due by the clock.
        """
        self._log = log
        self._loader = loader
        self._find_service = find_service
        self._settings = settings
        self._clock = clock
        self._call_later = call_later
        self._find_channel = find_channel
        self._on_event = on_event
        self._on_voters = on_voters
        self._guard = guard
        self._on_woken = on_woken
        self._timer: Handle | None = None
        self._held: list[Callable[[int], None]] | None = None
        self.flush_by: Flush = flush_here
        self.run: Run = run_here

    # The disk.

    def persist(self, state: HardState) -> None:
        self._log.persist(state, self.driver.node.voters.ids)

    def truncate(self, offset: int) -> None:
        _logger.warning(
            Event(
                "metadata log truncated: another leader's differs",
                offset=offset,
                end_offset=self._log.log.log_end_offset,
            )
        )
        self._log.truncate(offset)
        self._on_voters()

    def append_fetched(self, records: object) -> list[AppendedVoters]:
        try:
            appended = self._log.append_fetched(cast("Buffer", records), self.driver.node.epoch)
        except CorruptionError as error:
            leader_id = self.driver.node.leader_id
            _logger.warning(
                Event("metadata from the leader refused", leader_id=leader_id, error=error)
            )
            return []
        if appended:
            self._on_voters()
        return appended

    def append_leader_change(self, change: AppendLeaderChange) -> list[AppendedVoters]:
        appended = self._log.append_leader_change(change)
        if appended:
            self._on_voters()
        return appended

    def append_voters(self, change: AppendVoters) -> list[AppendedVoters]:
        appended = self._log.append_voters(change)
        if appended:
            voters = ",".join(map(str, change.voters.ids))
            _logger.info(Event("voters change", voters=voters, offset=appended[-1][0]))
            self._on_voters()
        return appended

    @contextmanager
    def flushed_together(self) -> Iterator[None]:
        assert self._held is None
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            for then in held:
                self.flush(then)

    def flush(self, then: Callable[[int], None]) -> None:
        if self._held is not None:
            self._held.append(then)  # at most one: the driver waits for it
            return
        plan = self._log.log.plan_flush()

        def flushed() -> None:
            self._log.log.on_flushed(plan)
            self._guard(lambda: then(plan.end_offset))

        self.flush_by(plan, flushed)

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> bool:
        try:
            self._log.snapshots.store_piece(snapshot_id, position, data)
        except OSError as error:
            _logger.warning(Event("snapshot of the leader not stored", error=error))
            return False
        return True

    def install_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        then: Callable[[VoterSet | None], None],
        refused: Callable[[], None],
    ) -> None:
        plan = self._log.snapshots.plan_install(snapshot_id)
        found: list[LoadedSnapshot] = []

        def finish(error: BaseException | None) -> None:
            if isinstance(error, CorruptionError | OSError):
                _logger.warning(Event("snapshot of the leader refused", error=error))
                refused()
            elif error is not None:
                raise error
            else:
                then(self._start_at(found[0]))

        self.run(
            lambda: found.append(plan.run()),
            lambda error: self._guard(lambda: finish(error)),
        )

    def _start_at(self, snapshot: LoadedSnapshot) -> VoterSet | None:
        old = self._log.start_at(snapshot)
        self._on_voters()
        self.run(lambda: self._log.snapshots.remove(old), _ignore)
        offset, epoch = snapshot.id
        _logger.info(Event("snapshot of the leader installed", end_offset=offset, epoch=epoch))
        self._loader.load_snapshot(snapshot)
        record = snapshot.content.quorum.voters
        return None if record is None else voter_set(record)

    # The network.

    def send(self, target: int, request: Request) -> None:
        self._find_channel().send(target, request)

    def reply(self, response: Response) -> None:
        self._find_service().reply(response)

    def reply_with_records(self, read: FetchRead) -> None:
        wanted = self._find_service().bytes_max(read.response.correlation_id)
        bytes_max = min(wanted, self._settings.fetch_max_bytes)
        records = self._log.read(read.fetch_offset, max(bytes_max, 0))
        self._find_service().reply(replace(read.response, records=records))

    def reply_with_piece(self, read: SnapshotRead) -> None:
        bytes_max = min(read.max_bytes, self._settings.raft.fetch_snapshot_max_bytes)
        data = self._log.snapshots.read_piece(
            read.snapshot_id, read.position, bytes_max, self._clock.now_ms()
        )
        self._find_service().reply(replace(read.response, data=data))

    # Time, and the state machine on top.

    def monotonic_ms(self) -> int:
        return self._clock.monotonic_ms()

    def wake_at(self, deadline_ms: int) -> None:
        self.stop_timer()
        wait_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = self._call_later(wait_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._guard(self.driver.tick)
        self._on_woken()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def on_event(self, event: RoleEvent) -> None:
        self._on_event(event)

    def on_high_watermark(self, offset: int) -> None:
        self._log.log.update_high_watermark(offset)
        self._loader.load_to(offset)


def flush_here(plan: FlushPlan, then: Callable[[], None]) -> None:
    plan.run()
    then()


def run_here(work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
    error: BaseException | None = None
    try:
        work()
    except (OSError, CorruptionError) as failed:
        error = failed
    done(error)


def _ignore(_error: BaseException | None) -> None:
    """Do nothing: the next start removes what is left."""
