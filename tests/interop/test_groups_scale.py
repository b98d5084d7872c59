"""Many members, many groups, and group ids that nobody comes back to.

The members are sockets of this process that speak the protocol themselves. Figures are printed
(``pytest -s``). What must not take long is counted in seconds that the node worked: how long it had
to wait for a processor is not its own doing.
"""

import asyncio
import os
import resource
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.generated.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.interop.clients.confluent import Confluent
from tests.interop.group_members import wait_until
from tests.interop.node_process import NodeProcess
from tests.long_searches import in_soak

pytestmark = pytest.mark.slow

MEMBERS = 1_000
STABLE_CPU_SECONDS_MAX = 20
"""With the work of the members beside it, that is a minute on a machine that does nothing else."""
STABLE_SECONDS_MAX = 600
SESSION_MS = 600_000
OPTIONS = [
    f"--override=group.consumer.{bound}session.timeout.ms={SESSION_MS}" for bound in ("max.", "")
]
HEARTBEAT_SECONDS = 1
EXPIRED_IDS = in_soak(50_000, soak=100_000)
COMMITS_IN_FLIGHT = 200
OFFSETS_RETENTION_DAYS = 7
GROWTH_BYTES_MAX = 650 * EXPIRED_IDS
"""What the second round may add: the log of its commits is mapped, and heaps do not shrink."""

R = TypeVar("R", bound=Message)


class Peer:
    """A connection in asyncio."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Peer":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def ask(self, request: Message, response: type[R]) -> R:
        return (await self.ask_all([request], response))[0]

    async def ask_all(self, requests: Sequence[Message], response: type[R]) -> list[R]:
        """Send all, then await all answers."""
        api = api_for_key(response.ID)
        version = api.version_max
        for request in requests:
            self._writer.writelines(frame_request(request, api, version, 1, "scale"))
        answers = []
        for _ in requests:
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            frame = memoryview(await self._reader.readexactly(size))
            answers.append(response.decode(open_response(frame, api, version)[1], version))
        return answers

    def close(self) -> None:
        self._writer.close()


class ClassicMember:
    def __init__(self, peer: Peer, group: str) -> None:
        self.generation = -1
        self._peer = peer
        self._group = group
        self._member_id = ""

    async def settle(self) -> None:
        """Join and sync until there is an assignment."""
        while True:
            joined = await self._join()
            assignments = [
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"some")
                for each in joined.members
            ]
            request = SyncGroupRequest(
                group_id=self._group,
                generation_id=joined.generation_id,
                member_id=self._member_id,
                assignments=assignments,
            )
            synced = await self._peer.ask(request, SyncGroupResponse)
            if synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            assert (synced.error_code, synced.assignment) == (0, b"some")
            self.generation = joined.generation_id
            return

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0" * 50)],
        )
        joined = await self._peer.ask(request, JoinGroupResponse)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            request.member_id = joined.member_id
            joined = await self._peer.ask(request, JoinGroupResponse)
        assert joined.error_code == 0
        self._member_id = joined.member_id
        return joined

    async def beat(self) -> bool:
        """Tell whether nothing has changed; if something has, follow."""
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self._member_id
        )
        code = (await self._peer.ask(request, HeartbeatResponse)).error_code
        if code == 0:
            return True
        assert code == ErrorCode.REBALANCE_IN_PROGRESS
        await self.settle()
        return False


class ConsumerMember:
    def __init__(self, peer: Peer, group: str, name: str) -> None:
        self.generation = 0
        self.held: set[int] = set()
        self._peer = peer
        self._group = group
        self._name = name
        self._is_changed = True
        self._owned: list[TopicPartitions] = []

    async def settle(self) -> None:
        await self.beat()

    async def beat(self) -> bool:
        """Tell whether nothing has changed."""
        is_joining, is_changed = not self.generation, self._is_changed
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._name, member_epoch=self.generation
        )
        if is_joining:
            request.rebalance_timeout_ms = SESSION_MS
            request.subscribed_topic_names = ["t"]
            request.topic_partitions = []
        elif is_changed:
            request.topic_partitions = self._owned
        answer = await self._peer.ask(request, ConsumerGroupHeartbeatResponse)
        assert answer.error_code == 0, answer
        self._is_changed = answer.assignment is not None
        if answer.assignment is not None:
            self._owned = _as_asked(answer.assignment.topic_partitions)
            self.held = {p for each in self._owned for p in each.partitions}
        is_same = answer.member_epoch == self.generation and not self._is_changed
        self.generation = answer.member_epoch
        return is_same


def _as_asked(given: list[Any]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=t.topic_id, partitions=t.partitions) for t in given]


async def _stabilize(
    members: Sequence[ClassicMember | ConsumerMember], peer: Peer, groups: set[str]
) -> None:
    """Let all live until nothing changes for anyone and all groups are stable."""
    await asyncio.gather(*(member.settle() for member in members))
    while True:
        started = time.monotonic()
        calm = await asyncio.gather(*(member.beat() for member in members))
        generations = {member.generation for member in members}
        listed = (await peer.ask(ListGroupsRequest(), ListGroupsResponse)).groups
        stable = {each.group_id for each in listed if each.group_state == "Stable"}
        if all(calm) and stable == groups and (len(generations) == 1 or len(groups) > 1):
            return
        await asyncio.sleep(max(started + HEARTBEAT_SECONDS - time.monotonic(), 0))


async def _connect(port: int) -> list[Peer]:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft > MEMBERS + 100, f"{soft} files are too few for {MEMBERS} sockets: ulimit -n"
    peers = [await Peer.open(port) for _ in range(MEMBERS)]
    await peers[0].ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    return peers


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    with NodeProcess(tmp_path, OPTIONS) as started:
        Confluent(started.bootstrap_servers).create_topic("t", MEMBERS)
        yield started


async def _settle_all(node: NodeProcess, protocol: str, groups: Sequence[str]) -> None:
    """Return when one member per entry of ``groups`` is settled, which is no great work."""
    peers = await _connect(node.port)
    members: list[ClassicMember | ConsumerMember] = [
        ClassicMember(peer, group)
        if protocol == "classic"
        else ConsumerMember(peer, group, f"member-{number}")
        for number, (peer, group) in enumerate(zip(peers, groups, strict=True))
    ]
    try:
        start, worked = time.monotonic(), node.cpu_seconds()
        async with asyncio.timeout(STABLE_SECONDS_MAX):
            await _stabilize(members, peers[0], set(groups))
        seconds, worked = time.monotonic() - start, node.cpu_seconds() - worked
    finally:
        for peer in peers:
            peer.close()
    if len(set(groups)) == 1 and protocol == "consumer":
        held = [p for each in members if isinstance(each, ConsumerMember) for p in each.held]
        assert sorted(held) == list(range(MEMBERS))
    print(
        f"{MEMBERS} {protocol} members of {len(set(groups))} groups stable after {seconds:.1f} s, "
        f"in which the node worked {worked:.1f} s"
    )
    assert worked < STABLE_CPU_SECONDS_MAX


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_thousand_members_of_one_group_are_stable_in_a_minute(
    node: NodeProcess, protocol: str
) -> None:
    asyncio.run(_settle_all(node, protocol, ["g"] * MEMBERS))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_thousand_groups_of_one_are_stable_in_a_minute(node: NodeProcess, protocol: str) -> None:
    asyncio.run(_settle_all(node, protocol, [f"g{i}" for i in range(MEMBERS)]))


async def _commit_all(broker: Broker, ids: range) -> None:
    topic = OffsetCommitRequestTopic(
        topic_id=broker.node.broker.image.topics["t"].topic_id,
        partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=1)],
    )
    peer = await Peer.open(broker.port)
    await peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    for start in range(ids.start, ids.stop, COMMITS_IN_FLIGHT):
        some = range(start, min(start + COMMITS_IN_FLIGHT, ids.stop))
        requests = [OffsetCommitRequest(group_id=f"once-{i}", topics=[topic]) for i in some]
        answers = await peer.ask_all(requests, OffsetCommitResponse)
        assert not any(each.topics[0].partitions[0].error_code for each in answers)
    peer.close()


def _group_count(broker: Broker) -> int:
    return sum(len(shard.groups) for shard in broker.node.broker.groups.loaded_shards())


def _has_offsets(broker: Broker) -> bool:
    return any(next(each.offsets.all(), None) for each in broker.node.broker.groups.loaded_shards())


def _rss_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_group_ids_that_expired_take_no_memory() -> None:
    with Broker(topics=["t"]) as broker:
        left = []
        for half in (range(EXPIRED_IDS // 2), range(EXPIRED_IDS // 2, EXPIRED_IDS)):
            asyncio.run(_commit_all(broker, half))
            assert _group_count(broker) == len(half)
            broker.clock.advance(OFFSETS_RETENTION_DAYS * 24 * 3600 + 3600)
            wait_until(
                lambda: not _group_count(broker) and not _has_offsets(broker),
                lambda: f"{_group_count(broker)} groups are left, or offsets",
            )
            left.append(_rss_bytes())
        print(
            f"RSS after {EXPIRED_IDS // 2} ids {left[0] >> 20} MiB, after as many {left[1] >> 20}"
        )
        assert left[1] - left[0] < GROWTH_BYTES_MAX
