"""A node: everything put together. The composition root.

One event loop owns all state; there are no locks. Requests are handled where they arrive, what must
wait for the disk goes to threads (``work``), what must wait for others is a delayed operation.

Started in this order: listen (so that the port is known; requests are refused until ready), lock
the log directories, load the metadata log, lead its quorum, open the logs, register with the
controller, become leader of what the image says. Stopped in the reverse one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import PurePath
from random import Random
from typing import Final, TypeVar

from odradek.broker.clock import SystemClock
from odradek.broker.compaction import Compaction
from odradek.broker.config_rules import TopicConfigRules, log_settings
from odradek.broker.delayed import DelayedOperations
from odradek.broker.dispatch import Dispatcher
from odradek.broker.dynamic_config import is_for_broker, with_dynamic_configs
from odradek.broker.metadata_log import METADATA_PARTITION, MetadataLog
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.replicas import Replicas
from odradek.broker.work import WorkThreads
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.controller.settings import ControllerSettings
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.config_resource import ConfigResource, ResourceType
from odradek.metadata.features import SUPPORTED_FEATURES
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.topics import TopicImage
from odradek.net.server import ConnectionInfo, Listener, Reply, Server, ServerLimits
from odradek.protocol.framing import Request
from odradek.protocol.generated import broker_registration, create_topics
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.log import FlushPlan
from odradek.storage.log_dir_files import read_meta_properties
from odradek.storage.log_store import LogStore
from odradek.storage.log_work import Work
from odradek.storage.recovery import LogSettings

R = TypeVar("R")

STOP_GRACE_MS: Final = 5_000
UPKEEP_MS_MAX: Final = 60_000
_SECURITY_PROTOCOL_PLAINTEXT: Final = 0


class Node:
    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: Disk | None = None,
        clock: Clock | None = None,
        random: Random | None = None,
    ) -> None:
        self.config = config
        self.node_id = config.node_id
        self.clock = clock or SystemClock()
        self.random = random or Random()  # noqa: S311  # ids, jitter; nothing secret
        self.delayed = DelayedOperations(self._arm_delayed)
        self._disk = disk or OsDisk()
        self._directories = [PurePath(path) for path in config.log_dirs]
        self._dispatcher = Dispatcher(self)
        self._is_ready = False
        self._delayed_timer: asyncio.TimerHandle | None = None
        self._upkeep_timer: asyncio.TimerHandle | None = None
        self._creating: set[str] = set()
        self._compaction: Compaction | None = None
        self.producer_ids = ProducerIds(self)

    # Life.

    async def start(self) -> None:
        """Return when requests are served.

        Raises:
            OSError: An address cannot be listened on.
            DirectoryRefusedError: A log directory belongs to somebody else, or is in use.
        """
        self.server = self._make_server()
        await self.server.start()
        try:
            self._open_storage()
            self._register()
        except BaseException:
            await self.server.stop(0)
            raise
        self.threads = WorkThreads()
        self.metadata.flush_with(self._flush_on_thread)
        if self.config.flag("log.cleaner.enable"):
            self._compaction = Compaction(
                self.store, self._disk, self.config, self.clock, self.threads
            )
        self._is_ready = True
        self._upkeep()

    def _make_server(self) -> Server:
        config = self.config
        listeners = [
            Listener(each.name, each.host, each.port)
            for each in config.listeners
            if each.name not in config.controller_listener_names
        ]
        limits = ServerLimits(
            frame_bytes_max=config.socket_request_max_bytes,
            connections_max=config.max_connections,
            connections_per_ip_max=config.max_connections_per_ip,
            idle_ms_max=config.connections_max_idle_ms,
        )
        return Server(listeners, self._handle, limits)

    def _open_storage(self) -> None:
        self.cluster_id = self._read_cluster_id() or str(Uuid.random(self.random))
        self._metadata: MetadataLog | None = None
        self.store = LogStore.open(
            self._disk,
            self._directories,
            self._settings_for,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            now_ms=self.clock.now_ms(),
            random=self.random,
            format_new=True,
        )
        self.replicas = Replicas(self.store, self.delayed)
        settings = ControllerSettings(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            default_partitions=self.config.num_partitions,
            default_replication_factor=self.config.default_replication_factor,
        )
        rules = TopicConfigRules(lambda: self.config)
        self.controller = Controller(settings, rules, self.metadata.image)
        for topic in self.image.topics.values():
            self._take_on(topic, topic.partitions)

    def _read_cluster_id(self) -> str | None:
        for path in self._directories:
            if self._disk.exists(path):
                meta = read_meta_properties(self._disk, path)
                if meta is not None:
                    return meta.cluster_id
        return None

    @property
    def metadata(self) -> MetadataLog:
        """The metadata log; opened when first needed, which is after its directory is locked.

        Logs are opened with the configs of their topics, so it comes before them.
        """
        if self._metadata is None:
            folder = PurePath(self.config.metadata_log_dir) / str(METADATA_PARTITION)
            meta = read_meta_properties(self._disk, folder.parent)
            assert meta is not None, "the directory was formatted"
            self._metadata = MetadataLog(
                self._disk,
                folder,
                node_id=self.node_id,
                directory_id=meta.directory_id or Uuid(16),
                clock=self.clock,
                random=self.random,
                on_update=self._on_update,
            )
            # What cannot be used any more is left out; it was valid when it was set.
            self.config, _ = with_dynamic_configs(self.config, self._metadata.image)
        return self._metadata

    def _register(self) -> None:
        now_ms = self.clock.monotonic_ms()
        self.change(lambda controller: controller.activate(now_ms))
        listeners = []
        for each in self.config.advertised_listeners:
            bound = self.server.endpoints.get(each.name)
            port = each.port or (bound[1] if bound else 0)
            host = each.host or "localhost"
            listeners.append(
                broker_registration.Listener(
                    name=each.name,
                    host=host,
                    port=port,
                    security_protocol=_SECURITY_PROTOCOL_PLAINTEXT,
                )
            )
        request = broker_registration.BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=Uuid.random(self.random),
            listeners=listeners,
            features=[
                broker_registration.Feature(
                    name=name,
                    min_supported_version=versions.min,
                    max_supported_version=versions.max,
                )
                for name, versions in SUPPORTED_FEATURES.items()
            ],
            rack=self.config.broker_rack,
            log_dirs=[each.directory_id for each in self.store.directories if each.directory_id],
            previous_broker_epoch=_or_none(self.store.previous_broker_epoch),
        )
        if self.node_id in self.controller.image.brokers:
            # The log directories are locked: the broker that is registered is this one's past.
            self.change(lambda controller: controller.fence_broker(self.node_id))
        epoch = self.metadata.log.log_end_offset
        self.change(lambda controller: controller.register_broker(request, now_ms, epoch))
        self.change(lambda controller: controller.unfence_broker(self.node_id))

    async def stop(self) -> None:
        """Answer who waits, close connections and write everything down."""
        self._is_ready = False
        for timer in (self._delayed_timer, self._upkeep_timer):
            if timer is not None:
                timer.cancel()
        if self._compaction is not None:
            self._compaction.stop()
        self.delayed.complete_all()
        await self.server.stop(STOP_GRACE_MS)
        await self.threads.stop()
        self.metadata.close()
        self.store.close(self.clock.now_ms(), self.broker_epoch)

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    # Requests.

    def _handle(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        if not self._is_ready:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "starting or stopping")
        self._dispatcher.handle(request, connection, reply)

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def metadata_offset(self) -> int:
        return self.image.provenance.last_offset

    def change(
        self,
        plan: Callable[[Controller], Result[R]],
        then: Callable[[R], None] = lambda _reply: None,
    ) -> None:
        """Have the controller plan something; ``then`` gets the reply when it is committed.

        Raises:
            ApiError: The whole request is refused; nothing was planned.
        """
        result = plan(self.controller)
        for record in result.records:
            self.controller.replay(record.message)
        self.metadata.append(result.records, lambda: then(result.reply))

    def create_topic_soon(self, name: str) -> None:
        """Create a topic that somebody asked for, with the defaults; once, however many ask."""
        if name in self._creating:
            return
        self._creating.add(name)
        topic = create_topics.CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)
        request = create_topics.CreateTopicsRequest(topics=[topic])

        def created(_reply: object) -> None:
            self._creating.discard(name)

        self.change(lambda controller: controller.create_topics(request, self.random), created)

    def call_when_flushed(
        self, partitions: Sequence[TopicPartition], then: Callable[[list[TopicPartition]], None]
    ) -> None:
        """Call ``then`` when all that these logs hold now is on disk, with those that failed."""
        failed: list[TopicPartition] = []
        left = len(partitions)

        def done(partition: TopicPartition, error: BaseException | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                failed.append(partition)
            if left == 0:
                then(failed)

        for partition in partitions:
            self._flush_log(partition, done)

    def _flush_log(
        self,
        partition: TopicPartition,
        done: Callable[[TopicPartition, BaseException | None], None],
    ) -> None:
        work = self.store.plan_flush(partition)
        if work is None:
            done(partition, None)
            return

        def finished(error: BaseException | None) -> None:
            work.done(error, self.clock.now_ms())
            done(partition, error)

        self.threads.run(work.run, finished)

    # What the metadata log says.

    def _settings_for(self, topic: str) -> LogSettings:
        configs = self.metadata.image.config_of(ConfigResource.topic(topic))
        return log_settings(self.config, configs)

    def _on_update(self, update: MetadataUpdate) -> None:
        if not hasattr(self, "replicas"):
            return  # still loading: all topics are taken on afterwards
        now_ms = self.clock.now_ms()
        delta, image = update.delta, update.image
        for gone in delta.topics_deleted:
            self.replicas.remove_topic(gone.name, gone.topic_id, now_ms)
        for topic_id, number in delta.partitions_changed:
            self._take_on(image.topics_by_id[topic_id], [number])
        if any(is_for_broker(resource, self.node_id) for resource in delta.configs_changed):
            self.config, _ = with_dynamic_configs(self.config, image)
            for name in image.topics:
                self.store.update_settings(name, now_ms)
        for resource in delta.configs_changed:
            if resource.type is ResourceType.TOPIC and resource.name in image.topics:
                self.store.update_settings(resource.name, now_ms)

    def _take_on(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        self.replicas.add_topic(topic.name, topic.topic_id)
        for number in numbers:
            partition = topic.partitions[number]
            if self.node_id in partition.replicas:
                self.replicas.become_leader(
                    TopicPartition(topic.name, number),
                    topic.topic_id,
                    partition.leader_epoch,
                    self.clock.now_ms(),
                )

    # Timers.

    def _arm_delayed(self, deadline_ms: int) -> None:
        if self._delayed_timer is not None:
            self._delayed_timer.cancel()
        wait_ms = max(deadline_ms - self.clock.monotonic_ms(), 0)
        loop = asyncio.get_running_loop()
        self._delayed_timer = loop.call_later(wait_ms / 1000, self._tick_delayed)

    def _tick_delayed(self) -> None:
        self._delayed_timer = None
        self.delayed.tick(self.clock.monotonic_ms())
        deadline_ms = self.delayed.next_deadline_ms()
        if deadline_ms is not None:
            self._arm_delayed(deadline_ms)

    def _upkeep(self) -> None:
        now_ms = self.clock.now_ms()
        for work in self.store.tick(now_ms):

            def finished(error: BaseException | None, work: Work = work) -> None:
                work.done(error, self.clock.now_ms())

            self.threads.run(work.run, finished)
        wait_ms = min(max(self.store.next_deadline_ms() - now_ms, 10), UPKEEP_MS_MAX)
        loop = asyncio.get_running_loop()
        self._upkeep_timer = loop.call_later(wait_ms / 1000, self._upkeep)

    def _flush_on_thread(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        def finished(error: BaseException | None) -> None:
            # Without its metadata log a node can decide nothing more: whoever runs it ends it.
            if error is not None:
                raise error
            then()

        self.threads.run(plan.run, finished)


def _or_none(epoch: int | None) -> int:
    """Return the broker epoch as the protocol has it: -1 for none."""
    return -1 if epoch is None else epoch
