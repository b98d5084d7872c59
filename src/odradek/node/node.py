"""A node: the roles of its ``process.roles``, put together. The composition root.

Started in this order: listen (so that the ports are known; requests are refused until ready), lock
the log directories, take part in the metadata quorum, run the controller, register the broker and
open its logs. Stopped in the reverse one.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.broker.broker_server import BrokerServer
from odradek.broker.connection_events import ConnectionEvents
from odradek.broker.forwarding import ForwardingController
from odradek.broker.listener_certificates import ListenerCertificates
from odradek.broker.listeners import client_listeners, controller_listeners, server_limits
from odradek.broker.metrics.registry import ControllerMetrics, NodeMetrics
from odradek.control.controller_server import ControllerServer
from odradek.controller.config_rules import TopicConfigRules
from odradek.core.config import BrokerConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.core.slices import Handle, Slices
from odradek.metadata.image import MetadataUpdate
from odradek.metadata.nodes import Endpoint
from odradek.metadata.record_versions import VersionedRecord
from odradek.net.server import ConnectionInfo, Reply, Server
from odradek.node.controller_access import (
    FORWARDING_IN_FLIGHT_MAX,
    ControllerAccess,
)
from odradek.node.identity import find_cluster_id
from odradek.node.loop_watch import LoopWatch
from odradek.node.ports import real_ports
from odradek.protocol.framing import Request
from odradek.quorum.metadata_damage import MetadataDamage
from odradek.quorum.metadata_log import METADATA_PARTITION
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.quorum.metadata_snapshots import read_bootstrap
from odradek.quorum.node_ports import NodePorts
from odradek.quorum.quorum_listener import LeaderAndEpoch, QuorumListener
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel_port import ChannelOwner, RaftChannel
from odradek.raft.messages import ReplicaKey
from odradek.storage.disk import Disk, OsDisk
from odradek.storage.flush_plan import FlushPlan
from odradek.storage.log_dir_files import read_meta_properties
from odradek.storage.log_directory import LogDirectory, open_directories
from odradek.storage.space_reserve import ReservedDisk

if TYPE_CHECKING:
    from odradek.broker.listener_authentication import Authentication
    from odradek.metadata.kept_records import ScramCredentials
    from odradek.net.gate import MakeGate
    from odradek.wire.lane import LaneSettings

STOP_GRACE_MS: Final = 5_000
WORKERS_MAX: Final = 4
RESERVE_BYTES: Final = 1024 * 1024
MEMORY_RESERVE_BYTES: Final = 64 * 1024
"""Of disks that tests have in memory."""


class Node(QuorumListener):
    def __init__(self, config: BrokerConfig, ports: NodePorts | None = None) -> None:
        self.config = config
        """As at the start; ``broker.config`` has what was altered since."""
        self.node_id = config.node_id
        self.ports = ports or real_ports()
        self.clock = self.ports.clock
        self.failed = asyncio.Event()
        """Set when the node cannot go on; ``failure`` says why. Its owner stops it then."""
        self._hurried = asyncio.Event()
        self.failure: Exception | None = None
        self.on_ready: Callable[[str, int], None] = _nobody
        """Called with host and port of each listener as soon as it serves its requests."""
        self._directories = [PurePath(path) for path in config.log_dirs]
        self._connection_events = ConnectionEvents(self.clock)
        self._slices = Slices(self.clock.monotonic_us, _call_soon)
        self._incarnation_id = Uuid.random(self.ports.random)
        self._controller: ControllerServer | None = None
        self._loop_watch = LoopWatch(self._slices.stalls, self._count_requests)
        self._broker: BrokerServer | None = None
        self._authentication: Authentication | None = None

    @property
    def broker(self) -> BrokerServer:
        """The broker's role."""
        assert self._broker is not None, "not started, or no broker"
        return self._broker

    @property
    def controller(self) -> ControllerServer:
        """The controller's role."""
        assert self._controller is not None, "not started, or no controller"
        return self._controller

    # Life.

    async def start(self) -> None:
        """Return when requests are served: by a broker when it is unfenced.

        Raises:
            ConfigError: A listener cannot be had as it is configured.
            OSError: An address cannot be listened on.
            DirectoryRefusedError: A log directory belongs to another node, or is in use.
            LifecycleEndedError: No controller takes this broker.
        """
        begun_ms = self.clock.monotonic_ms()
        self.server = self._make_server()
        await self.server.start()
        self._loop_watch.start()
        try:
            await self._start_roles()
        except BaseException:
            self._loop_watch.stop()
            await self.server.stop(0)
            raise
        self._wait_elsewhere()
        if self._broker is not None:
            self._broker.serve()
        node_events.started(
            self.config,
            self.cluster_id,
            self.server.endpoints,
            topics=len(self.metadata.image.topics),
            took_ms=self.clock.monotonic_ms() - begun_ms,
        )
        self._report_ready(is_controllers=False)

    def _make_server(self) -> Server:
        config = self.config
        gates_of = self._gates_of
        clients = client_listeners(config, gates_of) if config.is_broker else []
        controllers = controller_listeners(config, gates_of) if config.is_controller else []
        self._certificates = ListenerCertificates(clients)
        return Server(
            [*clients, *controllers],
            self._handle,
            server_limits(config),
            on_event=self._connection_events,
            network=self.ports.network,
        )

    def _gates_of(self, config: BrokerConfig, listener: str) -> "MakeGate":
        if self._authentication is None:
            # Most nodes have no listener with SASL.
            from odradek.broker.listener_authentication import Authentication

            self._authentication = Authentication(
                self._scram_credentials,
                now_ms=self.clock.monotonic_ms,
                secret_bytes=self.ports.secret_bytes,
            )
        return self._authentication.gates_of(config, listener)

    def _scram_credentials(self) -> "ScramCredentials":
        if not self.is_ready:
            # A user that this node has not heard of yet must not be told that it does not exist.
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "starting or stopping")
        return self.metadata.image.scram_credentials

    async def _start_roles(self) -> None:
        disk = self.ports.disk
        self.cluster_id = find_cluster_id(disk, self.config, self.ports.random)
        directories = open_directories(
            disk,
            self._directories,
            cluster_id=self.cluster_id,
            node_id=self.node_id,
            random=self.ports.random,
            format_new=True,
            reserve_bytes=_reserve_bytes(disk),
        )
        self._workers = self.ports.make_workers(WORKERS_MAX, "odradek-disk")
        with ExitStack() as undo:  # a start that fails leaves what is on disk as it is
            for directory in directories:
                undo.callback(directory.unlock)
            self.metadata = self._make_quorum(directories)
            self._controller_metrics = ControllerMetrics(
                self.node_id, self.metadata, self.server, self._slices.stalls, self.clock
            )
            self._controller = self._make_controller() if self.config.is_controller else None
            self._access = self._make_access()
            undo.callback(self._access.close)
            undo.callback(self.metadata.abandon)
            self._start_quorum()
            self._report_ready(is_controllers=True)
            if self.config.is_broker:
                self._broker = self._make_broker(directories)
                undo.callback(self._broker.abandon)
                await self._broker.start()
            undo.pop_all()

    def _report_ready(self, *, is_controllers: bool) -> None:
        names = self.config.controller_listener_names
        for name, (host, port) in self.server.endpoints.items():
            if (name in names) is is_controllers:
                self.on_ready(host, port)

    def _start_quorum(self) -> None:
        if self._controller is not None:
            self.metadata.add_listener(self._controller)
        self.metadata.add_listener(self)
        self.metadata.start()
        if not self.is_alone:
            self._wait_elsewhere()
        if self._controller is not None and not self.is_alone:
            channel = self._access.channel(
                "controller-registration", repeats_lost=True, timeout_ms=60_000
            )
            self._controller.start(self._controller_endpoints(), channel)

    @property
    def is_alone(self) -> bool:
        """Whether no other node can be part of the cluster: then no disk is waited for at start."""
        controllers, listeners = self.config.controller_listener_names, self.config.listeners
        has_listener = any(each.name in controllers for each in listeners)
        return self.metadata.settings.is_alone and not has_listener

    def _wait_elsewhere(self) -> None:
        """Let threads wait for the disk, and let others have turns on the loop, from now on."""
        self.metadata.flush_with(self._flush_on_thread)
        self.metadata.load_with(
            lambda steps: self._slices.run(steps, lambda _: None, self._on_load_failed)
        )
        self.metadata.work_with(self._workers.run)

    # The parts.

    def _make_controller(self) -> ControllerServer:
        rules = None
        if self.config.is_broker and self.metadata.settings.is_alone:
            rules = TopicConfigRules(self._current_config, self._certificates.check)
        return ControllerServer(
            self.config,
            self.metadata,
            cluster_id=self.cluster_id,
            clock=self.clock,
            random=self.ports.random,
            slices=self._slices,
            rules=rules,
            own_incarnation_id=self._incarnation_id if self.config.is_broker else None,
            formatted=self._read_formatted,
            when_published=self._when_published,
            on_fault=self._on_controller_fault,
        )

    def _read_formatted(self) -> tuple[VersionedRecord, ...] | None:
        records = read_bootstrap(self.ports.disk, PurePath(self.config.metadata_log_dir))
        return None if records is None else tuple(records)

    def _controller_endpoints(self) -> dict[str, Endpoint]:
        protocols = self.config.security_protocols
        return {
            each.name: Endpoint(each.name, each.host, each.port, protocols[each.name].number)
            for each in self.config.advertised_controller_listeners
        }

    def _make_access(self) -> ControllerAccess:
        apis = None if self._controller is None else self._controller.apis
        lanes = cache(self._lane_settings)
        if self.config.controller_listener_names:
            lanes()  # certificates that cannot be read are refused at the start
        return ControllerAccess(self.config, self.metadata, lanes, self.ports.random, apis)

    def _lane_settings(self) -> "LaneSettings":
        from odradek.wire.lane import LaneSettings  # a node that is alone needs none

        config = self.config
        timeout_ms = config.integer("controller.quorum.request.timeout.ms")
        names = config.controller_listener_names
        tls, login = None, None
        if names:
            from odradek.wire.peer_security import peer_security  # with all that TLS needs

            tls, login = peer_security(config, names[0])
        return LaneSettings(
            client_id=str(self.node_id),
            request_timeout_ms=timeout_ms,
            connect_timeout_ms=timeout_ms,
            backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
            tls=tls,
            login=login,
        )

    def _make_broker(self, directories: Sequence[LogDirectory]) -> BrokerServer:
        config, access = self.config, self._access
        forwarding = access.channel(
            "forwarding",
            repeats_lost=True,
            timeout_ms=config.integer("request.timeout.ms"),
            in_flight_max=FORWARDING_IN_FLIGHT_MAX,
        )
        heartbeats = access.channel(
            "heartbeat",
            repeats_lost=True,
            timeout_ms=config.integer("broker.session.timeout.ms"),
        )
        isr_channel = access.channel(
            "alter-partition",
            repeats_lost=True,
            timeout_ms=config.integer("request.timeout.ms"),
        )
        directories_channel = access.channel(
            "directories",
            repeats_lost=True,
            timeout_ms=config.integer("request.timeout.ms"),
        )
        return BrokerServer(
            config,
            self.ports,
            cluster_id=self.cluster_id,
            server=self.server,
            directories=directories,
            metadata=self.metadata,
            workers=self._workers,
            slices=self._slices,
            certificates=self._certificates,
            controller=ForwardingController(forwarding),
            heartbeats=heartbeats,
            isr_channel=isr_channel,
            directories_channel=directories_channel,
            incarnation_id=self._incarnation_id,
            fail=self.fail,
        )

    def _make_quorum(self, directories: Sequence[LogDirectory]) -> MetadataQuorum:
        """Make what follows the metadata log; it is not started.

        Raises:
            DirectoryRefusedError: It is damaged, or another node's.
        """
        disk = self.ports.disk
        folder = PurePath(self.config.metadata_log_dir) / str(METADATA_PARTITION)
        meta = read_meta_properties(disk, folder.parent)
        assert meta is not None, "the directory was formatted"
        settings = QuorumSettings.of(self.config)
        damage = MetadataDamage(
            disk, self._directories, folder, is_only_voter=settings.is_only_voter
        )
        if settings.can_become_voter:
            damage.check_exists()
        # It may be in a folder of its own, by metadata.log.dir.
        home = next((each for each in directories if each.path == folder.parent), None)
        return MetadataQuorum(
            disk if home is None else ReservedDisk(disk, home.reserve),
            folder,
            key=ReplicaKey(self.node_id, meta.directory_id or Uuid(16)),
            cluster_id=self.cluster_id,
            clock=self.clock,
            random=self.ports.random,
            settings=settings,
            on_loss=damage.on_loss,
            on_full=_ignore if home is None else home.on_io_error,
            on_failed=self.fail,
            make_channel=self._make_raft_channel,
        )

    def _make_raft_channel(self, owner: ChannelOwner) -> RaftChannel:
        from odradek.quorum.raft_channel import RaftLanes  # a voter that is alone needs none

        return RaftLanes(owner, self._lane_settings(), self.ports.random)

    async def stop(self) -> None:
        """Answer who waits, close connections and write everything down.

        A broker of a cluster first lets others lead its partitions, and an active controller lets
        another one take over. After a failure nothing more is written: as after a crash, the next
        start recovers.
        """
        begun_ms = self.clock.monotonic_ms()
        if self._broker is not None:
            if self.failure is None and not self.is_alone:
                await self._broker.leave()
            self._broker.stop()
        if self._controller is not None:
            if self.failure is None:
                await self._stop_leading()
            self._controller.stop()
        self._access.close()
        await self.server.stop(STOP_GRACE_MS if self.failure is None else 0)
        self._slices.stop()
        self._connection_events.close()
        if self._broker is not None:
            await self._broker.opening.stop()
        self._loop_watch.stop()
        await self._workers.stop()
        is_clean = self._write_down()
        took_ms = self.clock.monotonic_ms() - begun_ms
        node_events.stopped(self.node_id, took_ms, clean=is_clean)

    def hurry(self) -> None:
        """Have ``stop``, which is under way, wait for no other node: they may be gone as well."""
        self._hurried.set()
        if self._broker is not None:
            self._broker.lifecycle.give_up_leaving()

    async def _stop_leading(self) -> None:
        done = asyncio.Event()
        self.metadata.stop_leading(done.set)
        await wait_for_any(done, self._hurried)

    def _write_down(self) -> bool:
        """Close what is on disk; return whether the next start need not recover."""
        if self.failure is not None:
            self.metadata.abandon()
            if self._broker is not None:
                self._broker.abandon()
            return False
        self.metadata.close()
        if self._broker is None:
            return True
        self._broker.close()
        return self._broker.store.is_closed_cleanly

    def fail(self, what: str, error: Exception) -> None:
        """Give up: without its metadata log a node can decide nothing more.

        A second try would prove nothing. After a failed fsync the next one may succeed, and what
        the first should have written is lost all the same.
        """
        if self.failure is None:
            self.failure = error
            node_events.failed(what, error)
            self.failed.set()

    # Requests.

    def _handle(self, request: Request, connection: ConnectionInfo, reply: Reply) -> bool | None:
        if self.failure is not None:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "stopping")
        if connection.listener in self.config.controller_listener_names:
            if self._controller is None:
                raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "starting")
            self._controller.listener.handle(request, connection, reply)
            return None
        broker = self._broker
        if broker is None or not broker.is_ready:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "starting or stopping")
        return broker.dispatch(request, connection, reply)

    def _count_requests(self) -> int:
        return self.server.counters.requests

    @property
    def is_ready(self) -> bool:
        """Whether requests are served: not while it starts, stops or has failed."""
        if self.failure is not None:
            return False
        if self.config.is_broker:
            return self._broker is not None and self._broker.is_ready
        return self._controller is not None

    @property
    def problems(self) -> list[str]:
        """Why it does not do all that it should: nothing if it is well."""
        return [] if self._broker is None else self._broker.problems

    @property
    def metrics(self) -> NodeMetrics:
        """What is measured; a node that is no broker has less."""
        if self._broker is not None:
            return self._broker.metrics
        return self._controller_metrics

    async def on_clock_advanced(self) -> None:
        """Do now what became due because the clock was moved on, and return when it is done."""
        if self._broker is not None:
            await self._broker.on_clock_advanced()
        if self._controller is not None:  # after the heartbeat of its own broker
            self._controller.on_clock_advanced()

    # The metadata log.

    def on_update(self, update: MetadataUpdate) -> None:
        if self._broker is not None:
            self._broker.on_update(update)
        else:
            counting = self._controller_metrics.partition_changes.count_in_steps(update)
            self._slices.run(counting, lambda _: None)

    def on_loaded(self, end_offset: int) -> None:  # noqa: ARG002
        if self._broker is not None:
            self._broker.on_loaded()

    def on_leader_changed(self, leader: LeaderAndEpoch) -> None:  # noqa: ARG002
        self._access.on_leader_changed()

    def _when_published(self, then: Callable[[], None]) -> None:
        """Call back when what is committed can be used here: a client may ask this node next."""
        if self._broker is None:
            then()
        else:
            self._broker.when_published(then)

    def _current_config(self) -> BrokerConfig:
        return self.config if self._broker is None else self._broker.config

    def _on_controller_fault(self, what: str, error: Exception) -> None:
        if isinstance(error, OSError):
            self.fail(what, error)

    def _on_load_failed(self, error: Exception) -> None:
        if not isinstance(error, OSError):
            raise error
        self.fail("the metadata log cannot be read", error)

    def _flush_on_thread(self, plan: FlushPlan, then: Callable[[], None]) -> None:
        def finished(error: BaseException | None) -> None:
            try:
                if error is not None:
                    raise error
                then()
            except OSError as fatal:
                self.fail("the metadata log cannot be written", fatal)

        broker = self._broker
        done = finished if broker is None else broker.metrics.timed_flush(finished)
        self._workers.run(plan.run, done)


def _call_soon(call: Callable[[], None]) -> Handle:
    return asyncio.get_running_loop().call_soon(call)


def _reserve_bytes(disk: Disk) -> int:
    return RESERVE_BYTES if isinstance(disk, OsDisk) else MEMORY_RESERVE_BYTES


async def wait_for_any(*events: asyncio.Event) -> None:
    """Return when one of the events is set."""
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _nobody(_host: str, _port: int) -> None:
    pass


def _ignore(_error: OSError) -> None:
    """Do nothing: the metadata log is in no log directory that could be full."""
