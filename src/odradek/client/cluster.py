"""What producer, consumer and admin share of a cluster: connections, metadata, coordinators.

One connection per broker and lane, opened when first needed and again after it broke, no sooner
than its back-off allows; who waits for the same thing waits together. A broker answers the requests
of a connection one after the other, so what is held back there for long, a fetch that waits for
records or a JoinGroup that waits for others, goes in a lane of its own. Metadata is refreshed when
somebody needs what is not known, when a broker says that it is stale, and by age.

Nothing is retried without a deadline of the caller's. What has to be retried is told in the log,
once: a broker that cannot be reached, a topic that is not there, a group without a coordinator.
"""

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from random import Random
from typing import Any, Final, TypeVar

from odradek.client.errors import (
    AuthenticationError,
    BrokerError,
    ClosedError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    UnsupportedError,
    check,
)
from odradek.client.metadata import (
    NO_LEADER,
    BrokerAddress,
    ClusterMetadata,
    PartitionMetadata,
)
from odradek.client.metrics import Clock, NetworkMetrics, Report
from odradek.client.settings import Settings
from odradek.client.troubles import Troubles
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.message import Message
from odradek.wire.backoff import Backoff
from odradek.wire.connection import Connection, Request
from odradek.wire.sasl.login import login_from
from odradek.wire.tls import context_from

BROKER_ENDPOINTS: Final = 1
CONTROLLER_ENDPOINTS: Final = 2
"""What DescribeCluster is to list."""
_ENDPOINT_TYPES_FROM: Final = 1
GROUP: Final = 0
TRANSACTION: Final = 1
_BATCHED_FIND: Final = 4
_SLOW_SECONDS: Final = 1.5
"""How long a broker may take to answer before that is told."""
_PASSING_MS: Final = 1_000
"""How long a topic may be unknown before that is told: it may be being created."""

MAIN_LANE: Final = 0
FETCH_LANE: Final = 1
GROUP_LANE: Final = 2

R = TypeVar("R", bound=Message)
T = TypeVar("T")


class Cluster:
    def __init__(
        self,
        settings: Settings,
        *,
        tls: ssl.SSLContext | None = None,
        random: Random | None = None,
        clock: Clock = lambda: time.monotonic() * 1000,
    ) -> None:
        self.settings = settings
        self.network_metrics = NetworkMetrics(clock)
        self.troubles = Troubles(settings.text("client.id"), clock)
        self.metadata = ClusterMetadata()
        self.random = random or Random()  # noqa: S311  # jitter
        self._tls = tls or context_from(settings)
        self._login = login_from(settings)
        self.uses_controllers = settings.uses_controllers
        """Whether the nodes that are asked are controllers, not brokers."""
        self._seeds = settings.addresses(settings.bootstrap)
        self._connections: dict[tuple[BrokerAddress, int], Connection] = {}
        self._opening: dict[tuple[BrokerAddress, int], asyncio.Task[Connection]] = {}
        self._backoffs: dict[BrokerAddress, Backoff] = {}
        self._not_before: dict[BrokerAddress, float] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._wanted: set[str] = set()
        self._wants_all = False
        self._is_closed = False
        self._last_failure: KafkaError | None = None
        self._unknown_topics: set[str] = set()
        self._topics_timer: asyncio.TimerHandle | None = None
        self.on_metadata: Callable[[], None] = lambda: None
        """Called after each refresh."""

    # Life.

    async def start(self, timeout_ms: float | None = None) -> None:
        """Connect to one of the bootstrap servers and learn of the others.

        Takes no longer than ``timeout_ms``, ``default.api.timeout.ms`` if there is none.

        Raises:
            KafkaTimeoutError: None of them answered in time.
        """
        if timeout_ms is None:
            timeout_ms = self.settings.integer("default.api.timeout.ms")
        about = f"no answer from {self.settings.text(self.settings.bootstrap)}"
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.retry(self.refresh, timeout_ms, about=about)
        except KafkaError:
            raise
        except TimeoutError as error:
            # One attempt was under way: socket.connection.setup.timeout.ms may be longer.
            cause = self._last_failure or "the first attempt was still under way"
            problem = f"{about} after {timeout_ms:.0f} ms: {cause}"
            raise KafkaTimeoutError(problem) from (self._last_failure or error)

    async def close(self) -> None:
        self._is_closed = True
        if self._topics_timer is not None:
            self._topics_timer.cancel()
        for task in [*self._opening.values(), *([self._refreshing] if self._refreshing else [])]:
            task.cancel()
        for connection in self._connections.values():
            connection.close()

    # Asking.

    async def ask(
        self,
        node_id: int,
        request: Request,
        response: type[R],
        *,
        timeout_ms: float | None = None,
        version_max: int | None = None,
        lane: int = MAIN_LANE,
    ) -> R:
        """Ask one broker, once.

        Raises:
            KafkaError: It cannot be reached, does not answer, or does not know the API.
        """
        connection = await self.connection(node_id, lane)
        if timeout_ms is None:
            timeout_ms = self.settings.integer("request.timeout.ms")
        return await connection.ask(
            request, response, timeout_ms=timeout_ms, version_max=version_max
        )

    async def ask_any(
        self, request: Request, response: type[R], *, timeout_ms: float | None = None
    ) -> R:
        """Ask whichever broker has the least to do."""
        return await self.ask(self.any_node(), request, response, timeout_ms=timeout_ms)

    def any_node(self) -> int:
        """Return a broker: connected and idle ones first, else one by chance."""
        brokers = list(self.metadata.brokers.values())
        if not brokers:
            raise ConnectionLostError("no broker is known")
        connected = [each for each in brokers if self._is_connected(each)]
        if connected:
            return min(
                connected, key=lambda each: self._connections[each, MAIN_LANE].in_flight
            ).node_id
        return self.random.choice(brokers).node_id

    async def retry(
        self, attempt: Callable[[], Awaitable[T]], timeout_ms: float, *, about: str = ""
    ) -> T:
        """Try until it works, an error is not retriable, or the time is over.

        Raises:
            KafkaTimeoutError: The time is over; caused by the last error.
            KafkaError: As the attempt raised it.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        backoff = self.backoff()
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                if not error.retriable or self._is_closed:
                    raise
                wait = backoff.next_ms() / 1000
                if loop.time() + wait >= deadline:
                    problem = f"{about or 'gave up'} after {timeout_ms:.0f} ms: {error}"
                    raise KafkaTimeoutError(problem) from error
                await asyncio.sleep(wait)

    def report(self, kind: str) -> Report:
        """Return the metrics of all connections; ``kind`` is what their groups begin with."""
        report = Report(self.settings.text("client.id"), self.network_metrics.clock())
        self.network_metrics.collect(kind, report)
        return report

    def backoff(self) -> Backoff:
        return Backoff(
            self.settings.integer("retry.backoff.ms"),
            self.settings.integer("retry.backoff.max.ms"),
            self.random,
        )

    # Connections.

    async def connection(self, node_id: int, lane: int = MAIN_LANE) -> Connection:
        """Return the connection to a broker, opened if need be.

        Raises:
            ConnectionLostError: It cannot be reached, or was tried only just now.
        """
        address = self.metadata.brokers.get(node_id)
        if address is None:
            raise ConnectionLostError(f"broker {node_id} is not known (any more)")
        return await self._connect(address, lane)

    async def _connect(self, address: BrokerAddress, lane: int = MAIN_LANE) -> Connection:
        if self._is_closed:
            raise ClosedError("the client is closed")
        if self._is_connected(address, lane):
            return self._connections[address, lane]
        opening = self._opening.get((address, lane))
        if opening is None:
            opening = asyncio.create_task(self._open(address, lane))
            self._opening[address, lane] = opening
            opening.add_done_callback(lambda _: self._opening.pop((address, lane), None))
            opening.add_done_callback(_hear)
        return await asyncio.shield(opening)

    async def _open(self, address: BrokerAddress, lane: int) -> Connection:
        loop = asyncio.get_running_loop()
        wait = self._not_before.get(address, 0) - loop.time()
        if wait > 0:
            await asyncio.sleep(wait)
        backoff = self._backoffs.get(address)
        if backoff is None:
            backoff = self._backoffs[address] = Backoff(
                self.settings.integer("reconnect.backoff.ms"),
                self.settings.integer("reconnect.backoff.max.ms"),
                self.random,
            )
        key = f"broker {address.host}:{address.port}"
        slow = loop.call_later(_SLOW_SECONDS, self.troubles.tell, key, "no answer yet")
        try:
            connection = await Connection.open(
                address.host,
                address.port,
                client_id=self.settings.text("client.id"),
                tls=self._tls,
                login=self._login,
                metrics=self.network_metrics.connection(address.node_id),
                timeout_ms=self.settings.integer("socket.connection.setup.timeout.ms"),
            )
        except KafkaError as error:
            self._not_before[address] = loop.time() + backoff.next_ms() / 1000
            self._last_failure = error
            self.troubles.tell(key, str(error).removeprefix(f"{address.host}:{address.port}: "))
            raise
        finally:
            slow.cancel()
        self.troubles.clear(key)
        backoff.reset()
        self._connections[address, lane] = connection
        return connection

    def _is_connected(self, address: BrokerAddress, lane: int = MAIN_LANE) -> bool:
        connection = self._connections.get((address, lane))
        return connection is not None and connection.is_open

    # Metadata.

    def want(self, topics: Iterable[str]) -> None:
        """Have these topics in every refresh from now on."""
        self._wanted.update(topics)

    def want_all(self) -> None:
        """Have all topics in every refresh from now on; for patterns."""
        self._wants_all = True

    async def refresh(self, topics: Collection[str] | None = None) -> None:
        """Ask for metadata: of all wanted topics, and of ``topics``; with others who ask for it.

        Raises:
            KafkaError: No broker answered.
        """
        if topics:
            self.want(topics)
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())
            self._refreshing.add_done_callback(_hear)
        await asyncio.shield(self._refreshing)

    async def _refresh(self) -> None:
        failure: KafkaError = ConnectionLostError("there is no bootstrap server")
        for address in self._candidates():
            try:
                connection = await self._connect(address)
                if self.uses_controllers:
                    await self._ask_controller(connection)
                else:
                    await self._ask_broker(connection)
                self.on_metadata()
                return
            except AuthenticationError:
                raise  # the others would say the same, and some count failed logins
            except KafkaError as error:
                failure = error
        raise failure

    async def _ask_broker(self, connection: Connection) -> None:
        wanted = sorted(self._wanted)  # one order in every process: a simulation runs it again
        asked = None if self._wants_all else [MetadataRequestTopic(name=name) for name in wanted]
        request = MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=self.settings.flag("allow.auto.create.topics"),
        )
        timeout_ms = self.settings.integer("request.timeout.ms")
        response = await connection.ask(request, MetadataResponse, timeout_ms=timeout_ms)
        check(response.error_code, about="Metadata")
        self.metadata.update(response, is_complete=self._wants_all)
        self._tell_of_topics()

    async def _ask_controller(self, connection: Connection) -> None:
        if not connection.versions.knows(DescribeClusterRequest.ID, _ENDPOINT_TYPES_FROM):
            problem = "the node is not a controller that clients can ask directly (KIP-919)"
            raise UnsupportedError(f"{problem}: use bootstrap.servers")
        request = DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS)
        timeout_ms = self.settings.integer("request.timeout.ms")
        response = await connection.ask(request, DescribeClusterResponse, timeout_ms=timeout_ms)
        check(response.error_code, response.error_message, about="DescribeCluster")
        self.metadata.update_controllers(response)

    def _tell_of_topics(self) -> None:
        """Tell of topics that are not there, in a moment if they still are not then."""
        errors = self.metadata.topic_errors
        for name in self._unknown_topics - errors.keys():
            self.troubles.clear(f"topic {name}")
        self._unknown_topics = {name for name in errors if name in self._wanted}
        for name in self._unknown_topics:
            reason = str(BrokerError(errors[name]))
            self.troubles.tell(f"topic {name}", reason, lasts_ms=_PASSING_MS)
        if self._unknown_topics and self._topics_timer is None:
            wait = _PASSING_MS * 1.1 / 1000
            self._topics_timer = asyncio.get_running_loop().call_later(wait, self._on_topics_timer)

    def _on_topics_timer(self) -> None:
        # Once: whoever needs the topic asks for it again, and that brings the next line.
        self._tell_of_topics()
        self._topics_timer = None

    def _candidates(self) -> list[BrokerAddress]:
        """Return whom to ask: connected brokers, other brokers, and where all began."""
        brokers = list(self.metadata.brokers.values())
        self.random.shuffle(brokers)
        brokers.sort(key=lambda each: not self._is_connected(each))
        seeds = [BrokerAddress(-1 - n, host, port) for n, (host, port) in enumerate(self._seeds)]
        return [*brokers, *seeds]

    async def leader(self, partition: TopicPartition) -> PartitionMetadata:
        """Return what is known of a partition that has a leader, after a refresh if need be.

        Raises:
            BrokerError: UNKNOWN_TOPIC_OR_PARTITION or LEADER_NOT_AVAILABLE, both retriable.
        """
        known = self.metadata.find(partition)
        if known is None or known.leader == NO_LEADER:
            await self.refresh([partition.topic])
            known = self.metadata.find(partition)
        if known is None:
            code = self.metadata.topic_errors.get(
                partition.topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            raise BrokerError(code, about=str(partition))
        if known.leader == NO_LEADER:
            raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, about=str(partition))
        return known

    # Coordinators.

    async def coordinator(self, key: str, key_type: int = GROUP) -> int:
        """Return the broker that looks after a group or a transactional id.

        Raises:
            KafkaError: None is known now; mostly retriable.
        """
        known = self._coordinators.get((key_type, key))
        if known is not None and known in self.metadata.brokers:
            return known

        def request(version: int) -> FindCoordinatorRequest:
            if version < _BATCHED_FIND:
                return FindCoordinatorRequest(key=key, key_type=key_type)
            return FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])

        response = await self.ask_any(request, FindCoordinatorResponse)
        found = response.coordinators[0] if response.coordinators else response
        about = f"coordinator of {key}"
        try:
            check(found.error_code, found.error_message, about=about)
        except BrokerError as error:
            # Without words it is the answer of a broker that is only just creating the topic.
            lasts_ms = 0 if error.message else _PASSING_MS
            self.troubles.tell(about, str(error), lasts_ms=lasts_ms)
            raise
        self.troubles.clear(about)
        if found.node_id not in self.metadata.brokers:
            address = BrokerAddress(found.node_id, found.host, found.port)
            self.metadata.brokers[found.node_id] = address
        self._coordinators[key_type, key] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, key_type: int = GROUP) -> None:
        """Look for it anew next time: it said that it is not, or went away."""
        self._coordinators.pop((key_type, key), None)


def _hear(task: "asyncio.Task[Any]") -> None:
    """Take in how a shared task ended: whoever waited for it may have gone meanwhile."""
    if not task.cancelled():
        task.exception()
