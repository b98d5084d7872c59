"""Members of a metadata quorum on virtual time: simulated disks, and a channel with real codecs.

Every request and response goes through its bytes. Flushes and other work on threads take time. A
member can be killed (with or without its power), cut off and started again on its disk.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import PurePosixPath
from random import Random

from odradek.controller.feature_changes import bootstrap_records
from odradek.core.config import Address
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import VersionedRecord
from odradek.metadata.image import MetadataUpdate
from odradek.metadata.snapshots import (
    BOOTSTRAP_SNAPSHOT,
    QuorumRecords,
    snapshot_batches,
    snapshot_name,
)
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated.control_records import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)
from odradek.protocol.message import Message
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.quorum.quorum_listener import LeaderAndEpoch, QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel_port import ChannelOwner
from odradek.quorum.raft_requests import request_to_wire
from odradek.quorum.raft_responses import leader_address_in, response_from_wire
from odradek.raft import OffsetAndEpoch, RaftConfig, ReplicaKey
from odradek.raft.messages import ProbeVoterRequest, ProbeVoterResponse, Request, VoterEndpoint
from odradek.storage.flush_plan import FlushPlan
from odradek.testing.disk import SimulatedDisk
from odradek.testing.simulation.clocks import SimClock
from odradek.testing.simulation.world import World
from tests.unit.quorum.metadata_log_harness import topic_records

FOLDER = PurePosixPath("/data/__cluster_metadata-0")
CLUSTER_ID = "a cluster of tests"
LISTENER = "CONTROLLER"
PORT_BASE = 9_000
LATENCY = 0.002
FLUSH = 0.003
LIMIT = 60


def directory_of(node_id: int) -> Uuid:
    return Uuid(b"directory %06d" % node_id)


def address_of(node_id: int) -> Address:
    return Address(f"host-{node_id}", PORT_BASE + node_id)


def voters_record(ids: Iterable[int]) -> QuorumRecords:
    voters = [
        VotersRecordVoter(
            voter_id=each,
            voter_directory_id=directory_of(each),
            endpoints=[Endpoint(name=LISTENER, host=f"host-{each}", port=PORT_BASE + each)],
            k_raft_version_feature=KRaftVersionFeature(max_supported_version=1),
        )
        for each in ids
    ]
    return QuorumRecords(1, VotersRecord(voters=voters))


class Timer:
    """A callback that can be called off."""

    def __init__(self, world: World, seconds: float, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call
        world.call_later(seconds, self._fire)

    def _fire(self) -> None:
        if self._call is not None:
            self._call()

    def cancel(self) -> None:
        self._call = None


@dataclass
class Member(QuorumListener):
    """One node with one life after the other."""

    cluster: "QuorumCluster"
    id: int
    disk: SimulatedDisk
    settings: QuorumSettings
    lives: int = 0
    is_up: bool = False
    failure: Exception | None = None
    failed_sends: int = 0
    leading: list[int] = field(default_factory=list)
    lost: int = 0
    leaders: list[LeaderAndEpoch] = field(default_factory=list)
    updates: list[MetadataUpdate] = field(default_factory=list)

    def start(self) -> None:
        world = self.cluster.world
        self.lives += 1
        self.is_up = True
        self.quorum = MetadataQuorum(
            self.disk,
            FOLDER,
            key=ReplicaKey(self.id, directory_of(self.id)),
            cluster_id=CLUSTER_ID,
            clock=SimClock(lambda: world.now),
            random=world.random(f"raft {self.id}/{self.lives}"),
            settings=self.settings,
            make_channel=lambda owner: Channel(self, owner),
            on_failed=self._on_failed,
            call_later=self._call_later,
        )
        self.quorum.add_listener(self)
        self.quorum.start()
        self.quorum.flush_with(self._flush)
        self.quorum.work_with(self._run)

    def kill(self, *, power: bool = False) -> None:
        """Let the process end at once; with ``power`` what is not synced may be lost."""
        self.is_up = False
        self.lives += 1
        if power:
            self.disk.crash()
        else:
            self.disk.kill()

    def stop(self) -> None:
        """Stop cleanly."""
        self.is_up = False
        self.lives += 1
        self.quorum.close()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        """Call in this life of the member only."""
        self._call_later(seconds, call)

    def _call_later(self, seconds: float, call: Callable[[], None]) -> Timer:
        life = self.lives
        return Timer(self.cluster.world, seconds, lambda: call() if life == self.lives else None)

    def _flush(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        def flush() -> None:
            try:
                plan.run()
            except OSError as error:
                self.failure = error
            else:
                then()

        self.later(FLUSH, flush)

    def _run(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        def run() -> None:
            error: BaseException | None = None
            try:
                work()
            except Exception as failed:
                error = failed
            done(error)

        self.later(FLUSH, run)

    def _on_failed(self, _what: str, error: Exception) -> None:
        self.failure = error

    # The listener's part.

    def on_update(self, update: MetadataUpdate) -> None:
        self.updates.append(update)

    def on_leading(self, epoch: int, epoch_start_offset: int) -> None:
        self.leading.append(epoch)

    def on_leadership_lost(self) -> None:
        self.lost += 1

    def on_leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)

    # What tests do.

    def append(self, records: list[VersionedRecord]) -> int:
        return self.quorum.append(self.quorum.new_batch(records), self.quorum.epoch)

    def create_topic(self, name: str) -> int:
        return self.append(topic_records(name))

    @property
    def topics(self) -> set[str]:
        return set(self.quorum.image.topics)


class Channel:
    """Implements ``RaftChannel``; what it loses it reports after the request timeout."""

    def __init__(self, member: Member, owner: ChannelOwner) -> None:
        self._member = member
        self._owner = owner

    def send(self, target: int, request: Request) -> None:
        if isinstance(request, ProbeVoterRequest):
            self._probe(target, request)
            return
        message = request_to_wire(request, self._owner.sender)
        address = self._owner.find_address(target)
        peer = None if address is None else self._member.cluster.find(address)
        fail = partial(self._owner.on_send_failed, target, request.correlation_id)
        if peer is None or not self._member.cluster.is_open(self._member, peer):
            self._member.failed_sends += 1
            self._member.later(LATENCY, fail)
            return
        answered = partial(self._on_answer, target, request.correlation_id)
        self._member.cluster.post(self._member, peer, message, answered, fail)

    def _probe(self, target: int, request: ProbeVoterRequest) -> None:
        cluster = self._member.cluster
        (endpoint,) = request.endpoints
        peer = cluster.find(Address(endpoint.host, endpoint.port))
        is_there = peer is not None and cluster.is_open(self._member, peer)
        answer = ProbeVoterResponse(
            request.correlation_id,
            target,
            ErrorCode.NONE if is_there else ErrorCode.BROKER_NOT_AVAILABLE,
            (0, 1) if is_there else None,
        )
        self._member.later(2 * LATENCY, lambda: self._owner.step(answer))

    def _on_answer(self, target: int, correlation_id: int, answer: Message) -> None:
        leader = leader_address_in(answer)
        if leader is not None:
            self._owner.on_leader_address(leader)
        self._owner.step(response_from_wire(answer, correlation_id, target))

    def close(self) -> None:
        pass


class QuorumCluster:
    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 0,
        by_log: bool = False,
        log: MetadataLogConfig | None = None,
        fetch_version: int | None = None,
        raft: RaftConfig | None = None,
        fetch_max_bytes: int = 1 << 20,
    ) -> None:
        """Voters are 1, 2, …; observers, which are brokers, from 101 on.

        ``by_log``: the voters are in the snapshot that formatting leaves, and all nodes know but
        the bootstrap servers.
        """
        self.world = World(seed)
        self.cut: set[tuple[int, int]] = set()
        self.silent: set[int] = set()
        """Members that take in what is sent to them and do nothing, as a stopped process."""
        self.ignored = 0
        """How many requests the silent ones took in."""
        self.sent: dict[str, int] = {}
        self._fetch_version = fetch_version
        self._log = log or MetadataLogConfig(segment_index_bytes=960, max_snapshot_interval_ms=0)
        self._by_log = by_log
        self._raft = raft or RaftConfig()
        self._fetch_max_bytes = fetch_max_bytes
        self.voter_ids = list(range(1, voters + 1))
        ids = [*self.voter_ids, *range(101, 101 + observers)]
        self.members = {each: self._make(each) for each in ids}

    def _make(self, node_id: int) -> Member:
        is_voter = node_id in self.voter_ids
        disk = SimulatedDisk(self.world.random(f"disk {node_id}"))
        disk.make_folder(FOLDER)
        if self._by_log and is_voter:
            put_bootstrap(disk, voters_record(self.voter_ids))
        disk.sync_all()
        addresses = {each: address_of(each) for each in self.voter_ids}
        settings = QuorumSettings(
            static_voters={} if self._by_log else addresses,
            bootstrap_servers=tuple(addresses.values()) if self._by_log else (),
            log=self._log,
            raft=self._raft,
            fetch_max_bytes=self._fetch_max_bytes,
            listener=LISTENER,
            endpoints=(VoterEndpoint(LISTENER, *address_of(node_id)),) if is_voter else (),
            can_become_voter=is_voter,
        )
        return Member(self, node_id, disk, settings)

    def make_controller(self, node_id: int) -> Member:
        """Make a controller that is no voter yet; a quorum by log only."""
        member = self._make(node_id)
        endpoint = VoterEndpoint(LISTENER, *address_of(node_id))
        member.settings = replace(member.settings, endpoints=(endpoint,), can_become_voter=True)
        return member

    def replace(self, member: Member) -> Member:
        """Give a member that is down a new, empty disk."""
        fresh = self.members[member.id] = self._make(member.id)
        fresh.lives = member.lives
        return fresh

    def start(self) -> None:
        for member in self.members.values():
            member.start()

    def find(self, address: Address) -> Member | None:
        return self.members.get(address.port - PORT_BASE)

    def is_open(self, a: Member, b: Member) -> bool:
        return b.is_up and (a.id, b.id) not in self.cut

    def isolate(self, member: Member) -> None:
        for other in self.members.values():
            if other is not member:
                self.cut |= {(member.id, other.id), (other.id, member.id)}

    def post(
        self,
        source: Member,
        target: Member,
        message: Message,
        answered: Callable[[Message], None],
        fail: Callable[[], None],
    ) -> None:
        """Carry a request there and its answer back, each as bytes."""
        api = api_for_key(message.ID)
        version = self._fetch_version if api.name == "Fetch" else None
        version = message.VERSION_MAX if version is None else version
        self.sent[api.name] = self.sent.get(api.name, 0) + 1
        data = message.to_bytes(version)
        life, source_life = target.lives, source.lives

        def reply(answer: Message) -> None:
            answer_data = answer.to_bytes(version)
            decoded = type(answer).decode(answer_data, version)
            if self.is_open(target, source):
                self.world.call_later(
                    LATENCY, lambda: answered(decoded) if source.lives == source_life else None
                )

        def arrive() -> None:
            if target.id in self.silent:
                self.ignored += 1
                return
            if target.lives != life or not self.is_open(source, target):
                source.later(0, fail)
                return
            target.quorum.handle(type(message).decode(data, version), version, reply)

        # In the life of the sender: an answer never outlives its connection.
        source.later(LATENCY, arrive)

    # Waiting.

    def run_until(self, condition: Callable[[], bool], seconds: float = LIMIT) -> None:
        self.world.run_until(condition, seconds)
        for member in self.members.values():
            if member.is_up:
                member.quorum.raft.check_invariants()

    def up(self) -> list[Member]:
        return [each for each in self.members.values() if each.is_up]

    def find_leader(self) -> Member | None:
        leaders = [each for each in self.up() if each.quorum.is_leader]
        return max(leaders, key=lambda each: each.quorum.epoch, default=None)

    def wait_for_leader(self) -> Member:
        """Wait until a leader has committed a record of its epoch and all that live follow it."""

        def is_led() -> bool:
            leader = self.find_leader()
            return leader is not None and all(
                each.quorum.leader == leader.quorum.leader
                and each.quorum.loaded_offset > leader.quorum.raft.role.epoch_start_offset  # type: ignore[union-attr]
                for each in self.up()
            )

        self.run_until(is_led)
        leader = self.find_leader()
        assert leader is not None
        return leader

    def begin(self) -> Member:
        """Start all, wait for the leader and let it write the first records."""
        self.start()
        leader = self.wait_for_leader()
        self.wait_loaded(leader.append(bootstrap_records()))
        return leader

    def wait_loaded(self, end_offset: int, members: Iterable[Member] | None = None) -> None:
        waiting = self.up() if members is None else list(members)
        self.run_until(lambda: all(each.quorum.loaded_offset >= end_offset for each in waiting))


def put_bootstrap(disk: SimulatedDisk, records: QuorumRecords) -> None:
    """Leave what ``storage format --initial-controllers`` leaves."""
    put_snapshot(disk, BOOTSTRAP_SNAPSHOT, (), records)


def put_snapshot(
    disk: SimulatedDisk,
    snapshot_id: OffsetAndEpoch,
    records: Iterable[VersionedRecord],
    quorum: QuorumRecords,
) -> None:
    batches = snapshot_batches(
        records, epoch=snapshot_id.epoch, last_contained_log_timestamp_ms=0, now_ms=0, quorum=quorum
    )
    file = disk.open(FOLDER / snapshot_name(snapshot_id), create=True)
    file.write(0, list(batches))
    file.close()


def seeds(count: int) -> list[int]:
    return [Random(number).randrange(1 << 30) for number in range(count)]
