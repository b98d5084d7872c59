"""The metadata quorum as every node has it: the log, raft on top of it, and the committed image.

Voters and observers run the same code. What a node appends while it leads, what it fetches while it
follows and what it installs as a snapshot all become the same image, when it is committed.

Life::

    quorum = MetadataQuorum(disk, folder, key=…, cluster_id=…, settings=…, make_channel=…, …)
    quorum.add_listener(listener)   # before the start: nothing is repeated
    quorum.start()                  # opens the disk; raises if it must not be used
    quorum.flush_with(…)            # threads and slices from now on
    quorum.load_with(…)
    quorum.work_with(…)
    …
    quorum.stop_leading(done)       # another controller takes over, if there is one
    quorum.close()                  # when threads have ended; or abandon() after a failure

``start`` is synchronous. A quorum of one leads, and has loaded everything, when it returns; others
find their leader later (``on_leader_changed``, ``on_loaded``).
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import PurePath
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from odradek.core.clock import Clock, Instant
from odradek.core.config import Address
from odradek.core.errors import CorruptionError
from odradek.core.slices import Handle
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.control_records import VotersRecord
from odradek.protocol.message import Message
from odradek.quorum.committed_loader import CommittedLoader, RunSteps
from odradek.quorum.leader_watch import LeaderWatch
from odradek.quorum.metadata_batch import MetadataBatch
from odradek.quorum.metadata_log import MetadataLog
from odradek.quorum.metadata_upkeep import MetadataUpkeep, Run
from odradek.quorum.peer_addresses import PeerAddresses
from odradek.quorum.quorum_listener import LeaderAndEpoch, NotLeaderError, QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.quorum_times import QuorumTimes
from odradek.quorum.raft_channel_port import LeaderAddress, MakeChannel, RaftChannel, Sender
from odradek.quorum.raft_ports import CallLater, Flush, RaftPorts
from odradek.raft.driver import RaftDriver
from odradek.raft.leader import Leader
from odradek.raft.messages import QuorumError, ReplicaKey, Request, Response
from odradek.raft.node import RaftNode
from odradek.raft.ready import BecameLeader, LeaderChanged, LostLeadership, RoleEvent
from odradek.raft.roles import Follower, Prospective, Unattached
from odradek.raft.voters import VoterSet
from odradek.storage.disk import Disk
from odradek.storage.log import Log
from odradek.storage.log_directory import DirectoryRefusedError
from odradek.storage.log_work import release_files
from odradek.storage.recovery_loss import OnLoss

if TYPE_CHECKING:
    from odradek.protocol.generated.describe_quorum import (
        DescribeQuorumRequest,
        DescribeQuorumResponse,
    )
    from odradek.quorum.raft_service import RaftService, Reply

STOP_LEADING_MS: Final = 5_000
"""How long a leader that stops waits for its successor, as Kafka's."""


Failed: TypeAlias = Callable[[str, Exception], None]


class MetadataQuorum:
    def __init__(
        self,
        disk: Disk,
        folder: PurePath,
        *,
        key: ReplicaKey,
        cluster_id: str,
        clock: Clock,
        random: Random,
        settings: QuorumSettings | None = None,
        make_channel: MakeChannel | None = None,
        on_loss: OnLoss | None = None,
        on_full: Callable[[OSError], None] = lambda _: None,
        on_failed: Failed | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """``folder`` is that of the metadata log, in a directory that is locked.

        Without ``make_channel`` the node is a quorum by itself, and refuses a log that names other
        voters. ``on_loss`` may refuse to go on without what recovery would give up; ``on_full`` is
        called for appends that were refused for want of space. ``on_failed`` is called when the
        quorum cannot go on; the node must stop then. Timers are the running loop's by default.
        """
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._random = random
        self._make_channel = make_channel
        self._on_loss = on_loss
        self._on_full = on_full
        self._on_failed = on_failed
        self._call_later = call_later or _call_later
        self.settings = settings or QuorumSettings()
        self.replica_key = key
        self.cluster_id = cluster_id
        self._addresses = PeerAddresses(self.settings)
        self._channel: RaftChannel | None = None
        self._listeners: list[QuorumListener] = []
        self._service: RaftService | None = None
        self.times = QuorumTimes()
        self._leader_watch = LeaderWatch(
            clock, self._call_later, lambda: self.voter_ids, self._find_leader
        )
        self.is_started = False
        self._is_over = False  # failed, or closed
        self._led: Callable[[], None] | None = None

    # Life.

    def add_listener(self, listener: QuorumListener) -> None:
        """Call ``listener`` from now on, after those that were added before."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Open the log, load the newest snapshot, and take part in the quorum.

        Raises:
            CorruptionError: The log starts behind what the snapshots hold, or does not fit them.
            DirectoryRefusedError: There are other voters, and no channel to reach them.
        """
        self._store = MetadataLog(
            self._disk,
            self._folder,
            clock=self._clock,
            random=self._random,
            config=self.settings.log,
            on_loss=self._on_loss,
            on_full=self._on_full,
        )
        self._loader = CommittedLoader(
            self._store, self._publish, self._on_loaded, self._on_load_failed
        )
        self.upkeep = self._loader.upkeep = MetadataUpkeep(
            self._store.log, self._store.snapshots, self._shown, self.settings.log, self._clock
        )
        self._on_voters()
        self._driver = self._make_driver()
        if self._store.found is not None:
            self._loader.load_snapshot(self._store.found)
        self._driver.start()
        self.is_started = True
        self._leader_watch.look()

    def _make_driver(self) -> RaftDriver:
        store, static = self._store, self._static_voters()
        history = store.history.voter_history(static)
        if self._make_channel is None:
            self._check_alone(history.latest)
        is_flushed = store.log.recovery_point >= store.log.log_end_offset
        is_alone = history.latest.is_only(self.replica_key)
        if self.settings.can_become_voter and not is_alone and not is_flushed:
            # A vote and a fetch promise that the log is on disk. After a kill some of it may be in
            # the cache of the system alone. (A quorum of one flushes it with its first record.)
            store.log.flush()
        node = RaftNode(
            self.replica_key,
            history,
            store.view,
            store.read_hard_state(),
            config=self.settings.raft,
            random=self._random,
            now_ms=self._clock.monotonic_ms(),
            bootstrap_ids=self._addresses.bootstrap_ids,
            can_become_voter=self.settings.can_become_voter,
            details=self.settings.details,
        )
        self._ports = RaftPorts(
            store,
            self._loader,
            self._find_service,
            self.settings,
            clock=self._clock,
            call_later=self._call_later,
            find_channel=self._find_channel,
            on_event=self._on_event,
            on_voters=self._on_voters,
            guard=self._guard,
            on_woken=self._leader_watch.look,
        )
        driver = RaftDriver(node, self._ports)
        self._ports.driver = driver
        return driver

    def _static_voters(self) -> VoterSet:
        if self.settings.is_alone and self.settings.can_become_voter:
            return VoterSet.of_ids(self.replica_key.id)
        return VoterSet.of_ids(*self.settings.static_voters)

    def _check_alone(self, voters: VoterSet) -> None:
        key = self.replica_key
        if voters.is_only(key):
            return
        named = ", ".join(f"{each.id} in directory {each.directory_id}" for each in voters.voters)
        raise DirectoryRefusedError(
            f"{self._folder} belongs to a quorum of the voters {named or '(none)'}; this is "
            f"{key.id} in directory {key.directory_id}, and can only be a quorum by itself"
        )

    def flush_with(self, flush: Flush) -> None:
        """Let ``flush`` wait for the disk from now on."""
        self._ports.flush_by = flush

    def load_with(self, run_steps: RunSteps) -> None:
        """Let ``run_steps`` bring committed batches into the image, a slice at a time."""
        self._loader.load_with(run_steps)

    def work_with(self, run: Run) -> None:
        """Write and install snapshots by ``run`` from now on; before, none is written."""
        self._ports.run = run
        self.upkeep.run_with(run)

    def flushed_together(self) -> AbstractContextManager[None]:
        """Let all that is appended inside wait for one flush, which begins at the end."""
        return self._ports.flushed_together()

    def resign(self) -> None:
        """Give leadership up, if this node has it; another voter may take it."""
        self._guard(self._driver.resign)

    def stop_leading(self, done: Callable[[], None]) -> None:
        """Hand leadership over and call ``done`` when another leads, or after a few seconds.

        At once if this node does not lead, or is alone.
        """
        if not self.is_leader or self._driver.node.voters.is_only(self.replica_key):
            done()
            return
        timer: Handle | None = None

        def finish() -> None:
            if self._led is not None:
                self._led = None
                if timer is not None:
                    timer.cancel()
                done()

        self._led = finish
        timer = self._call_later(STOP_LEADING_MS / 1000, finish)
        self.resign()

    def close(self) -> None:
        """Stop taking part, and write the log down; its flushes have ended."""
        self._end()
        self._store.log.close()

    def abandon(self) -> None:
        """Stop taking part and write nothing more: as after a crash, the next start recovers.

        Nothing happens before the start.
        """
        if not self.is_started:
            return
        self._end()
        release_files(self._store.log)

    def _end(self) -> None:
        self._is_over = True
        self._ports.stop_timer()
        self._leader_watch.stop()
        if self._service is not None:
            self._service.close()
        self._store.snapshots.drop_part()
        if self._channel is not None:
            self._channel.close()

    # What is known.

    @property
    def node_id(self) -> int:
        return self.replica_key.id

    @property
    def listener(self) -> str:
        return self.settings.listener

    @property
    def log(self) -> Log:
        return self._store.log

    @property
    def image(self) -> ClusterImage:
        """The committed image."""
        return self._loader.loader.image

    committed_image = image

    @property
    def loaded_offset(self) -> int:
        """Up to where the image has everything, exclusive."""
        return self._loader.offset

    @property
    def log_end_offset(self) -> int:
        return self._store.log.log_end_offset

    @property
    def high_watermark(self) -> int | None:
        """Up to where the log is committed; None if that is not known yet."""
        return self._driver.node.high_watermark

    @property
    def raft(self) -> RaftNode:
        """For metrics and tests: to be looked at only."""
        return self._driver.node

    @property
    def epoch(self) -> int:
        return self._driver.node.epoch

    @property
    def leader_id(self) -> int | None:
        return self._driver.node.leader_id

    @property
    def is_leader(self) -> bool:
        return self._driver.node.is_leader

    @property
    def leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.leader_id, self.epoch)

    @property
    def state_name(self) -> str:
        """This node's role in Kafka's words; a replica without a vote is an observer."""
        raft = self._driver.node
        match raft.role:
            case Unattached() | Follower() if not raft.is_voter:
                return "observer"
            case Unattached() if raft.hard_state.voted is not None:
                return "unattached-voted"
            case Prospective() if raft.hard_state.voted is not None:
                return "prospective-voted"
            case role:
                return type(role).__name__.lower()

    @property
    def kraft_version(self) -> int:
        """The level of a feature that is no metadata record: from 1 on the log names its voters."""
        return self._store.history.at(self._loader.offset).kraft_version

    @property
    def appended_kraft_version(self) -> int:
        """The level that will be, when all that is appended is committed."""
        return self._store.history.latest.kraft_version

    @property
    def voters(self) -> VotersRecord | None:
        """The voters by the log, with where they listen; None if it names none."""
        return self._store.history.latest.voters

    @property
    def upgraded_voters(self) -> VoterSet | None:
        """The voters of a static quorum as the log could name them: with what they said of
        themselves. None if the log does already, or if this node does not lead.
        """
        role = self._driver.node.role
        return role.volatile_voters if isinstance(role, Leader) else None

    @property
    def voter_ids(self) -> tuple[int, ...]:
        return self._driver.node.voters.ids

    @property
    def sender(self) -> Sender:
        return Sender(self.cluster_id, self.settings.endpoints, self.settings.fetch_max_bytes)

    def find_address(self, node_id: int) -> Address | None:
        """Return where a member of the quorum, or a bootstrap server, listens."""
        return self._addresses.find(node_id)

    def find_leader_address(self) -> LeaderAddress | None:
        """Return where the leader listens, for others; None if that is not known."""
        leader_id = self.leader_id
        if leader_id is None:
            return None
        if leader_id == self.node_id:
            endpoint = next(iter(self.settings.endpoints), None)
            return endpoint and LeaderAddress(leader_id, endpoint.host, endpoint.port)
        address = self._addresses.find(leader_id)
        return address and LeaderAddress(leader_id, *address)

    def describe(self, request: "DescribeQuorumRequest", version: int) -> "DescribeQuorumResponse":
        from odradek.quorum.quorum_description import QuorumView, nodes_by_config, nodes_by_log

        role, voters = self._driver.node.role, self.voters
        nodes = (
            nodes_by_config(self.voter_ids, self.settings)
            if voters is None
            else nodes_by_log(voters)
        )
        view = QuorumView(
            role if isinstance(role, Leader) else None,
            epoch=self.epoch,
            log_end_offset=self.log_end_offset,
            nodes=nodes,
            now=Instant(self._clock.now_ms(), self._clock.monotonic_ms()),
        )
        return view.describe(request, version)

    # Appending.

    def new_batch(self, records: Iterable[VersionedRecord] = ()) -> MetadataBatch:
        """Return a batch that takes records until it is appended."""
        return MetadataBatch(records, self._clock.now_ms())

    def append(
        self, batch: MetadataBatch, epoch: int, on_appended: Callable[[], None] = lambda: None
    ) -> int:
        """Append a batch as the leader of ``epoch``; return where the log ends then.

        ``on_loaded`` of the listeners says when it is committed. ``on_appended`` is called when it
        is in the log, before anything can follow from that.

        Raises:
            NotLeaderError: This node does not lead ``epoch`` any more.
            ApiError: KAFKA_STORAGE_ERROR: there is no space; nothing was appended.
            OSError: What is in the log now is not known.
        """
        self._check_leads(epoch)
        self._store.append(batch.build(), epoch)
        end_offset = self.log_end_offset
        self.times.on_appended(end_offset, self._clock.monotonic_ms())
        on_appended()
        self._guard(lambda: self._driver.on_appended(is_no_op=batch.is_no_op))
        return end_offset

    def append_quorum(self, records: QuorumRecords, epoch: int) -> None:
        """Let the log name its voters, who must be those that it has; raises as ``append``."""
        assert records.voters is not None
        assert [each.voter_id for each in records.voters.voters] == list(self.voter_ids)
        self._check_leads(epoch)
        appended = self._store.append_quorum(records, epoch)
        self._on_voters()
        self._guard(lambda: self._driver.on_appended(appended))

    def when_loaded(self, offset: int, then: Callable[[], None]) -> None:
        """Call back when the image has everything up to ``offset``; offsets must not go back."""
        self._loader.when_loaded(offset, then)

    def _check_leads(self, epoch: int) -> None:
        if self._is_over or not self.is_leader or self.epoch != epoch:
            raise NotLeaderError(f"node {self.node_id} does not lead epoch {epoch}")

    # Messages.

    def handle(self, request: Message, version: int, reply: "Reply") -> None:
        """Answer a request of the quorum that came in on a controller's listener."""
        self._find_service().handle(request, version, reply)

    @property
    def pending_count(self) -> int:
        """How many requests of others wait for an answer."""
        return 0 if self._service is None else self._service.pending_count

    def step_request(self, request: Request) -> None:
        if not self._is_over:
            self._guard(lambda: self._driver.step(request), QuorumError)

    def step(self, response: Response) -> None:
        if not self._is_over:
            self._guard(lambda: self._driver.step(response))

    def on_send_failed(self, target: int, correlation_id: int) -> None:
        if not self._is_over:
            self._guard(lambda: self._driver.on_send_failed(target, correlation_id))

    def on_leader_address(self, leader: LeaderAddress) -> None:
        self._addresses.on_leader(leader)

    def _find_service(self) -> "RaftService":
        if self._service is None:
            from odradek.quorum.raft_service import RaftService  # a voter that is alone needs none

            self._service = RaftService(self)
            if self._is_over:
                self._service.close()
        return self._service

    def _find_channel(self) -> RaftChannel:
        if self._channel is None:
            assert self._make_channel is not None, "a quorum of one has no one to talk to"
            self._channel = self._make_channel(self)
        return self._channel

    def tick(self) -> None:
        """Do now what is due, because a test moved its clock and the loop's timers do not know."""
        self._guard(self._driver.tick)

    # News from raft, the disk and the loader.

    def _guard(
        self, action: Callable[[], None], expected: type[Exception] | tuple[()] = ()
    ) -> None:
        """Do something to raft; whatever it raises but ``expected``, nothing more is done here."""
        if self._is_over:
            return
        try:
            action()
        except expected:
            raise
        except (OSError, CorruptionError, QuorumError) as error:
            what = "contradicts itself" if isinstance(error, QuorumError) else "cannot be written"
            self._fail(f"the metadata log {what}", error)

    def _fail(self, what: str, error: Exception) -> None:
        if not self.is_started or self._on_failed is None:
            raise error
        self._is_over = True
        self._ports.stop_timer()
        self._leader_watch.stop()
        self._on_failed(what, error)

    def _on_load_failed(self, error: Exception) -> None:
        self._fail("the metadata log cannot be read", error)

    def _publish(self, update: MetadataUpdate) -> None:
        for listener in self._listeners:
            listener.on_update(update)

    def _on_loaded(self, end_offset: int) -> None:
        self.times.on_committed(end_offset, self._clock.monotonic_ms())
        for listener in self._listeners:
            listener.on_loaded(end_offset)

    def _on_voters(self) -> None:
        self._addresses.on_voters(self.voters)

    def _on_event(self, event: RoleEvent) -> None:
        known = None if isinstance(event, LostLeadership) else self.leader_id
        self.times.on_leader(known, self._clock.monotonic_ms())
        self._leader_watch.look()
        match event:
            case BecameLeader(epoch=epoch, epoch_start_offset=offset):
                for listener in self._listeners:
                    listener.on_leading(epoch, offset)
            case LostLeadership():
                for listener in self._listeners:
                    listener.on_leadership_lost()
                return
            case LeaderChanged(leader_id=leader_id):
                if leader_id is not None and self._led is not None:
                    self._led()
        for listener in self._listeners:
            listener.on_leader_changed(self.leader)

    def _find_leader(self) -> int | None:
        """Return who leads, and has answered if that is another node.

        The hard state keeps the last leader during elections, and a voter that is not elected
        follows it again.
        """
        match self._driver.node.role:
            case Leader():
                return self.node_id
            case Follower(leader_id=leader_id, has_fetched=True):
                return leader_id
            case _:
                return None

    def _shown(self) -> tuple[ClusterImage, QuorumRecords] | None:
        """Return what a snapshot would hold.

        Nothing within a transaction: the image is behind the log then. Nothing before the first
        records: there is no metadata.version to write others in.
        """
        if self._loader.in_transaction or self.image.metadata_version is None:
            return None
        return self.image, self._store.history.at(self._loader.offset)


def _call_later(seconds: float, call: Callable[[], None]) -> Handle:
    return asyncio.get_running_loop().call_later(seconds, call)
