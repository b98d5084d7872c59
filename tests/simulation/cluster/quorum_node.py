"""A node that is a member of the metadata quorum and nothing else: for storms on that alone.

It has the quorum as nodes have it, with log, lanes, listener and worker threads. While it leads it
appends a topic now and then, and notes which of them were committed.
"""

import asyncio
from collections.abc import Callable
from pathlib import PurePath
from typing import Final

from odradek.broker.listeners import controller_listeners, server_limits
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import QuorumRecords
from odradek.net.server import ConnectionInfo, Reply, Server
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import Request, frame_response
from odradek.protocol.generated.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from odradek.protocol.generated.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    TopicRecord,
)
from odradek.protocol.message import Message
from odradek.quorum.metadata_log import METADATA_PARTITION
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.node_ports import NodePorts
from odradek.quorum.quorum_listener import NotLeaderError, QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel import RaftLanes
from odradek.quorum.voters_record import voters_to_record
from odradek.raft.messages import ReplicaKey
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log_directory import open_directories
from odradek.wire.lane import LaneSettings
from tests.simulation.cluster.ledger import Ledger

RAFT_KEYS: Final = (1, 52, 53, 54, 59, 80, 81, 82)
_METADATA_VERSION: Final = 25


class QuorumNode(QuorumListener):
    def __init__(self, ledger: Ledger, config: BrokerConfig, ports: NodePorts) -> None:
        self._ledger = ledger
        self._config = config
        self._ports = ports
        self.failed = asyncio.Event()
        self.failure: Exception | None = None
        self.metadata: MetadataQuorum | None = None

    async def start(self) -> None:
        config, ports = self._config, self._ports
        self.workers = ports.make_workers(4, "disk")
        directories = [PurePath(each) for each in config.log_dirs]
        (home,) = open_directories(
            ports.disk,
            directories,
            cluster_id=self._ledger.cluster_id,
            node_id=config.node_id,
            random=ports.random,
            format_new=False,
        )
        quorum = self.metadata = MetadataQuorum(
            ports.disk,
            directories[0] / str(METADATA_PARTITION),
            key=ReplicaKey(config.node_id, home.directory_id),
            cluster_id=self._ledger.cluster_id,
            clock=ports.clock,
            random=ports.random,
            settings=QuorumSettings.of(config),
            make_channel=lambda owner: RaftLanes(owner, LaneSettings("raft", 2_000), ports.random),
            on_failed=self._fail,
        )
        limits = server_limits(config)
        listeners = controller_listeners(config)
        self.server = Server(listeners, self._handle, limits, network=ports.network)
        await self.server.start()
        quorum.add_listener(self)
        quorum.start()
        quorum.flush_with(self._flush)
        quorum.work_with(self.workers.run)
        if config.is_controller:
            self._writing = asyncio.create_task(self._write())

    async def stop(self) -> None:
        assert self.metadata is not None
        if self.failure is None:
            stopped = asyncio.Event()
            self.metadata.stop_leading(stopped.set)
            await stopped.wait()
        if self._config.is_controller:
            self._writing.cancel()
        await self.server.stop(0)
        await self.workers.stop()
        if self.failure is None:
            self.metadata.close()
        else:
            self.metadata.abandon()

    def _fail(self, _what: str, error: Exception) -> None:
        if self.failure is None:
            self.failure = error
            self.failed.set()

    def _flush(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        def done(error: BaseException | None) -> None:
            if isinstance(error, OSError):
                self._fail("cannot be written", error)
            elif error is not None:
                raise error
            else:
                then()

        self.workers.run(plan.run, done)

    def _handle(self, request: Request, _info: ConnectionInfo, reply: Reply) -> None:
        def answer(message: Message) -> None:
            reply(frame_response(message, request.api, request.version, request.correlation_id))

        if request.api.name == "ApiVersions":
            apis = [api_for_key(key) for key in RAFT_KEYS]
            keys = [ApiVersion(api_key=18, max_version=4)]
            keys += [ApiVersion(api_key=x.key, max_version=x.version_stable_max) for x in apis]
            features = [SupportedFeatureKey(name=KRAFT_VERSION, max_version=1)]
            answer(ApiVersionsResponse(api_keys=keys, supported_features=features))
            return
        if self.failure is not None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "failed")
        assert self.metadata is not None
        self.metadata.handle(request.decode(), request.version, answer)

    async def _write(self) -> None:
        """Append a topic now and then while this node leads; a quorum's first records first."""
        quorum = self.metadata
        assert quorum is not None
        while True:
            await asyncio.sleep(self._ports.random.uniform(0.05, 1.0))
            end_offset = quorum.log_end_offset
            if not quorum.is_leader or quorum.loaded_offset < end_offset:
                continue
            if quorum.image.metadata_version is None:
                level = FeatureLevelRecord(name="metadata.version", feature_level=_METADATA_VERSION)
                self._append([VersionedRecord(level, 0)], lambda: None)
            else:
                self._append_topic()

    def upgrade(self) -> bool:
        """Let the log name the voters (``kraft.version`` 1), as the leader that knows all of them.

        As the controller does for UpdateFeatures; return whether it was appended.
        """
        quorum = self.metadata
        assert quorum is not None
        voters = quorum.upgraded_voters
        if voters is None or not voters.supports(1) or quorum.appended_kraft_version:
            return False
        try:
            quorum.append_quorum(QuorumRecords(1, voters_to_record(voters)), quorum.epoch)
        except (NotLeaderError, ApiError):
            return False
        return True

    def _append_topic(self) -> None:
        self._ledger.topics_named += 1
        name = f"topic-{self._ledger.topics_named}"
        topic_id = Uuid.random(self._ports.random)
        partition = PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            directories=[Uuid(16)],
        )
        records = [
            VersionedRecord(TopicRecord(name=name, topic_id=topic_id), 0),
            VersionedRecord(partition, 1),
        ]
        self._append(records, lambda: self._ledger.on_created(name, topic_id))

    def _append(self, records: list[VersionedRecord], then: Callable[[], None]) -> None:
        quorum = self.metadata
        assert quorum is not None
        try:
            end_offset = quorum.append(quorum.new_batch(records), quorum.epoch)
        except (NotLeaderError, ApiError):
            return
        epoch = quorum.epoch

        def loaded() -> None:
            if quorum.is_leader and quorum.epoch == epoch:  # else other records may be there
                then()

        quorum.when_loaded(end_offset, loaded)
