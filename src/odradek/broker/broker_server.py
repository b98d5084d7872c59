"""The broker's role: logs, request handlers, coordinators.

One event loop owns all state; there are no locks. Requests are handled where they arrive, what must
wait for the disk goes to threads (``Workers``), what must wait for others is a delayed operation.

It starts when the node listens, has locked its directories and follows the metadata quorum. It
opens the logs, registers with the controller and becomes leader of what the image says.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import PurePath
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from odradek.broker import node_events
from odradek.broker.auto_topics import AutoTopics
from odradek.broker.clock import WallClockSteps
from odradek.broker.config_rules import LastLogSettings, leader_settings, store_config
from odradek.broker.controller_port import ControllerPort
from odradek.broker.delayed import DelayedOperations
from odradek.broker.directory_assignments import DirectoryAssignments
from odradek.broker.dispatch import Dispatcher
from odradek.broker.fetch_sessions import FetchSessions
from odradek.broker.fetchers import Fetchers
from odradek.broker.group_coordinator import GroupCoordinator
from odradek.broker.internal_topics import InternalTopics
from odradek.broker.isr_proposals import IsrProposals
from odradek.broker.lifecycle import BrokerLifecycle
from odradek.broker.lifecycle_driver import (
    LifecycleDriver,
    LifecycleEndedError,
    lifecycle_settings,
)
from odradek.broker.listener_certificates import ListenerCertificates
from odradek.broker.metadata_publisher import MetadataPublisher
from odradek.broker.metrics.registry import Metrics
from odradek.broker.opening import Opening
from odradek.broker.partition import Partition, ReplicaPorts
from odradek.broker.peers import Peers
from odradek.broker.producer_ids import ProducerIds
from odradek.broker.registration import registration_request
from odradek.broker.replicas import Replicas
from odradek.broker.throttles import Throttles
from odradek.broker.transaction_coordinator import TransactionCoordinator
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import Slices, Steps
from odradek.metadata.config_resource import ConfigResource
from odradek.metadata.dynamic_config import with_dynamic_configs
from odradek.metadata.features import CORDONED_LOG_DIRS_FROM, DIRECTORY_ASSIGNMENT_FROM
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.nodes import BrokerImage
from odradek.metadata.touched import TopicIdPartition
from odradek.net.server import Handler, Server
from odradek.quorum.active_controller import ControllerChannel
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.node_ports import NodePorts, Workers
from odradek.replication.lag_rounds import LagRounds
from odradek.replication.leadership import Broker, LeaderSettings
from odradek.storage.log import Log
from odradek.storage.log_directory import LogDirectory
from odradek.storage.log_loading import LoadingProgress
from odradek.storage.log_store import LogStore
from odradek.storage.log_work import FlushWork, Work
from odradek.storage.recovery import LogSettings

if TYPE_CHECKING:
    from odradek.broker.compaction import Compaction

R = TypeVar("R")

UPKEEP_MS_MAX: Final = 60_000


async def run_in_slices(slices: Slices, steps: Steps[R]) -> R:
    """Do work in slices and return its result; small work is done at once."""
    done: asyncio.Future[R] = asyncio.get_running_loop().create_future()
    slices.run(steps, done.set_result, done.set_exception)
    return await done


class BrokerServer:
    def __init__(
        self,
        config: BrokerConfig,
        ports: NodePorts,
        *,
        cluster_id: str,
        server: Server,
        directories: Sequence[LogDirectory],
        metadata: MetadataQuorum,
        workers: Workers,
        slices: Slices,
        certificates: ListenerCertificates,
        controller: ControllerPort,
        heartbeats: ControllerChannel,
        isr_channel: ControllerChannel,
        directories_channel: ControllerChannel,
        incarnation_id: Uuid,
        fail: Callable[[str, Exception], None],
    ) -> None:
        """Make a broker that is not started.

        ``directories`` are locked. ``workers`` wait for the disk, and ``slices`` takes turns with
        others on the loop. ``heartbeats``, ``isr_channel`` and ``directories_channel`` are channels
        that nothing else uses. ``incarnation_id`` is of this start of the process. ``fail`` is
        called when the node cannot go on.
        """
        self.config = config
        self.node_id = config.node_id
        self.cluster_id = cluster_id
        self.server = server
        self.metadata = metadata
        self.clock = ports.clock
        self.random: Random = ports.random
        self.threads = workers
        self.slices = slices
        self.fail = fail
        self.throttles = Throttles(config, self.clock.monotonic_ms)
        self._disk = ports.disk
        self._clock_steps = WallClockSteps(self.clock)
        self._certificates = certificates
        self.metrics = Metrics(self)
        self.delayed = DelayedOperations(self._arm_delayed)
        slots_max = config.max_incremental_fetch_session_cache_slots
        self.fetch_sessions = FetchSessions(slots_max, self.clock.monotonic_ms, self.random)
        self.dispatch: Handler = Dispatcher(self).handle  # faults put themselves in front of it
        self.is_ready = False
        self._is_published = False
        self._delayed_timer: asyncio.TimerHandle | None = None
        self._upkeep_timer: asyncio.TimerHandle | None = None
        self._full_since_ms: dict[PurePath, int] = {}
        self._compaction: Compaction | None = None
        self.producer_ids = ProducerIds(self)
        self.internal_topics = InternalTopics(self)
        self.auto_topics = AutoTopics(self)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.coordinators: Final = {each.topic: each for each in (self.groups, self.transactions)}
        self.publisher = MetadataPublisher(self)
        self._flushes: Counter[TopicPartition] = Counter()
        self.opening = Opening(ports.make_workers(1, "odradek-opening"))
        self.store = self._make_store(directories)
        self.isr_proposals = IsrProposals(self, isr_channel)
        self.directory_assignments = DirectoryAssignments(self, directories_channel)
        self.peers = Peers(config, lambda: metadata.image, self.random)
        self.fetchers = Fetchers(self)
        self._lag_timer: asyncio.TimerHandle | None = None
        self._lag_rounds = LagRounds()
        self.replicas = self._make_replicas()
        self.controller = controller
        self.lifecycle = self._make_lifecycle(heartbeats, incarnation_id)

    def _make_lifecycle(
        self, heartbeats: ControllerChannel, incarnation_id: Uuid
    ) -> LifecycleDriver:
        request = registration_request(self, incarnation_id)
        lifecycle = BrokerLifecycle(request, lifecycle_settings(self.config), self.random)
        return LifecycleDriver(lifecycle, heartbeats, self.clock, on_must_stop=self._on_must_stop)

    def _make_store(self, directories: Sequence[LogDirectory]) -> LogStore:
        self._last_log_settings = LastLogSettings()
        store = LogStore(
            self._disk,
            directories,
            self._settings_for,
            config=store_config(self.config),
            random=self.random,
            now_ms=self.clock.now_ms(),
            monotonic_ms=self.clock.monotonic_ms,
        )
        moves = store.moves
        moves.on_moved = self._on_log_moved
        moves.may_swap = self._may_swap
        moves.on_given_up = self._on_move_given_up
        moves.on_copied = self.throttles.on_copied
        moves.copies_from_ms = self.throttles.copies_from_ms
        return store

    def _make_replicas(self) -> Replicas:
        self._known_brokers: dict[int, tuple[BrokerImage, Broker]] = {}
        ports = ReplicaPorts(
            self.node_id,
            self.clock.monotonic_ms,
            self._find_broker,
            self.isr_proposals.propose,
            self.config.integer("replica.fetch.backoff.ms"),
            self._flush_to_commit,
        )
        return Replicas(self.store, ports, self._leader_settings_for)

    def _may_swap(self, at: TopicPartition, directory_id: Uuid) -> bool:
        """Whether the controller has the replica in the directory that its log moves to."""
        image = self.metadata.image
        topic = image.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if (image.metadata_version or 0) < DIRECTORY_ASSIGNMENT_FROM:
            return True
        if topic is None or partition is None or self.node_id not in partition.replicas:
            return True  # it is about to be deleted
        if partition.directory_of(self.node_id) == directory_id:
            return True
        key = TopicIdPartition(topic.topic_id, at.partition)
        self.directory_assignments.assign(key, directory_id)
        return False

    def _on_move_given_up(self, at: TopicPartition) -> None:
        with suppress(ApiError):  # it was deleted
            self.publisher.report_directory(at)

    def on_directory_known(self, at: TopicPartition) -> None:
        """Swap a log that has waited for the controller."""
        if self.store.moves.go_on(at) and self.is_ready:
            asyncio.get_running_loop().call_soon(self._upkeep)

    def _on_log_moved(self, at: TopicPartition, log: Log) -> None:
        self.replicas.on_log_moved(at, log)
        self.publisher.report_directory(at)

    # Life.

    async def start(self) -> None:
        """Register, catch up with the metadata, open the logs; return when clients may be served.

        Raises:
            LifecycleEndedError: No controller takes this broker; the message says why.
        """
        self.lifecycle.start()
        self.on_loaded()
        await self.lifecycle.until_caught_up()
        # What cannot be used any more is left out; it was valid when it was set.
        image = self.metadata.image
        self.take_dynamic_configs(image, is_start=True)
        self.throttles.on_topics(image, image.configs)
        await run_in_slices(self.slices, self._load_logs())
        self._is_published = True  # what is committed from now on takes effect after all of this
        self.publisher.publish_all(self.metadata.image)
        await self._until_published()
        self.lifecycle.on_logs_loaded()
        await self.lifecycle.until_unfenced()

    async def _until_published(self) -> None:
        published: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.publisher.when_published(lambda: published.set_result(None))
        await published

    def serve(self) -> None:
        """Serve requests from now on, and do what is due from time to time."""
        if self.config.flag("log.cleaner.enable"):
            from odradek.broker.compaction import Compaction  # with all that processes need

            self._compaction = Compaction(
                self.store, self._disk, self.config, self.clock, self.threads
            )
        self.is_ready = True
        self._upkeep()
        self._look_for_lag()

    def _load_logs(self) -> Steps[None]:
        progress: deque[LoadingProgress] = deque(maxlen=1)
        yield from self.store.load_in_steps(self._is_stray, progress.append)
        node_events.logs_opened(progress, self.store.problems)
        node_events.records_lost(self.store.losses)

    def _is_stray(self, partition: TopicPartition, topic_id: Uuid | None) -> bool:
        """Whether a log is of no partition that the metadata has here."""
        image = self.metadata.image
        by_name = image.topics.get(partition.topic)
        topic = by_name if topic_id is None else image.topics_by_id.get(topic_id)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return found is None or self.node_id not in found.replicas

    def take_dynamic_configs(self, image: ClusterImage, *, is_start: bool = False) -> None:
        """Let the configs of this broker be what the image says."""
        self.config, refused = with_dynamic_configs(self.config, image)
        self.throttles.on_config(self.config)
        node_events.configs_refused(refused)
        self.cordon()
        self._certificates.load(self.config, self.server, is_start=is_start)

    @property
    def knows_cordoned(self) -> bool:
        """Whether the metadata.version of the cluster has cordoned log directories (KIP-1066)."""
        return (self.metadata.image.metadata_version or 0) >= CORDONED_LOG_DIRS_FROM

    def cordon(self) -> None:
        """Put new logs elsewhere than into ``cordoned.log.dirs``, and tell the controller."""
        cordoned = self.config.elements("cordoned.log.dirs")
        paths = {PurePath(each) for each in cordoned}
        for directory in self.store.directories:
            directory.is_cordoned = cordoned == ("*",) or directory.path in paths
        ids = [each.directory_id for each in self.store.directories if each.is_cordoned]
        known = [each for each in ids if each is not None]
        self.lifecycle.set_cordoned(known if self.knows_cordoned else None)

    def _on_must_stop(self, why: str) -> None:
        self.fail("the broker has no place in its cluster", LifecycleEndedError(why))

    async def leave(self) -> None:
        """Let others lead what this broker leads, as far as they can; still serves meanwhile."""
        with suppress(LifecycleEndedError):  # it must stop in any case
            await self.lifecycle.leave()

    def stop(self) -> None:
        """Answer who waits; no request is served any more."""
        self.is_ready = False
        self.lifecycle.close()
        for timer in (self._delayed_timer, self._upkeep_timer, self._lag_timer):
            if timer is not None:
                timer.cancel()
        self.fetchers.close()
        self.isr_proposals.close()
        self.directory_assignments.close()
        self.producer_ids.close()
        if self._compaction is not None:
            self._compaction.stop()
        self.publisher.stop()
        self.replicas.refuse_waiters()
        self.delayed.complete_all()
        for coordinator in self.coordinators.values():
            coordinator.stop()

    def close(self) -> None:
        """Write everything down; connections and threads have ended."""
        self.store.close(self.lifecycle.broker_epoch)

    def abandon(self) -> None:
        """Write nothing more: as after a crash, the next start recovers."""
        self.is_ready = False
        self.lifecycle.close()
        self.fetchers.close()
        self.isr_proposals.close()
        self.directory_assignments.close()
        self.producer_ids.close()
        self.transactions.abandon()
        self.store.abandon()

    def look_at_directories(self) -> None:
        """Say which log directories went offline, and give up when too little is left, as Kafka.

        One that is only full is not given up: retention may free it.
        """
        self._look_for_space()
        offline = self.store.take_offline_directories()
        node_events.directories_offline(offline)
        if offline:
            self.replicas.on_directories_failed()
            # In the next turn: a fetcher may be at work on one of them further up.
            asyncio.get_running_loop().call_soon(self._stop_following, offline)
        for directory in offline:
            if directory.directory_id is not None:
                self.lifecycle.on_directory_offline(directory.directory_id)
        broken = {
            each.path: each.error for each in self.store.directories if each.error is not None
        }
        metadata_error = broken.get(PurePath(self.config.metadata_log_dir))
        if metadata_error is not None:
            self.fail("the directory of the metadata log has failed", metadata_error)
        elif len(broken) == len(self.store.directories):
            self.fail("all log directories have failed", next(iter(broken.values())))

    def _stop_following(self, offline: Sequence[LogDirectory]) -> None:
        """Fetch nothing more for replicas that are gone: they would stay in ISRs or join them."""
        for directory in offline:
            for key in list(directory.logs):
                with suppress(ApiError):  # what is there may be a copy that was being made
                    if self.store.directory_of(key) is directory:
                        self.fetchers.remove(key)

    def _look_for_space(self) -> None:
        """Say which log directories are full, and which have space again: once for each change."""
        full, freed = self.store.take_full_changes()
        now_ms = self.clock.monotonic_ms()
        node_events.directories_full(full)
        self._full_since_ms.update({each.path: now_ms for each in full})
        for directory in freed:
            since_ms = self._full_since_ms.pop(directory.path)
            if directory.is_online:
                node_events.directory_has_space(directory, now_ms - since_ms)
        if freed and self.is_ready:
            self.publisher.take_missing()

    @property
    def problems(self) -> list[str]:
        """Why it does not do all that it should: nothing if it is well."""
        return [each.refusal().message for each in self.store.directories if not each.is_writable]

    @property
    def broker_epoch(self) -> int:
        broker = self.image.brokers.get(self.node_id)
        return -1 if broker is None else broker.epoch

    def on_update(self, update: MetadataUpdate) -> None:
        """Let a committed update take effect."""
        if update.delta.brokers_changed:
            self.fetchers.on_brokers_changed(update.delta.brokers_changed)
        if self._is_published:  # else all topics are taken on when the logs are open
            self.publisher.publish(update)

    def when_published(self, then: Callable[[], None]) -> None:
        """Call back when all that is committed has taken effect here, if it is to by now."""
        if self._is_published:
            self.publisher.when_published(then)
        else:
            then()

    def on_loaded(self) -> None:
        """Report how far the metadata has taken effect here, when all that is loaded has."""
        offset = self.metadata.loaded_offset - 1
        self.when_published(partial(self.lifecycle.on_metadata_applied, offset))

    # Requests.

    @property
    def image(self) -> ClusterImage:
        """The newest image all of which has taken effect."""
        publisher = self.publisher
        return publisher.published if publisher.unfinished else self.metadata.image

    @property
    def sends_to_near_replicas(self) -> bool:
        """Whether consumers that name their rack are sent to followers in it (KIP-392)."""
        return bool(self.config.text("replica.selector.class"))

    def choose_controller(self, broker_ids: Sequence[int]) -> int:
        """Return the broker that clients are to take for the controller; -1 if there is none.

        Any will do, since each forwards what is for the controller: a random one spreads the load.
        """
        if not broker_ids:
            return -1
        return broker_ids[0] if len(broker_ids) == 1 else self.random.choice(broker_ids)

    @property
    def metadata_offset(self) -> int:
        return self.image.provenance.last_offset

    def refuse_if_full(self) -> None:
        """Refuse to create partitions that this broker would get and has no space for.

        Only if it is the only broker: of several, another may have space.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR.
        """
        if len(self.image.brokers) <= 1:
            self.store.refuse_if_full()

    @property
    def may_have_space(self) -> bool:
        """Whether new partitions may have a place, here or on another broker."""
        return self.store.has_space or len(self.image.brokers) > 1

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
        try:
            work = self.store.plan_flush(partition)
        except ApiError as error:  # its directory is offline: the others are flushed all the same
            done(partition, error)
            return
        if work is None:
            done(partition, None)
            return

        def finished(error: BaseException | None) -> None:
            self._flushes[partition] -= 1
            work.done(error, self.clock.monotonic_ms())
            self.look_at_directories()
            done(partition, error)
            if error is None:
                self._commit_flushed(partition)

        self._flushes[partition] += 1
        self.threads.run(work.run, self.metrics.timed_flush(finished))

    def _flush_to_commit(self, partition: Partition) -> None:
        """Have a leader commit what waits for its own disk, unless a flush is on its way."""
        if not self._flushes[partition.key]:
            self._flush_log(partition.key, lambda _, __: None)

    def _commit_flushed(self, key: TopicPartition) -> None:
        if not self._flushes[key]:
            del self._flushes[key]
        partition = self.replicas.find(key)
        if partition is not None and partition.has_followers:
            partition.commit()

    # What the metadata log says.

    def _settings_for(self, topic: str) -> LogSettings:
        configs = self.metadata.image.config_of(ConfigResource.topic(topic))
        return self._last_log_settings.find(self.config, configs)

    def _leader_settings_for(self, topic: str) -> LeaderSettings:
        configs = self.metadata.image.config_of(ConfigResource.topic(topic))
        return leader_settings(self.config, configs)

    def _find_broker(self, broker_id: int) -> Broker | None:
        broker = self.metadata.image.brokers.get(broker_id)
        if broker is None:
            return None
        known = self._known_brokers.get(broker_id)
        if known is None or known[0] is not broker:
            found = Broker(broker.epoch, broker.active, broker.fenced)
            known = self._known_brokers[broker_id] = broker, found
        return known[1]

    # Timers.

    def _arm_delayed(self, deadline_ms: int) -> None:
        if self._delayed_timer is not None:
            self._delayed_timer.cancel()
        wait_ms = max(deadline_ms - self.clock.monotonic_ms(), 0)
        loop = asyncio.get_running_loop()
        self._delayed_timer = loop.call_later(
            wait_ms / 1000, self.slices.stalls.run, "delayed operations", self._tick_delayed
        )

    def _tick_delayed(self) -> None:
        self._delayed_timer = None
        self.delayed.tick(self.clock.monotonic_ms())
        deadline_ms = self.delayed.next_deadline_ms()
        if deadline_ms is not None:
            self._arm_delayed(deadline_ms)

    def _look_for_lag(self) -> None:
        """Propose to take followers that lag out of the ISRs, twice in the time they may lag."""
        loop = asyncio.get_running_loop()
        late_ms = 0
        if self._lag_timer is not None:
            late_ms = int((loop.time() - self._lag_timer.when()) * 1_000)
        interval_ms = self.config.integer("replica.lag.time.max.ms") / 2
        self._lag_timer = loop.call_later(interval_ms / 1000, self._look_for_lag)
        if self._lag_rounds.is_held(max(late_ms, self.slices.stalls.ms_max)):
            self.slices.run(self.replicas.shrink_isrs(), lambda _: None)

    def _upkeep(self) -> None:
        if self._upkeep_timer is not None:
            self._upkeep_timer.cancel()
        self._run_upkeep()
        self.look_at_directories()
        deadline_ms = self.store.next_deadline_ms()
        snapshot_ms = self.metadata.upkeep.next_deadline_ms()
        if snapshot_ms is not None:
            deadline_ms = min(deadline_ms, snapshot_ms)
        wait_ms = min(max(deadline_ms - self.clock.monotonic_ms(), 10), UPKEEP_MS_MAX)
        loop = asyncio.get_running_loop()
        self._upkeep_timer = loop.call_later(
            wait_ms / 1000, self.slices.stalls.run, "upkeep of logs", self._upkeep
        )

    def _run_upkeep(self) -> None:
        now_ms, step_ms = self.clock.now_ms(), self._clock_steps.take_step_back_ms()
        if step_ms:
            self.metadata.log.on_clock_set_back(step_ms, now_ms)
            self.store.on_clock_set_back(step_ms, now_ms)
        self.metadata.upkeep.tick()
        for work in self.store.tick(now_ms):

            def finished(error: BaseException | None, work: Work = work) -> None:
                work.done(error, self.clock.monotonic_ms())
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
        self.lifecycle.on_clock_advanced()
        for coordinator in self.coordinators.values():
            coordinator.tick()
        if self._compaction is not None:
            self._compaction.on_clock_advanced()
        now_ms = self.clock.monotonic_ms()
        is_due = True
        while is_due:  # one tick looks at so many logs and hands out so much work, no more
            self._run_upkeep()
            await self.threads.wait_until_idle()
            is_due = self.store.next_deadline_ms() <= now_ms
        if self.is_ready:
            self._upkeep()
