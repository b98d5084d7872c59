"""A node: everything put together. The composition root.

One event loop owns all state; there are no locks. Requests are handled where they arrive, what must
wait for the disk goes to threads (``work``), what must wait for others is a delayed operation.

Started in this order: listen (so that the port is known; requests are refused until ready), lock
the log directories, load the metadata log, lead its quorum, open the logs, register with the
controller, become leader of what the image says. Stopped in the reverse one.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import PurePath
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker import node_events
from odradek.broker.clock import SystemClock
from odradek.broker.config_rules import TopicConfigRules, log_settings
from odradek.broker.connection_events import ConnectionEvents
from odradek.broker.delayed import DelayedOperations
from odradek.broker.dispatch import Dispatcher
from odradek.broker.dynamic_config import with_dynamic_configs
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.group_coordinator import GroupCoordinator
from odradek.broker.internal_topics import InternalTopics, creatable
from odradek.broker.listener_certificates import ListenerCertificates
from odradek.broker.listeners import client_listeners, server_limits
from odradek.broker.metadata_log import METADATA_PARTITION, MetadataLog
from odradek.broker.metadata_publisher import MetadataPublisher
from odradek.broker.metadata_snapshots import read_bootstrap
from odradek.broker.metadata_upkeep import MetadataLogConfig
from odradek.broker.metrics.registry import Metrics
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.registration import registration_request
from odradek.broker.replicas import Replicas
from odradek.broker.transaction_coordinator import TransactionCoordinator
from odradek.broker.work import WorkThreads
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.controller.settings import ControllerSettings
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.config_resource import ConfigResource
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.net.server import ConnectionInfo, Handler, Reply, Server
from odradek.protocol.framing import Request
from odradek.protocol.generated import create_topics
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log_dir_files import read_meta_properties
from odradek.storage.log_loading import LoadingProgress
from odradek.storage.log_store import LogStore
from odradek.storage.log_work import FlushWork, Work, release_files
from odradek.storage.recovery import LogSettings

if TYPE_CHECKING:
    from odradek.broker.compaction import Compaction

R = TypeVar("R")

STOP_GRACE_MS: Final = 5_000
UPKEEP_MS_MAX: Final = 60_000


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
        self.metrics = Metrics(self)
        self.delayed = DelayedOperations(self._arm_delayed)
        slots_max = config.max_incremental_fetch_session_cache_slots
        self.fetch_sessions = FetchSessions(slots_max, self.clock.monotonic_ms, self.random)
        self._disk = disk or OsDisk()
        self._directories = [PurePath(path) for path in config.log_dirs]
        self.dispatch: Handler = Dispatcher(self).handle  # faults put themselves in front of it
        self.failed = asyncio.Event()
        """Set when the node cannot go on; ``failure`` says why. Whoever runs it stops it then."""
        self.failure: OSError | None = None
        self._connection_events = ConnectionEvents(self.clock)
        self._is_ready = False
        self._delayed_timer: asyncio.TimerHandle | None = None
        self._upkeep_timer: asyncio.TimerHandle | None = None
        self._creating: set[str] = set()
        self._compaction: Compaction | None = None
        self.producer_ids = ProducerIds(self)
        self.internal_topics = InternalTopics(self)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.coordinators: Final = {each.topic: each for each in (self.groups, self.transactions)}
        self.publisher = MetadataPublisher(self)

    # Life.

    async def start(self) -> None:
        """Return when requests are served.

        Raises:
            ConfigError: A listener cannot be had as it is configured.
            OSError: An address cannot be listened on.
            DirectoryRefusedError: A log directory belongs to somebody else, or is in use.
        """
        begun_ms = self.clock.monotonic_ms()
        self.server = self._make_server()
        await self.server.start()
        try:
            self._open_storage()
            with self.metadata.flushed_together():
                self._register()
        except BaseException:
            await self.server.stop(0)
            raise
        self.threads = WorkThreads()
        self.metadata.flush_with(self._flush_on_thread)
        self.metadata.upkeep.run_with(self.threads.run)
        if self.config.flag("log.cleaner.enable"):
            from odradek.broker.compaction import Compaction  # with all that processes need

            self._compaction = Compaction(
                self.store, self._disk, self.config, self.clock, self.threads
            )
        self._is_ready = True
        self._upkeep()
        node_events.started(self, self.clock.monotonic_ms() - begun_ms)

    def _make_server(self) -> Server:
        listeners = client_listeners(self.config)
        self._certificates = ListenerCertificates(listeners)
        return Server(
            listeners,
            self._handle,
            server_limits(self.config),
            on_event=self._connection_events,
        )

    def _open_storage(self) -> None:
        self.cluster_id = self._read_cluster_id() or str(Uuid.random(self.random))
        self._metadata: MetadataLog | None = None
        progress: deque[LoadingProgress] = deque(maxlen=1)
        self.store = LogStore.open(
            self._disk,
            self._directories,
            self._settings_for,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            now_ms=self.clock.now_ms(),
            random=self.random,
            format_new=True,
            on_progress=progress.append,
        )
        node_events.logs_opened(progress, self.store.problems)
        settings = ControllerSettings(
            node_id=self.node_id,
            cluster_id=self.cluster_id,
            default_partitions=self.config.num_partitions,
            default_replication_factor=self.config.default_replication_factor,
        )
        rules = TopicConfigRules(lambda: self.config, self._certificates.check)
        self.controller = Controller(settings, rules, self.metadata.image)
        # After the metadata log, which may be opened only now: a topic whose creation a crash cut
        # short is taken on below, when there is an image.
        self.replicas = Replicas(self.store, self.delayed)
        self.publisher.publish_all(self.image)

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
                config=self._metadata_log_config(),
            )
            # What cannot be used any more is left out; it was valid when it was set.
            self.take_dynamic_configs(self._metadata.image, is_start=True)
        return self._metadata

    def take_dynamic_configs(self, image: ClusterImage, *, is_start: bool = False) -> None:
        """Let the configs of this broker be what the image says."""
        self.config, refused = with_dynamic_configs(self.config, image)
        node_events.configs_refused(refused)
        self._certificates.load(self.config, self.server, is_start=is_start)

    def _metadata_log_config(self) -> MetadataLogConfig:
        config = self.config
        return MetadataLogConfig(
            segment_bytes=config.metadata_log_segment_bytes,
            segment_ms=config.metadata_log_segment_ms,
            max_record_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
            max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
            max_retention_bytes=config.metadata_max_retention_bytes,
            max_retention_ms=config.metadata_max_retention_ms,
        )

    def _register(self) -> None:
        now_ms = self.clock.monotonic_ms()
        formatted = read_bootstrap(self._disk, PurePath(self.config.metadata_log_dir))
        self.change(lambda controller: controller.activate(now_ms, formatted))
        request = registration_request(self)
        if self.node_id in self.controller.image.brokers:
            # The log directories are locked: the broker that is registered is this one's past.
            self.change(lambda controller: controller.fence_broker(self.node_id))
        epoch = self.metadata.log.log_end_offset
        self.change(lambda controller: controller.register_broker(request, now_ms, epoch))
        self.change(lambda controller: controller.unfence_broker(self.node_id))

    async def stop(self) -> None:
        """Answer who waits, close connections and write everything down.

        After a failure nothing more is written: as after a crash, the next start recovers.
        """
        begun_ms = self.clock.monotonic_ms()
        self._is_ready = False
        for timer in (self._delayed_timer, self._upkeep_timer):
            if timer is not None:
                timer.cancel()
        if self._compaction is not None:
            self._compaction.stop()
        self.publisher.stop()
        self.delayed.complete_all()
        for coordinator in self.coordinators.values():
            coordinator.stop()
        await self.server.stop(STOP_GRACE_MS if self.failure is None else 0)
        self._connection_events.close()
        await self.threads.stop()
        if self.failure is None:
            self.metadata.close()
            self.store.close(self.clock.now_ms(), self.broker_epoch)
        else:
            release_files(self.metadata.log)
            self.store.abandon()
        took_ms = self.clock.monotonic_ms() - begun_ms
        node_events.stopped(self.node_id, took_ms, clean=self.failure is None)

    def look_at_directories(self) -> None:
        """Say which log directories went offline, and give up when too little is left, as Kafka.

        One that is only full is not given up: retention may free it.
        """
        node_events.directories_offline(self.store.take_offline_directories())
        broken = {
            each.path: each.error
            for each in self.store.directories
            if each.error is not None and not each.is_full
        }
        metadata_error = broken.get(PurePath(self.config.metadata_log_dir))
        if metadata_error is not None:
            self._fail("the directory of the metadata log has failed", metadata_error)
        elif len(broken) == len(self.store.directories):
            self._fail("all log directories have failed", next(iter(broken.values())))

    def _fail(self, what: str, error: OSError) -> None:
        """Give up: without its metadata log a node can decide nothing more.

        A second try would prove nothing. After a failed fsync the next one may succeed, and what
        the first should have written is lost all the same.
        """
        self._is_ready = False
        if self.failure is None:
            self.failure = error
            node_events.failed(what, error)
            self.failed.set()

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    # Requests.

    def _handle(self, request: Request, connection: ConnectionInfo, reply: Reply) -> None:
        if not self._is_ready:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "starting or stopping")
        self.dispatch(request, connection, reply)

    @property
    def is_ready(self) -> bool:
        """Whether requests are served: not while it starts, stops or has failed."""
        return self._is_ready

    @property
    def image(self) -> ClusterImage:
        return self.publisher.image

    @property
    def metadata_offset(self) -> int:
        return self.image.provenance.last_offset

    def change(
        self,
        plan: Callable[[Controller], Result[R]],
        then: Callable[[R], None] = lambda _reply: None,
    ) -> None:
        """Have the controller plan something; ``then`` gets the reply when it has taken effect.

        Raises:
            ApiError: The whole request is refused; nothing was planned.
        """
        result = plan(self.controller)
        for record in result.records:
            self.controller.replay(record.message)
        try:
            self.metadata.append(
                result.records,
                lambda: self.publisher.when_published(lambda: then(result.reply)),
            )
        except OSError as error:
            # The controller has them and the log does not.
            self._fail("the metadata log cannot be written", error)
            raise

    def create_topic_soon(self, name: str) -> None:
        """Create a topic that somebody asked for, with the defaults; once, however many ask."""
        if name in self._creating:
            return
        self._creating.add(name)
        request = create_topics.CreateTopicsRequest(topics=[creatable(name, self.config)])

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
            self.look_at_directories()
            done(partition, error)

        self.threads.run(work.run, self.metrics.timed_flush(finished))

    # What the metadata log says.

    def _settings_for(self, topic: str) -> LogSettings:
        configs = self.metadata.image.config_of(ConfigResource.topic(topic))
        return log_settings(self.config, configs)

    def _on_update(self, update: MetadataUpdate) -> None:
        if hasattr(self, "replicas"):  # else still loading: all topics are taken on afterwards
            self.publisher.publish(update)

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
        if self._upkeep_timer is not None:
            self._upkeep_timer.cancel()
        now_ms = self.clock.now_ms()
        self._run_upkeep(now_ms)
        self.look_at_directories()
        wait_ms = self.store.next_deadline_ms() - now_ms
        snapshot_ms = self.metadata.upkeep.next_deadline_ms()
        if snapshot_ms is not None:
            wait_ms = min(wait_ms, snapshot_ms - self.clock.monotonic_ms())
        wait_ms = min(max(wait_ms, 10), UPKEEP_MS_MAX)
        loop = asyncio.get_running_loop()
        self._upkeep_timer = loop.call_later(wait_ms / 1000, self._upkeep)

    def _run_upkeep(self, now_ms: int) -> None:
        self.metadata.upkeep.tick()
        for work in self.store.tick(now_ms):

            def finished(error: BaseException | None, work: Work = work) -> None:
                work.done(error, self.clock.now_ms())
                self.look_at_directories()

            is_flush = isinstance(work, FlushWork)
            done = self.metrics.timed_flush(finished) if is_flush else finished
            self.threads.run(work.run, done)

    async def on_clock_advanced(self) -> None:
        """Do now what became due because the clock was moved on, and return when it is done.

        A test's clock jumps, and the loop's timers do not know: every timer that is set by the
        node's clock has its place here.
        """
        for timer in (self._delayed_timer, self._upkeep_timer):
            if timer is not None:
                timer.cancel()
        self._tick_delayed()
        for coordinator in self.coordinators.values():
            coordinator.tick()
        if self._compaction is not None:
            self._compaction.on_clock_advanced()
        now_ms = self.clock.now_ms()
        is_due = True
        while is_due:  # one tick looks at so many logs and hands out so much work, no more
            self._run_upkeep(now_ms)
            await self.threads.wait_until_idle()
            is_due = self.store.next_deadline_ms() <= now_ms
        if self._is_ready:
            self._upkeep()

    def _flush_on_thread(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        def finished(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                then()
            except OSError as fatal:
                self._fail("the metadata log cannot be written", fatal)

        self.threads.run(plan.run, self.metrics.timed_flush(finished))
