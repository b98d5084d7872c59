"""Thousands of partitions whose leader is killed: how long until all have another, and acknowledge.

Three combined nodes, three replicas, all partitions led by one node that is not the active
controller. It is killed, and the controller is told so at once with a heartbeat that asks to be
fenced: from then on the time counts. (With no such message it begins when the session is over,
9 s after the last heartbeat, and the same follows.) A client for each of the other nodes writes to
all the partitions that are to be led there, acks=all, and asks again for those that were refused.

The longest turn of the event loop is what the nodes' own watch measured meanwhile: wall time, so
that it has in it what the scheduler of a busy machine takes. ``python -m bench scale_failover``.
"""

import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.brokers import Target
from bench.clusters import PlainOdradek, rss_mib, wait_until_in_sync
from bench.scale_node import PRODUCE_VERSION, one_record
from bench.timing import Row
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.metadata_records import RegisterBrokerRecord
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.protocol.versioned import decode_metadata
from odradek.records import read_records
from odradek.storage.scan import iter_batches
from tests.broker_connection import BrokerConnection
from tests.cluster.asking import active_controller
from tests.cluster.processes import COMBINED, Cluster, ClusterNode
from tests.interop.ports import HOST, free_ports

PARTITIONS: Final = (3_000, 10_000)
TOPIC_PARTITIONS: Final = 100
TOPICS_PER_REQUEST: Final = 10
PARTITIONS_PER_PRODUCE: Final = 250
BACKOFF_SECONDS: Final = 0.01
SECONDS_MAX: Final = 120.0
CREATE_VERSION: Final = 7
HEARTBEAT_VERSION: Final = 1
PATIENT: Final = {
    # Nobody but the victim is to be fenced or voted out, also on a machine with much else to do.
    "broker.session.timeout.ms": "60000",
    "controller.quorum.fetch.timeout.ms": "20000",
    "controller.quorum.request.timeout.ms": "20000",
}
MADE: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
STALL_SECONDS: Final = 65
"""The nodes' watch forgets what was longer ago than a minute."""
STALL: Final = "odradek_loop_stall_ms_max "


class Measured(PlainOdradek):
    """A node with an endpoint for its metrics."""

    def __init__(self, metrics_port: int) -> None:
        self.metrics_port = metrics_port

    def command(self, properties: Path) -> list[str]:
        return [*super().command(properties), "--metrics-port", str(self.metrics_port)]

    def stall_ms(self) -> float:
        url = f"http://{HOST}:{self.metrics_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[-1]) for line in lines if line.startswith(STALL))


def run() -> Iterator[Row]:
    for partitions in PARTITIONS:
        for row in _measure(partitions):
            print(*row, file=sys.stderr, flush=True)
            yield row


def _measure(partitions: int) -> Iterator[Row]:
    who = f"{partitions:,} partitions"
    flavours = {node: Measured(port) for node, port in zip(COMBINED, free_ports(3), strict=True)}
    with (
        tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder,
        Cluster(Path(folder), COMBINED, flavours, configs=PATIENT, is_relayed=False) as cluster,
    ):
        cluster.start()
        victim, others = _choose(cluster)
        began = time.perf_counter()
        names = _create(cluster, victim, others, partitions)
        yield Row("create, until all are in sync", who, time.perf_counter() - began, "s")
        for node, mib in zip(cluster.nodes, rss_mib(cluster), strict=True):
            what = "memory of " + ("the leader" if node == victim.id else "a follower")
            yield Row(what, who, mib, "MiB")
        watched = [flavours[node.id] for node in others]
        longest = max(each.stall_ms() for each in watched)
        yield Row("longest turn of a follower while they are made", who, longest, "ms")
        forgotten_at = time.monotonic() + STALL_SECONDS
        while any(each.stall_ms() for each in watched) and time.monotonic() < forgotten_at:
            time.sleep(1)
        yield from _fail_over(who, victim, others, names)
        longest = max(each.stall_ms() for each in watched)
        yield Row("longest turn of the survivors, 0: less than 50", who, longest, "ms")


def _choose(cluster: Cluster) -> tuple[ClusterNode, list[ClusterNode]]:
    """Return a node that is not the active controller, and the others, the controller first."""
    controller = active_controller(cluster)
    victim, other = (node for node in cluster.brokers if node is not controller)
    return victim, [controller, other]


def _create(
    cluster: Cluster, victim: ClusterNode, others: Sequence[ClusterNode], partitions: int
) -> list[str]:
    """Have all partitions led by the victim, and half of them by each of the others after it."""
    orders = [[victim.id, *(each.id for each in order)] for order in (others, others[::-1])]
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=orders[index % 2])
        for index in range(TOPIC_PARTITIONS)
    ]
    names = [f"scale-{number:04}" for number in range(partitions // TOPIC_PARTITIONS)]
    with BrokerConnection(victim.port) as connection:
        for at in range(0, len(names), TOPICS_PER_REQUEST):
            topics = [
                CreatableTopic(
                    name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
                )
                for name in names[at : at + TOPICS_PER_REQUEST]
            ]
            request = CreateTopicsRequest(topics=topics, timeout_ms=120_000)
            while request.topics:  # a busy machine may have lost the answer
                answer = connection.ask(request, CreateTopicsResponse, CREATE_VERSION)
                done = {each.name for each in answer.topics if each.error_code in MADE}
                request.topics = [each for each in request.topics if each.name not in done]
    for name in names:
        wait_until_in_sync(cluster, name, TOPIC_PARTITIONS)
    return names


def _fail_over(
    who: str, victim: ClusterNode, others: Sequence[ClusterNode], names: Sequence[str]
) -> Iterator[Row]:
    partitions = [(name, index) for name in names for index in range(TOPIC_PARTITIONS)]
    writers = [
        Writer(node, [each for each in partitions if each[1] % 2 == half])
        for half, node in enumerate(others)
    ]
    epoch = _epoch_of(victim)
    targets = [
        Target("odradek", each.bootstrap_servers, each.process.pid)
        for each in others
        if each.process is not None
    ]
    cpu_before = [each.cpu_seconds() for each in targets]
    with BrokerConnection(others[0].controller_port) as connection:
        victim.kill()
        began = time.perf_counter()
        for writer in writers:
            writer.start()
        request = BrokerHeartbeatRequest(broker_id=victim.id, broker_epoch=epoch, want_fence=True)
        answer = connection.ask(request, BrokerHeartbeatResponse, HEARTBEAT_VERSION)
        fenced = time.perf_counter() - began
    assert answer.is_fenced, ErrorCode(answer.error_code)
    for writer in writers:
        writer.join(SECONDS_MAX)
        assert not writer.is_alive()
    spent = [each.cpu_seconds() - before for each, before in zip(targets, cpu_before, strict=True)]
    acks = sorted(ack - began for writer in writers for ack in writer.acks)
    assert len(acks) == len(partitions), "a writer gave up"
    yield Row("from detection until the controller has answered", who, fenced * 1e3, "ms")
    yield Row("until the first acknowledges", who, acks[0] * 1e3, "ms")
    yield Row("until half of them do", who, statistics.median(acks) * 1e3, "ms")
    yield Row("until all of them do", who, acks[-1] * 1e3, "ms")
    yield Row("CPU of the controller meanwhile", who, spent[0] * 1e3, "ms")
    yield Row("CPU of the other node meanwhile", who, spent[1] * 1e3, "ms")


def _epoch_of(node: ClusterNode) -> int:
    """Return the broker epoch of a node: the offset of its registration in the metadata log."""
    (log,) = sorted((node.data_dir / "__cluster_metadata-0").glob("*.log"))
    data = log.read_bytes()
    epochs = [
        message.broker_epoch
        for header in iter_batches(data)
        if not header.is_control
        for record in read_records(data, header)
        if isinstance(message := decode_metadata(record.value or b""), RegisterBrokerRecord)
        and message.broker_id == node.id
    ]
    return epochs[-1]


class Writer(threading.Thread):
    """Writes a record to each of many partitions of one node, until each is acknowledged."""

    def __init__(self, node: ClusterNode, partitions: Sequence[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self.acks: list[float] = []
        self._port = node.port
        size = PARTITIONS_PER_PRODUCE
        self._left = [set(partitions[at : at + size]) for at in range(0, len(partitions), size)]
        self._records = one_record()

    def run(self) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        with BrokerConnection(self._port) as connection:
            while self._left and time.monotonic() < deadline:
                for part in self._left:
                    if not self._write(connection, part):
                        time.sleep(BACKOFF_SECONDS)
                        break  # what comes later is not led yet either
                self._left = [part for part in self._left if part]

    def _write(self, connection: BrokerConnection, part: set[tuple[str, int]]) -> int:
        """Return how many of the partitions acknowledged, and leave the others."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for name, index in sorted(part):
            data = PartitionProduceData(index=index, records=self._records)
            topics.setdefault(name, []).append(data)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(name=name, partition_data=data) for name, data in topics.items()
            ],
        )
        answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
        now = time.perf_counter()
        done = {
            (topic.name, each.index)
            for topic in answer.responses
            for each in topic.partition_responses
            if each.error_code == ErrorCode.NONE
        }
        part -= done
        self.acks += [now] * len(done)
        return len(done)
