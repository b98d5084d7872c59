"""The controller's role of a node: host, APIs, periodic work and registration, put together.

Life::

    server = ControllerServer(config, quorum, …)
    quorum.add_listener(server)        # before the quorum starts
    quorum.start()                     # may lead at once, if it is alone
    server.start(endpoints, channel)   # listens now: registers
    …
    server.stop()                      # every waiting caller is refused

Requests come in through ``listener.handle`` (a controller listener), ``apis.handle`` (what the
broker of the same process forwards) or ``handle_own``, at any time: where this node is not the
active controller they are refused with NOT_CONTROLLER.
"""

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from odradek.control.cluster_events import cluster_changed
from odradek.control.context import Control, ControlQuorum
from odradek.control.controller_apis import ControllerApis
from odradek.control.controller_host import ControllerHost, OnFault
from odradek.control.controller_listener import ControllerListener
from odradek.control.controller_registration import ControllerRegistration, RegisteredController
from odradek.control.periodic import CallLater, PeriodicSettings, PeriodicWork
from odradek.controller import Controller
from odradek.controller.config_rules import TopicConfigRules
from odradek.controller.settings import ConfigRules, ControllerSettings
from odradek.core.clock import Clock
from odradek.core.config import BrokerConfig
from odradek.core.event import Event
from odradek.core.ids import Uuid
from odradek.core.slices import Slices
from odradek.metadata.dynamic_config import is_for_broker, with_dynamic_configs
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.nodes import Endpoint
from odradek.metadata.record_versions import VersionedRecord
from odradek.net.settings import ANONYMOUS
from odradek.protocol.apis import api_named
from odradek.protocol.message import Message
from odradek.quorum.active_controller import Caller, ControllerChannel
from odradek.quorum.quorum_listener import QuorumListener

_logger: Final = logging.getLogger("odradek.controller")


class ControllerServer(QuorumListener):
    def __init__(
        self,
        config: BrokerConfig,
        quorum: ControlQuorum,
        *,
        cluster_id: str,
        clock: Clock,
        random: Random,
        slices: Slices,
        rules: ConfigRules | None = None,
        own_incarnation_id: Uuid | None = None,
        formatted: Callable[[], tuple[VersionedRecord, ...] | None] = lambda: None,
        when_published: Callable[[Callable[[], None]], None] = lambda then: then(),
        on_fault: OnFault | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        """``rules`` validate configs; without them, by the configs of this node.

        ``own_incarnation_id`` is that of the broker in this process, if there is one.

        ``formatted``, ``when_published`` and ``on_fault`` are the host's. Faults are logged here
        first; an ``OSError`` among them means that the node cannot go on.
        """
        self._quorum = quorum
        self._random = random
        self._own_incarnation_id = own_incarnation_id
        self._call_later = call_later
        self._rules = rules or TopicConfigRules(lambda: self.control.config, any_node=True)
        self._report = on_fault
        self._image = ClusterImage()
        self.host = ControllerHost(
            quorum,
            self._make_controller,
            clock,
            slices,
            formatted=formatted,
            on_active=self._on_active,
            on_inactive=self._on_inactive,
            when_published=when_published,
            on_fault=self._on_fault,
        )
        self.control = Control(self.host, quorum, config, cluster_id, clock, random, slices)
        self.apis = ControllerApis(self.control)
        self.listener = ControllerListener(self.apis, self.control)
        self.periodic = PeriodicWork(
            self.host,
            PeriodicSettings.of(config),
            clock,
            is_alone=self._is_alone,
            call_later=call_later,
        )
        self.registration: ControllerRegistration | None = None

    def start(self, endpoints: Mapping[str, Endpoint], channel: ControllerChannel) -> None:
        """Register this controller, which listens at ``endpoints``, by listener name."""
        incarnation_id = Uuid.random(self._random)
        self.registration = ControllerRegistration(
            RegisteredController(self.control.config.node_id, incarnation_id, endpoints),
            channel,
            self._random,
            self._call_later,
        )
        self.registration.on_image(self.control.image)

    def stop(self) -> None:
        """Decide nothing more, and refuse everyone who waits."""
        self.periodic.stop()
        if self.registration is not None:
            self.registration.stop()
        self.host.on_leadership_lost()

    def handle_own(self, request: Message, reply: Callable[[Message], None]) -> None:
        """Answer a request that this node sends for itself; it goes by no listener."""
        api = api_named(type(request).__name__.removesuffix("Request"))
        names = self.control.config.controller_listener_names
        caller = Caller(
            api=api,
            version=api.version_stable_max,
            principal=ANONYMOUS,
            listener=names[0] if names else "",
            peer_host="127.0.0.1",
            client_id=None,
        )
        self.apis.handle(request, caller, reply)

    def on_clock_advanced(self) -> None:
        """Do now what became due because a test moved the clock on."""
        if self.host.is_active:
            self.periodic.tick()

    # From the quorum.

    def on_leading(self, epoch: int, epoch_start_offset: int) -> None:
        self.host.on_leading(epoch, epoch_start_offset)

    def on_leadership_lost(self) -> None:
        self.host.on_leadership_lost()

    def on_update(self, update: MetadataUpdate) -> None:
        control = self.control
        node_id = control.config.node_id
        before, self._image = self._image, update.image
        if self.host.is_active:
            cluster_changed(before, update)
        if any(is_for_broker(each, node_id) for each in update.delta.configs_changed):
            control.config, _ = with_dynamic_configs(control.config, update.image)
        if self.registration is not None:
            self.registration.on_image(update.image)

    def on_loaded(self, end_offset: int) -> None:
        self.host.on_loaded(end_offset)

    # From the host.

    def _make_controller(self, image: ClusterImage) -> Controller:
        control = self.control
        settings = controller_settings(control.config, control.cluster_id, self._own_incarnation_id)
        return Controller(settings, self._rules, image)

    def _on_active(self) -> None:
        _logger.info(Event("controller active", node_id=self.control.config.node_id))
        self.periodic.start()

    def _on_inactive(self) -> None:
        _logger.info(Event("controller inactive", node_id=self.control.config.node_id))
        self.periodic.stop()

    def _on_fault(self, what: str, error: Exception) -> None:
        _logger.error(Event("controller fault", what=what), exc_info=error)
        if self._report is not None:
            self._report(what, error)

    def _is_alone(self) -> bool:
        """Whether no other node is known that follows the log of this one."""
        node_id, image = self.control.config.node_id, self.control.image
        others = {*self._quorum.voter_ids, *image.brokers, *image.controllers} - {node_id}
        return not others


def controller_settings(
    config: BrokerConfig, cluster_id: str, own_incarnation_id: Uuid | None = None
) -> ControllerSettings:
    return ControllerSettings(
        node_id=config.node_id,
        cluster_id=cluster_id,
        default_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        min_insync_replicas=config.integer("min.insync.replicas"),
        unclean_leader_election=config.flag("unclean.leader.election.enable"),
        broker_session_timeout_ms=config.integer("broker.session.timeout.ms"),
        own_incarnation_id=own_incarnation_id,
    )
