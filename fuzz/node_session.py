"""A running node under requests of every API and version: each is answered, and nothing breaks.

Requests are built from the definitions (``request_builder``), so all of them decode. What may come
back is a response that decodes, or nothing where the client asked for none (``acks=0``). Hanging
up is allowed after a produce without acks that failed: there is no other way to tell. Some
requests wait for others or for time to pass: they are parked, and must be answered when the node's
clock has been moved on.

A finding is a traceback in the log, an answer that does not decode, a connection that the node
dropped, a request that is never answered, or memory that grows with the number of requests.
"""

import logging
import resource
import select
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from fuzz.catalog import entries
from fuzz.request_builder import Pools, RequestBuilder
from odradek.broker.dispatch import SPOKEN
from odradek.core.errors import OdradekError
from odradek.protocol.apis import Api
from odradek.protocol.generated import (
    api_versions,
    create_topics,
    metadata,
    produce,
    unregister_broker,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

WAITING_APIS: Final = frozenset({"Fetch", "JoinGroup", "SyncGroup", "ConsumerGroupHeartbeat"})
"""Requests that a node may answer much later, when others have come or time has passed."""
WEIGHTS: Final = {
    **dict.fromkeys(("Produce", "Fetch", "OffsetCommit", "TxnOffsetCommit"), 3),
    **dict.fromkeys(("JoinGroup", "SyncGroup", "Heartbeat", "ConsumerGroupHeartbeat"), 3),
    **dict.fromkeys(("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn"), 3),
    **dict.fromkeys(("DeleteTopics", "DeleteGroups", "UpdateFeatures"), 0.3),
}
"""How often APIs are asked, beside 1: those with much behind them, and those that end much."""
PARKED_MAX: Final = 40
OTHER_BROKER_ID: Final = 1_000
FINDINGS_MAX: Final = 50
RSS_GROWTH_BYTES_MAX: Final = 384 << 20
WARM_UP_REQUESTS: Final = 500
MEMORY_DISK_BYTES_MAX: Final = 256 << 20
LONGEST_WAIT: Final = timedelta(milliseconds=2**31)
"""More than any timeout of a request: they are int32."""
TOPICS: Final = {"orders": 3, "compacted": 1, "empty": 1}
TOPICS_PERIOD: Final = 20
CONFIG: Final = {
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "metadata.log.max.record.bytes.between.snapshots": "100000",
}


@dataclass
class NodeReport:
    seed: int
    requests: int = 0
    answered: int = 0
    unanswered_by_wish: int = 0
    hung_up: int = 0
    parked: int = 0
    rss_growth_bytes: int = 0
    seconds: float = 0.0
    asked: Counter[str] = field(default_factory=Counter)
    """How often each API was asked."""
    findings: dict[str, str] = field(default_factory=dict)
    """Where it went wrong, and how; the first of each kind."""

    @property
    def failed(self) -> bool:
        return bool(self.findings) or self.rss_growth_bytes > RSS_GROWTH_BYTES_MAX

    def __str__(self) -> str:
        return (
            f"node: seed {self.seed}, {self.requests} requests, {len(self.findings)} findings, "
            f"{self.answered} answered, {self.unanswered_by_wish} without an answer by wish, "
            f"{self.hung_up} hung up, {self.parked} waited, "
            f"RSS growth {self.rss_growth_bytes / (1 << 20):.1f} MiB, {self.seconds:.0f} s"
        )


class NodeSession:
    """Sends requests to one node and keeps the score."""

    def __init__(self, seed: int) -> None:
        self.report = NodeReport(seed)
        self._random = Random(seed)
        self._pools = Pools()
        self._apis = [(api, entries()[f"{api.name}Request"]) for api in SPOKEN]
        self._weights = [WEIGHTS.get(api.name, 1) for api, _ in self._apis]
        self._parked: list[tuple[BrokerConnection, Api, int, Message]] = []

    def run(self, requests: int) -> NodeReport:
        started = time.monotonic()
        broker = Broker(
            topics=TOPICS,
            config=CONFIG,
            memory=True,
            memory_bytes_max=MEMORY_DISK_BYTES_MAX,
        )
        with _Tracebacks() as self._log, broker:
            self._broker = broker
            self._connection = BrokerConnection(broker.port)
            self._probe = BrokerConnection(broker.port)
            rss_bytes = _peak_rss_bytes()
            for number in range(requests):
                if number % TOPICS_PERIOD == 0:
                    self._restore_topics()
                self._send_one()
                if number == WARM_UP_REQUESTS:
                    rss_bytes = _peak_rss_bytes()
            self._finish()
            self.report.rss_growth_bytes = _peak_rss_bytes() - rss_bytes
        self._take_log(None)
        self.report.seconds = time.monotonic() - started
        return self.report

    def _restore_topics(self) -> None:
        """Create the topics anew that requests have deleted: most requests are for them."""
        topics = [
            create_topics.CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            for name, count in TOPICS.items()
        ]
        request = create_topics.CreateTopicsRequest(topics=topics)
        self._probe.ask(request, create_topics.CreateTopicsResponse)

    def _send_one(self) -> None:
        ((api, entry),) = self._random.choices(self._apis, self._weights)
        version = self._random.randint(api.version_min, api.version_stable_max)
        request = RequestBuilder(entry, version, self._random, self._pools).build()
        if isinstance(request, unregister_broker.UnregisterBrokerRequest):
            # A broker that is unregistered stops: the one that is needed here is spared.
            request.broker_id = max(request.broker_id, OTHER_BROKER_ID)
        self.report.requests += 1
        self.report.asked[api.name] += 1
        self._connection.send(request, version)
        if isinstance(request, produce.ProduceRequest) and request.acks == 0:
            self.report.unanswered_by_wish += 1
            self._check_alive()
        elif api.name in WAITING_APIS and not self._is_answered_soon():
            self._park(api, version, request)
        else:
            self._receive(self._connection, api, version, request)
        self._take_log(request)

    def _receive(
        self, connection: BrokerConnection, api: Api, version: int, request: Message
    ) -> None:
        try:
            response = connection.receive(api.response(), version)
        except (ConnectionError, TimeoutError) as error:
            self.report.hung_up += 1
            self._find(f"{type(error).__name__} at {api.name} v{version}", str(error), request)
            self._reconnect()
        except (OdradekError, AssertionError) as error:
            self._find(f"undecodable {api.name} v{version}", str(error), request)
            self._reconnect()
        else:
            self.report.answered += 1
            self._pools.learn(response)
            self._pools.learn_role(api.name, request, response)

    def _check_alive(self) -> None:
        """After a produce without acks: the node hangs up if it failed, that is how it tells."""
        try:
            self._ask_api_versions(self._connection)
        except ConnectionError:
            self.report.hung_up += 1
            self._reconnect()

    def _is_answered_soon(self) -> bool:
        """Whether an answer has come when the node has surely handled the request."""
        for _ in range(2):
            self._ask_api_versions(self._probe)
        poll = select.poll()  # not select(): it knows no descriptors from 1024 on
        poll.register(self._connection.socket, select.POLLIN)
        return bool(poll.poll(0))

    @staticmethod
    def _ask_api_versions(connection: BrokerConnection) -> None:
        connection.ask(
            api_versions.ApiVersionsRequest(
                client_software_name="fuzz", client_software_version="1"
            ),
            api_versions.ApiVersionsResponse,
        )

    def _park(self, api: Api, version: int, request: Message) -> None:
        self.report.parked += 1
        self._parked.append((self._connection, api, version, request))
        self._connection = BrokerConnection(self._broker.port)
        if len(self._parked) > PARKED_MAX:
            at = self._random.randrange(PARKED_MAX)
            self._parked.pop(at)[0].close()  # a client that does not wait for its answer

    def _reconnect(self) -> None:
        self._connection.close()
        self._connection = BrokerConnection(self._broker.port)

    def _finish(self) -> None:
        """Let time pass: who waited is answered now, and the node serves as before."""
        for _ in range(2):
            self._broker.clock.advance(LONGEST_WAIT)
        for connection, api, version, request in self._parked:
            with connection:
                self._receive(connection, api, version, request)
        self._parked.clear()
        self._take_log(None)
        self._serve_afterwards()
        for connection in (self._connection, self._probe):
            connection.close()

    def _serve_afterwards(self) -> None:
        with BrokerConnection(self._broker.port) as connection:
            answer = connection.ask(
                metadata.MetadataRequest(topics=None), metadata.MetadataResponse
            )
            if not answer.brokers:
                self._find("no brokers afterwards", repr(answer), None)

    # Findings.

    def _take_log(self, request: Message | None) -> None:
        for place, text in self._log.take():
            self._find(place, text, request)

    def _find(self, kind: str, text: str, request: Message | None) -> None:
        if kind not in self.report.findings and len(self.report.findings) < FINDINGS_MAX:
            self.report.findings[kind] = f"{text}\nafter {request!r:.2000}"


class _Tracebacks(logging.Handler):
    """Collects what is logged with a traceback, by the place where it was raised."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._seen: list[tuple[str, str]] = []
        self._loggers = [logging.getLogger(name) for name in ("odradek", "asyncio")]

    def __enter__(self) -> Self:
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        frames, trace = [], error.__traceback__
        while trace is not None:
            frames.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
            trace = trace.tb_next
        place = frames[-1] if frames else "?"
        self._seen.append((f"{type(error).__name__} at {place}", f"{error} ({' '.join(frames)})"))

    def take(self) -> list[tuple[str, str]]:
        seen, self._seen = self._seen, []
        return seen


def _peak_rss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
