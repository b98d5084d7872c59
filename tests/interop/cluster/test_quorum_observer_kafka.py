"""Our metadata quorum, as a broker runs it, under real Kafka controllers.

It finds the leader by itself, follows it from log or snapshot, and goes over to the next one.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from odradek.broker.clock import SystemClock
from odradek.core.config import Address
from odradek.core.ids import Uuid
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel import RaftLanes
from odradek.raft.messages import ReplicaKey
from odradek.storage.disk import OsDisk
from odradek.wire.lane import LaneSettings
from tests.interop.cluster.observer import WAIT_SECONDS_MAX, Observer
from tests.interop.cluster.working_broker import create_topic, unfenced
from tests.interop.kafka_peer import KafkaQuorum
from tests.interop.kafka_peer.node import CLUSTER_ID
from tests.interop.ports import HOST

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

BROKER_ID = 7
DIRECTORY = Uuid(b"of the observer!")
FREQUENT = {
    "metadata.log.max.record.bytes.between.snapshots": "2000",
    "broker.session.timeout.ms": "600000",
}


@pytest.fixture(params=["voters in the log", "static voters"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KafkaQuorum]:
    static = request.param == "static voters"
    with KafkaQuorum(tmp_path, 3, static=static, overrides=FREQUENT) as quorum:
        yield quorum


def our_quorum(folder: Path, kafka: KafkaQuorum) -> MetadataQuorum:
    addresses = {each.node_id: Address(HOST, each.port) for each in kafka.voters}
    settings = QuorumSettings(
        static_voters=addresses if kafka.static else {},
        bootstrap_servers=() if kafka.static else tuple(addresses.values()),
        listener="CONTROLLER",
        can_become_voter=False,
    )
    lanes = LaneSettings("raft-client-7", request_timeout_ms=2_000, connect_timeout_ms=2_000)
    folder.mkdir(exist_ok=True)
    return MetadataQuorum(
        OsDisk(),
        folder / "__cluster_metadata-0",
        key=ReplicaKey(BROKER_ID, DIRECTORY),
        cluster_id=CLUSTER_ID,
        clock=SystemClock(),
        random=Random(1),
        settings=settings,
        make_channel=lambda owner: RaftLanes(owner, lanes, Random(2)),
    )


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not condition():
            await asyncio.sleep(0.02)
    assert condition(), what


async def write(observer: Observer) -> str:
    """Let the controllers create a topic; return its name."""

    def ask() -> str:
        return create_topic(observer, unfenced(observer)).name

    return await asyncio.to_thread(ask)


async def follow(folder: Path, kafka: KafkaQuorum, observer: Observer) -> None:
    quorum = our_quorum(folder, kafka)
    quorum.start()
    names = [await write(observer)]
    await until(lambda: names[0] in quorum.image.topics, "the first topic")
    assert quorum.image == observer.image
    assert sorted(quorum.voter_ids) == [each.node_id for each in kafka.voters]
    assert quorum.kraft_version == (0 if kafka.static else 1)
    first = quorum.leader_id
    described = await asyncio.to_thread(describe, observer)
    assert described == (first, {(BROKER_ID, DIRECTORY)})
    gone = next(each for each in kafka.controllers if each.voter.node_id == first)
    await asyncio.to_thread(gone.stop)
    await asyncio.to_thread(lambda: observer.wait_for_controller(other_than=first))
    names.append(await write(observer))
    await until(lambda: names[1] in quorum.image.topics, "the topic of the next leader")
    assert quorum.leader_id != first
    await asyncio.to_thread(gone.start)
    quorum.close()
    # From its own log, and from the leader's snapshot if that is ahead of it.
    names += [await write(observer) for _ in range(10)]
    again = our_quorum(folder, kafka)
    again.start()
    await until(lambda: names[-1] in again.image.topics, "what was written while it was away")
    assert set(names) <= set(again.image.topics)
    again.close()
    fresh = our_quorum(folder.with_name("fresh"), kafka)
    fresh.start()
    await until(lambda: names[-1] in fresh.image.topics, "what the snapshot holds")
    assert fresh.log.log_start_offset > 0, "no snapshot was installed"
    assert fresh.image == again.image
    fresh.close()


def describe(observer: Observer) -> tuple[int, set[tuple[int, Uuid]]]:
    """Return the leader, and the observers but our instrument."""
    part = RequestPartitionData(partition_index=0)
    topic = RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    answer = observer.ask(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
    found = answer.topics[0].partitions[0]
    others = {(each.replica_id, each.replica_directory_id) for each in found.observers}
    return found.leader_id, others - {(observer.replica.id, observer.replica.directory_id)}


def test_it_follows_kafkas_leaders(kafka: KafkaQuorum, tmp_path: Path) -> None:
    replica = ReplicaKey(9000, Uuid(b"an instrument..!"))
    with Observer([each.port for each in kafka.voters], CLUSTER_ID, replica) as observer:
        asyncio.run(follow(tmp_path / "ours", kafka, observer))
