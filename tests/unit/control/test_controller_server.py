"""The controller's role on a real metadata quorum, and behind a real listener."""

import asyncio
from collections.abc import Callable
from pathlib import PurePath
from random import Random

import pytest

from odradek.broker.clock import SystemClock
from odradek.control.controller_server import ControllerServer
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.core.slices import Slices
from odradek.net.server import Listener, Server
from odradek.protocol.apis import api_named
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.broker_registration import BrokerRegistrationResponse
from odradek.protocol.generated.create_topics import CreateTopicsResponse
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.metadata import MetadataRequest
from odradek.protocol.message import Message
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.raft.messages import ReplicaKey
from odradek.testing.memory_disk import MemoryDisk
from tests.unit.control.control_site import (
    CLUSTER_ID,
    LISTENER,
    api_of,
    caller,
    config,
    new_topics,
    registration,
)
from tests.unit.net.net_harness import on_loop


class RealSite:
    """A quorum of one on a disk in memory, and the controller on top of it."""

    def __init__(self, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk(SystemClock())
        clock, random = SystemClock(), Random(1)
        folder = PurePath("/data/__cluster_metadata-0")
        if not self.disk.exists(folder.parent):
            self.disk.make_folder(folder.parent)
        key = ReplicaKey(1, Uuid(b"directory of one"))
        self.quorum = MetadataQuorum(
            self.disk,
            folder,
            key=key,
            cluster_id=CLUSTER_ID,
            clock=clock,
            random=random,
            settings=QuorumSettings(),
        )
        self.server = ControllerServer(
            config(),
            self.quorum,
            cluster_id=CLUSTER_ID,
            clock=clock,
            random=random,
            slices=Slices(clock.monotonic_us, asyncio.get_running_loop().call_soon),
        )
        self.quorum.add_listener(self.server)
        self.quorum.start()

    async def until_active(self) -> None:
        """Wait for a claim, which takes slices: on a busy machine one may not be enough."""

        async def active() -> None:
            while not self.server.host.is_active:
                await asyncio.sleep(0)

        await asyncio.wait_for(active(), 60)

    async def ask(self, request: Message) -> Message:
        answered: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.server.apis.handle(request, caller(request), answered.set_result)
        return await asyncio.wait_for(answered, 60)

    async def start_broker(self) -> None:
        registered = await self.ask(registration(2))
        assert isinstance(registered, BrokerRegistrationResponse)
        offset = self.quorum.image.provenance.last_offset
        beat = BrokerHeartbeatRequest(
            broker_id=2, broker_epoch=registered.broker_epoch, current_metadata_offset=offset
        )
        await self.ask(beat)

    def stop(self) -> None:
        self.server.stop()
        self.quorum.close()


@on_loop
async def test_a_quorum_of_one_has_an_active_controller_when_it_has_started() -> None:
    site = RealSite()
    await site.until_active()
    await site.start_broker()
    response = await site.ask(new_topics("orders"))
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].error_code == ErrorCode.NONE
    assert "orders" in site.quorum.image.topics
    site.stop()
    refused = await site.ask(new_topics("late"))
    assert isinstance(refused, CreateTopicsResponse)
    assert refused.topics[0].error_code == ErrorCode.NOT_CONTROLLER


@on_loop
async def test_a_restarted_controller_goes_on_from_the_log() -> None:
    first = RealSite()
    await first.until_active()
    await first.start_broker()
    await first.ask(new_topics("orders"))
    first.stop()
    second = RealSite(first.disk)
    await second.until_active()
    response = await second.ask(new_topics("orders", "payments"))
    assert isinstance(response, CreateTopicsResponse)
    assert {each.name: each.error_code for each in response.topics} == {
        "orders": ErrorCode.TOPIC_ALREADY_EXISTS,
        "payments": ErrorCode.NONE,
    }
    second.stop()


@on_loop
async def test_a_thousand_topics_in_one_request_and_others_meanwhile() -> None:
    site = RealSite()
    await site.start_broker()
    answers: list[Message] = []
    request = new_topics(*(f"t{number}" for number in range(1_000)))
    site.server.apis.handle(request, caller(request), answers.append)
    later = await site.ask(new_topics("t7", "another"))
    assert isinstance(later, CreateTopicsResponse)
    (first,) = answers
    assert isinstance(first, CreateTopicsResponse)
    assert {each.error_code for each in first.topics} == {ErrorCode.NONE}
    assert [each.error_code for each in later.topics] == [ErrorCode.TOPIC_ALREADY_EXISTS, 0]
    site.stop()


class Peer:
    """A client of a controller listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, request: Message, version: int | None = None) -> Message:
        api = api_of(request)
        asked = api.version_stable_max if version is None else version
        self._writer.writelines(frame_request(request, api, asked, 5, "peer"))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        correlation_id, body = open_response(memoryview(frame), api, asked)
        assert correlation_id == 5
        return api.response().decode(body, asked)

    def send_header(self, key: int, version: int) -> None:
        header = key.to_bytes(2, "big") + version.to_bytes(2, "big") + bytes(4) + b"\xff\xff\x00"
        self._writer.write(len(header).to_bytes(4, "big") + header)

    async def read_frame(self) -> bytes:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        return await self._reader.readexactly(size)

    def close(self) -> None:
        self._writer.close()


async def serve(site: RealSite) -> tuple[Server, Callable[[], "asyncio.Future[Peer]"]]:
    server = Server([Listener(LISTENER, "127.0.0.1", 0)], site.server.listener.handle)
    await server.start()
    host, port = server.endpoints[LISTENER]

    async def connect() -> Peer:
        return Peer(*await asyncio.open_connection(host, port))

    return server, lambda: asyncio.ensure_future(connect())


@on_loop
async def test_a_controller_listener_serves_controllers_and_closes_on_clients() -> None:
    site = RealSite()
    server, connect = await serve(site)
    peer = await connect()
    versions = await peer.ask(
        ApiVersionsRequest(client_software_name="x", client_software_version="1")
    )
    assert isinstance(versions, ApiVersionsResponse)
    keys = {each.api_key for each in versions.api_keys}
    assert api_named("Metadata").key not in keys
    assert {api_named("Vote").key, api_named("Envelope").key} <= keys
    described = await peer.ask(
        DescribeQuorumRequest(
            topics=[
                RequestTopicData(
                    topic_name="__cluster_metadata",
                    partitions=[RequestPartitionData(partition_index=0)],
                )
            ]
        )
    )
    assert isinstance(described, DescribeQuorumResponse)
    assert described.topics[0].partitions[0].leader_id == 1
    with pytest.raises(asyncio.IncompleteReadError):
        await peer.ask(MetadataRequest())
    other = await connect()
    registered = await other.ask(registration(2))
    assert isinstance(registered, BrokerRegistrationResponse)
    assert registered.error_code == ErrorCode.NONE
    peer.close()
    other.close()
    await server.stop(1_000)
    site.stop()


@on_loop
async def test_api_versions_from_the_future_are_answered() -> None:
    site = RealSite()
    server, connect = await serve(site)
    peer = await connect()
    peer.send_header(api_named("ApiVersions").key, 99)
    frame = await asyncio.wait_for(peer.read_frame(), 60)
    answer = ApiVersionsResponse.decode(memoryview(frame)[4:], 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [each.api_key for each in answer.api_keys] == [18]
    peer.close()
    await server.stop(1_000)
    site.stop()
