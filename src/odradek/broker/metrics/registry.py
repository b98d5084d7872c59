"""All metrics of a node: ``node.metrics``.

What is counted as it happens is counted here and in ``traffic``. What can be read off the node is
read when it is asked for, by collectors that are loaded with the first question: a node that
nobody asks pays for its counters only.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from odradek.broker.metrics.family import Collector, Family
from odradek.broker.metrics.histogram import Histogram
from odradek.broker.metrics.partition_changes import PartitionChanges
from odradek.broker.metrics.requests import RequestStats
from odradek.core.clock import Clock
from odradek.core.stalls import Stalls
from odradek.net.server import Server
from odradek.protocol.apis import Api, api_named
from odradek.quorum.metadata_quorum import MetadataQuorum

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.broker.metrics.client_metrics import ClientMetrics

Done = Callable[[BaseException | None], None]


class NodeMetrics(ABC):
    """The metrics of a node, whatever its roles."""

    @property
    @abstractmethod
    def collectors(self) -> tuple[Collector, ...]: ...

    def families(self) -> Iterator[Family]:
        for collector in self.collectors:
            yield from collector()

    def chunks(self) -> Iterator[bytes]:
        """Return the text of all metrics in pieces, each of which is little work.

        Whoever owns the event loop lets others have their turn between two of them.
        """
        from odradek.broker.metrics.exposition import text_of

        for family in self.families():
            yield from text_of(family)

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format; to be called on the node's event loop."""
        return b"".join(self.chunks())


class ControllerMetrics(NodeMetrics):
    """Of a node that is a controller and no broker."""

    def __init__(
        self, node_id: int, metadata: MetadataQuorum, server: Server, stalls: Stalls, clock: Clock
    ) -> None:
        self._metadata = metadata
        self._server = server
        self._stalls = stalls
        self._clock = clock
        self.partition_changes = PartitionChanges(node_id)

    @cached_property
    def collectors(self) -> tuple[Collector, ...]:
        return (
            *cluster_collectors(self._metadata, self.partition_changes, self._clock),
            *process_collectors(self._server, self._stalls),
        )


class Metrics(NodeMetrics):
    """Of a broker, which may be a controller, too."""

    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self.started_ms = broker.clock.monotonic_ms()
        self.requests: dict[int, RequestStats] = {}
        self.flushes = Histogram()
        self.partition_changes = PartitionChanges(broker.node_id)

    @cached_property
    def follower_fetches(self) -> RequestStats:
        """What followers fetch is counted apart: it says nothing of what consumers wait for."""
        return RequestStats(api_named("Fetch"))

    def requests_of(self, api: Api) -> RequestStats:
        """Return the counts of an API; from zero when it is asked for first."""
        found = self.requests.get(api.key)
        if found is None:
            found = self.requests[api.key] = RequestStats(api)
        return found

    def timed_flush(self, done: Done) -> Done:
        """Return ``done``, made to count how long the flush took that begins now."""
        clock = self._broker.clock
        began_us = clock.monotonic_us()

        def finished(error: BaseException | None) -> None:
            self.flushes.record(clock.monotonic_us() - began_us)
            done(error)

        return finished

    @cached_property
    def clients(self) -> "ClientMetrics":
        """What clients push (KIP-714)."""
        from odradek.broker.metrics.client_metrics import ClientMetrics

        return ClientMetrics(self._broker)

    @cached_property
    def collectors(self) -> tuple[Collector, ...]:
        from odradek.broker.metrics.exporter_families import ExporterFamilies
        from odradek.broker.metrics.group_families import GroupFamilies
        from odradek.broker.metrics.log_families import LogFamilies
        from odradek.broker.metrics.request_families import RequestFamilies
        from odradek.broker.metrics.server_families import ServerFamilies

        broker = self._broker
        return (
            ServerFamilies(broker).collect,
            RequestFamilies(broker).collect,
            LogFamilies(broker).collect,
            *cluster_collectors(broker.metadata, self.partition_changes, broker.clock),
            ExporterFamilies(broker).collect,
            GroupFamilies(broker).collect,
            self.clients.collect,
            *process_collectors(broker.server, broker.slices.stalls),
        )


def cluster_collectors(
    metadata: MetadataQuorum, changes: PartitionChanges, clock: Clock
) -> tuple[Collector, ...]:
    """Return what tells of the cluster as a node knows it, and of the node in its quorum."""
    from odradek.broker.metrics.controller_families import ControllerFamilies
    from odradek.broker.metrics.quorum_families import QuorumFamilies

    return (
        ControllerFamilies(metadata, changes).collect,
        QuorumFamilies(metadata, clock).collect,
    )


def process_collectors(server: Server, stalls: Stalls) -> tuple[Collector, ...]:
    from odradek.broker.metrics.node_families import NodeFamilies
    from odradek.broker.metrics.process_families import process_families

    return NodeFamilies(server, stalls).collect, process_families
