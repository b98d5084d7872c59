"""The life of our broker under a real Kafka controller: its quorum, its channel, its lifecycle."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

from odradek.broker.clock import SystemClock
from odradek.broker.lifecycle import BrokerLifecycle
from odradek.broker.lifecycle_driver import LifecycleDriver, LifecycleEndedError
from odradek.broker.lifecycle_events import BrokerState, LifecycleSettings
from odradek.core.config import Address
from odradek.protocol.generated.broker_registration import BrokerRegistrationRequest
from odradek.protocol.generated.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from odradek.quorum.active_controller import ActiveController, ChannelSettings
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.quorum_listener import LeaderAndEpoch, QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel import RaftLanes
from odradek.quorum.remote_controller import RemoteController
from odradek.raft.messages import ReplicaKey
from odradek.storage.disk import OsDisk
from odradek.wire.lane import LaneSettings
from tests.interop.cluster.conftest import new_replica
from tests.interop.cluster.observer import WAIT_SECONDS_MAX, Observer
from tests.interop.cluster.registrations import Registered, new_uuid, registration
from tests.interop.cluster.working_broker import create_topic
from tests.interop.kafka_peer import KafkaQuorum
from tests.interop.kafka_peer.node import CLUSTER_ID
from tests.interop.ports import HOST

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

LANES = LaneSettings("broker", request_timeout_ms=5_000, connect_timeout_ms=5_000)
SETTINGS = LifecycleSettings(
    heartbeat_interval_ms=200,
    registration_ms_max=60_000,
    directory_failure_ms_max=30_000,
    controlled_shutdown=True,
)


class Broker(QuorumListener):
    """What a broker has towards its controllers, without the broker."""

    def __init__(self, folder: Path, port: int, request: BrokerRegistrationRequest) -> None:
        self.request = request
        self.stopped: list[str] = []
        settings = QuorumSettings(
            bootstrap_servers=(Address(HOST, port),), listener="CONTROLLER", can_become_voter=False
        )
        self.quorum = MetadataQuorum(
            OsDisk(),
            folder / "__cluster_metadata-0",
            key=ReplicaKey(request.broker_id, request.log_dirs[0]),
            cluster_id=CLUSTER_ID,
            clock=SystemClock(),
            random=Random(1),
            settings=settings,
            make_channel=lambda owner: RaftLanes(owner, LANES, Random(2)),
        )
        remote = partial(RemoteController, "heartbeat", self.quorum, LANES, Random(3))
        times = ChannelSettings(repeats_lost=True, timeout_ms=5_000)
        self.channel = ActiveController(self.quorum, remote, times, Random(4))
        self.life = LifecycleDriver(
            BrokerLifecycle(request, SETTINGS, Random(5)),
            self.channel,
            SystemClock(),
            on_must_stop=self.stopped.append,
        )
        self.quorum.add_listener(self)

    def start(self) -> None:
        self.quorum.start()
        self.life.start()

    def on_loaded(self, end_offset: int) -> None:
        self.life.on_metadata_applied(end_offset - 1)

    def on_leader_changed(self, leader: LeaderAndEpoch) -> None:
        self.channel.on_leader_changed()

    async def serve(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            await self.life.until_caught_up()
            self.life.on_logs_loaded()
            await self.life.until_unfenced()

    def close(self) -> None:
        self.life.close()
        self.quorum.close()


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaQuorum]:
    """A controller of its own: no broker may go while another lags behind in the log."""
    with KafkaQuorum(tmp_path_factory.mktemp("lifecycle")) as quorum:
        yield quorum


@pytest.fixture
def observer(kafka: KafkaQuorum) -> Iterator[Observer]:
    with Observer([kafka.voters[0].port], CLUSTER_ID, new_replica()) as created:
        created.wait_for_controller(other_than=None)
        yield created


@pytest.fixture
def start(kafka: KafkaQuorum, tmp_path: Path) -> Callable[..., Broker]:
    def start(request: BrokerRegistrationRequest) -> Broker:
        folder = tmp_path / str(request.incarnation_id)
        folder.mkdir()
        broker = Broker(folder, kafka.voters[0].port, request)
        broker.start()
        return broker

    return start


async def lives(start: Callable[..., Broker], observer: Observer) -> None:
    broker = start(registration())
    await broker.serve()
    assert broker.life.state is BrokerState.RUNNING
    known = await asyncio.to_thread(observer.catch_up)
    broker_id = broker.request.broker_id
    assert not known.brokers[broker_id].fenced
    assert known.brokers[broker_id].epoch == broker.life.broker_epoch
    as_known = Registered.__new__(Registered)
    as_known.request = broker.request
    topic = await asyncio.to_thread(create_topic, observer, as_known)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while topic.name not in broker.quorum.image.topics:
            await asyncio.sleep(0.02)
        # It leads a partition that nobody can take over: that must not keep it.
        left = await broker.life.leave()
    assert left.granted
    broker.close()
    gone = await asyncio.to_thread(observer.catch_up)
    assert gone.brokers[broker_id].fenced
    assert gone.topics[topic.name].partitions[0].leader == -1


def test_it_comes_leads_and_goes(start: Callable[..., Broker], observer: Observer) -> None:
    asyncio.run(lives(start, observer))


async def replaced(start: Callable[..., Broker], observer: Observer) -> None:
    first = start(registration())
    await first.serve()
    taken = UnregisterBrokerRequest(broker_id=first.request.broker_id)
    answer = await asyncio.to_thread(observer.ask, taken, UnregisterBrokerResponse)
    assert answer.error_code == 0
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        while not first.stopped:
            await asyncio.sleep(0.02)
    assert "STALE_BROKER_EPOCH" in first.stopped[0]
    first.close()


def test_it_stops_when_it_is_unregistered(start: Callable[..., Broker], observer: Observer) -> None:
    asyncio.run(replaced(start, observer))


async def refused(start: Callable[..., Broker], request: BrokerRegistrationRequest) -> list[str]:
    broker = start(request)
    async with asyncio.timeout(WAIT_SECONDS_MAX):
        with pytest.raises(LifecycleEndedError):
            await broker.life.until_caught_up()
    broker.close()
    return broker.stopped


def test_it_stops_when_it_cannot_do_what_is_switched_on(start: Callable[..., Broker]) -> None:
    reasons = asyncio.run(refused(start, registration({"metadata.version": (7, 30)})))
    assert "UNSUPPORTED_VERSION" in reasons[0]


def test_it_stops_when_another_broker_has_its_directory(
    start: Callable[..., Broker], observer: Observer
) -> None:
    taken = new_uuid()
    Registered(observer, log_dirs=[taken])
    reasons = asyncio.run(refused(start, registration(log_dirs=[taken])))
    assert "INVALID_REGISTRATION" in reasons[0]
