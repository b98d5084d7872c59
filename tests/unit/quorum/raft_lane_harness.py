"""Raft as it is shipped, over lanes and real frames on a simulated network; logs are in memory."""

import json
from asyncio import TimerHandle
from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any, cast

from odradek.core.config import Address
from odradek.core.ids import Uuid
from odradek.net.server import ConnectionInfo, Listener, Reply, Server, ServerLimits
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import Request as Frame
from odradek.protocol.framing import frame_response
from odradek.protocol.generated.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.message import Message
from odradek.quorum.raft_channel import RaftLanes
from odradek.quorum.raft_channel_port import LeaderAddress, Sender
from odradek.quorum.raft_requests import leader_named_by, request_from_wire
from odradek.quorum.raft_responses import response_to_wire
from odradek.raft.config import RaftConfig
from odradek.raft.driver import AppendedVoters, RaftDriver
from odradek.raft.hard_state import HardState
from odradek.raft.messages import OffsetAndEpoch, ReplicaKey, Request, Response, VoterEndpoint
from odradek.raft.node import RaftNode
from odradek.raft.ready import AppendLeaderChange, AppendVoters, FetchRead, RoleEvent, SnapshotRead
from odradek.raft.voters import VoterSet
from odradek.testing.simulation import World
from odradek.wire.lane import LaneSettings
from tests.simulation.raft.sim_log import Entry, SimLog

PORT = 9093
CLUSTER = "cluster-a"
LISTENER = "CONTROLLER"
CONFIG = RaftConfig()
LIMITS = ServerLimits(idle_ms_max=600_000)
RAFT_KEYS = (1, 52, 53, 54, 59)
SETTINGS = LaneSettings("raft", request_timeout_ms=2_000, connect_timeout_ms=2_000)


class Member:
    """A node of a quorum: implements ``DriverPorts`` for its driver, ``ChannelOwner`` for lanes."""

    def __init__(
        self,
        world: World,
        node_id: int,
        voters: VoterSet,
        addresses: dict[int, Address],
        **knows: int,
    ) -> None:
        """``addresses`` are those of the configs; ``knows`` are versions, newest as they are."""
        self.world = world
        self.key = ReplicaKey(node_id, Uuid(bytes([node_id] * 16)))
        self.log = SimLog()
        self.committed = 0
        self.failed: list[tuple[int, int]] = []
        self.learned: dict[int, Address] = {}
        self.node = world.add_node(f"n{node_id}")
        self.sender = Sender(CLUSTER, (VoterEndpoint(LISTENER, self.node.name, PORT),), 1 << 20)
        self._addresses = addresses
        self._voters = voters
        self._knows = knows
        self._pending: dict[int, tuple[Frame, Reply]] = {}
        self._token = 0
        self._timer: TimerHandle | None = None
        self._random = world.random(f"raft/{node_id}")
        world.run_until_done(self.node.spawn(self._start()), 1)

    async def _start(self) -> None:
        listener = Listener(LISTENER, "", PORT)
        self.server = Server([listener], self._handle, LIMITS, network=self.node.network)
        await self.server.start()
        self.lanes = RaftLanes(self, SETTINGS, Random(self.key.id))
        raft = RaftNode(
            self.key,
            self._voters,
            self.log,
            HardState(),
            config=CONFIG,
            random=self._random,
            now_ms=self.monotonic_ms(),
            bootstrap_ids=tuple(each for each in self._addresses if each < 0),
            can_become_voter=self._voters.contains(self.key),
        )
        self.driver = RaftDriver(raft, self)
        self.driver.start()

    @property
    def raft(self) -> RaftNode:
        return self.driver.node

    @property
    def values(self) -> list[str]:
        return [entry.value for entry in self.log.entries[: self.committed]]

    def append(self, value: str) -> None:
        """Append as the leader; call it on the node's loop."""
        if self.raft.is_leader:
            self.log.append([Entry(self.raft.epoch, value)])
            self.driver.on_appended()

    # ChannelOwner.

    listener = LISTENER

    @property
    def epoch(self) -> int:
        return self.raft.epoch

    def find_address(self, node_id: int) -> Address | None:
        return self.learned.get(node_id) or self._addresses.get(node_id)

    def on_leader_address(self, leader: LeaderAddress) -> None:
        self.learned = {leader.leader_id: Address(leader.host, leader.port)}

    def step(self, response: Response) -> None:
        self.driver.step(response)
        self.raft.check_invariants()

    def on_send_failed(self, target: int, correlation_id: int) -> None:
        self.failed.append((target, correlation_id))
        self.driver.on_send_failed(target, correlation_id)

    # DriverPorts.

    def append_voters(self, change: AppendVoters) -> Iterable[AppendedVoters]:
        raise AssertionError(f"these voters do not change: {change}")

    def persist(self, state: HardState) -> None:
        pass

    def truncate(self, offset: int) -> None:
        assert offset >= self.committed
        self.log.truncate(offset)

    def append_fetched(self, records: object) -> Iterable[AppendedVoters]:
        self.log.append([Entry(*each) for each in json.loads(bytes(cast("Any", records)))])
        return ()

    def append_leader_change(self, change: AppendLeaderChange) -> Iterable[AppendedVoters]:
        self.log.append([Entry(change.epoch, f"leader {self.key.id}")])
        return ()

    def flush(self, then: Callable[[int], None]) -> None:
        generation, offset = self.log.generation, self.log.log_end_offset

        def flushed() -> None:
            if generation == self.log.generation:
                self.log.flush(offset)
            then(offset)

        self.node.loop.call_later(self._random.uniform(0, 0.01), flushed)

    def store_piece(self, snapshot_id: OffsetAndEpoch, position: int, data: bytes) -> bool:
        part = self.log.parts.setdefault(snapshot_id, bytearray())
        part[position:] = data
        return True

    def install_snapshot(
        self,
        snapshot_id: OffsetAndEpoch,
        then: Callable[[VoterSet | None], None],
        refused: Callable[[], None],
    ) -> None:
        self.log.install(snapshot_id)
        self.node.loop.call_soon(then, None)

    def send(self, target: int, request: Request) -> None:
        self.lanes.send(target, request)

    def reply(self, response: Response) -> None:
        frame, reply = self._pending.pop(response.correlation_id)
        leader_id = self.raft.leader_id
        leader = None if leader_id is None else LeaderAddress(leader_id, f"n{leader_id}", PORT)
        self._reply(response_to_wire(response, leader, frame.version), frame, reply)

    def reply_with_records(self, read: FetchRead) -> None:
        entries = self.log.read(read.fetch_offset, 10)
        records = json.dumps(entries).encode() if entries else None
        self.reply(replace(read.response, records=records))

    def reply_with_piece(self, read: SnapshotRead) -> None:
        content = self.log.snapshots[read.snapshot_id].content
        self.reply(replace(read.response, data=content[read.position : read.position + 100]))

    def monotonic_ms(self) -> int:
        return int(self.world.now * 1000)

    def wake_at(self, deadline_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        # A millisecond later than asked: the clock counts whole ones.
        when = deadline_ms / 1000 + 0.001
        self._timer = self.node.loop.call_at(when, self.driver.tick)

    def on_event(self, event: RoleEvent) -> None:
        self.world.note(self.node.name, str(event))

    def on_high_watermark(self, offset: int) -> None:
        self.committed = offset

    # The listener.

    def _handle(self, frame: Frame, info: ConnectionInfo, reply: Reply) -> None:
        if frame.api.name == "ApiVersions":
            apis = [api_for_key(key) for key in RAFT_KEYS]
            keys = [ApiVersion(api_key=18, max_version=4)] + [
                ApiVersion(
                    api_key=each.key,
                    max_version=self._knows.get(each.name, each.version_stable_max),
                )
                for each in apis
            ]
            self._reply(ApiVersionsResponse(api_keys=keys), frame, reply)
            return
        message = frame.decode()
        self._token += 1
        request = request_from_wire(message, self._token, cluster_id=CLUSTER, own_id=self.key.id)
        leader = leader_named_by(message, LISTENER)
        if leader is not None:
            self.on_leader_address(leader)
        self._pending[self._token] = frame, reply
        self.driver.step(request)

    def _reply(self, message: Message, frame: Frame, reply: Reply) -> None:
        reply(frame_response(message, frame.api, frame.version, frame.correlation_id))


class Quorum:
    """Voters with ids from 1 on, and observers that know bootstrap servers alone."""

    def __init__(self, world: World, voters: int, observers: int = 0, **knows: int) -> None:
        self.world = world
        ids = range(1, voters + 1)
        static: dict[int, Address] = {each: Address(f"n{each}", PORT) for each in ids}
        bootstrap: dict[int, Address] = {-1 - each: Address(f"n{each}", PORT) for each in ids}
        voter_set = VoterSet.of_ids(*ids)
        self.voters = [Member(world, each, voter_set, static, **knows) for each in ids]
        self.observers = [
            Member(world, 100 + each, voter_set, bootstrap, **knows) for each in range(observers)
        ]
        for member in self.members:
            member.failed.clear()  # the first ones looked for others that were not there yet

    @property
    def members(self) -> list[Member]:
        return [*self.voters, *self.observers]

    @property
    def leader(self) -> Member | None:
        leaders = [each for each in self.voters if each.raft.is_leader]
        return max(leaders, key=lambda each: each.epoch, default=None)

    def append(self, value: str) -> None:
        """Append where the latest leader is, if there is one."""
        leader = self.leader
        if leader is not None:
            leader.node.loop.call_soon(leader.append, value)

    def commit(self, value: str, *where: Member, seconds_max: float = 60) -> float:
        """Append until the value is committed at all of ``where``; return the seconds it took."""
        start = self.world.now
        places = where or self.members
        while not all(value in each.values for each in places):
            leader = self.leader
            if leader is not None and all(each.value != value for each in leader.log.entries):
                self.append(value)
            self.world.run_for(0.01)
            assert self.world.now - start < seconds_max, f"seed {self.world.seed}: {value}"
        return self.world.now - start

    def check_agreement(self) -> None:
        longest = max((each.values for each in self.members), key=len)
        for each in self.members:
            assert each.values == longest[: len(each.values)]
