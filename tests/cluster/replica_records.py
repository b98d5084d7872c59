"""Records of one partition, replica by replica: single requests to one node, and files on its disk.

Requests go past the relay of a node, so a node that is cut off from all others can be asked.
"""

import time
from collections.abc import Iterable
from typing import NamedTuple

from odradek.client import BlockingAdmin, NewTopic
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from odradek.records import read_all
from odradek.storage.scan import iter_batches
from tests.broker_connection import BrokerConnection
from tests.cluster.asking import placements_of
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.record_requests import FETCH_VERSION, PRODUCE_VERSION
from tests.storage_batches import make_batch

ACKS_ALL = -1
ACKS_LEADER = 1
ANSWER_MS_MAX = 60_000
BYTES_MAX = 1 << 20


class Produced(NamedTuple):
    code: ErrorCode
    base_offset: int


class Seen(NamedTuple):
    """What a consumer gets from one node, from the start of a partition."""

    high_watermark: int
    values: list[bytes]


class Batch(NamedTuple):
    """A batch in a log; its checksum covers all but the first two."""

    base_offset: int
    leader_epoch: int
    last_offset: int
    crc: int


def make_replicated_topic(
    cluster: Cluster, topic: str, replicas: Iterable[ClusterNode], **configs: str
) -> None:
    """Make a topic of one partition; the first replica leads. Configs have underscores for dots."""
    ids = [node.id for node in replicas]
    named = {name.replace("_", "."): value for name, value in configs.items()}
    with BlockingAdmin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(topic, assignments={0: ids}, configs=named)]).unwrap()
    wait_until_in_sync(cluster, topic, ids)


def wait_until_in_sync(cluster: Cluster, topic: str, ids: Iterable[int] | None = None) -> None:
    """Wait until every broker knows the same leader, and all replicas to be in sync."""
    wanted = frozenset(ids or (node.id for node in cluster.brokers))

    def is_known() -> bool:
        found = [tuple(placements_of(node, topic)) for node in cluster.brokers]
        return len(set(found)) == 1 and [each.isr for each in found[0]] == [wanted]

    wait_until(is_known, f"all replicas of {topic} are in sync")


def wait_for_leader(asked: ClusterNode, topic: str, nodes: Iterable[ClusterNode]) -> ClusterNode:
    """Wait until one of these leads the topic, as one of the brokers knows it."""
    by_id = {node.id: node for node in nodes}
    wait_until(lambda: placements_of(asked, topic)[0].leader in by_id, f"{topic} has a new leader")
    return by_id[placements_of(asked, topic)[0].leader]


def produce_request(
    topic: str, *values: bytes, acks: int, timeout_ms: int = ANSWER_MS_MAX
) -> ProduceRequest:
    records = make_batch(values, timestamp=time.time_ns() // 1_000_000)
    data = [PartitionProduceData(index=0, records=records)]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=topics)


def produced_in(answer: ProduceResponse) -> Produced:
    ((found,),) = (topic.partition_responses for topic in answer.responses)
    return Produced(ErrorCode(found.error_code), found.base_offset)


def produce(
    node: ClusterNode, topic: str, *values: bytes, acks: int, timeout_ms: int = ANSWER_MS_MAX
) -> Produced:
    """Send one batch, once."""
    request = produce_request(topic, *values, acks=acks, timeout_ms=timeout_ms)
    with BrokerConnection(node.port) as connection:
        return produced_in(connection.ask(request, ProduceResponse, PRODUCE_VERSION))


def produce_as_new_leader(node: ClusterNode, topic: str, *values: bytes, acks: int) -> Produced:
    """Send one batch as soon as a node leads that has been elected: it hears of that by and by."""
    answers: list[Produced] = []

    def is_led() -> bool:
        answers.append(produce(node, topic, *values, acks=acks))
        return answers[-1].code != ErrorCode.NOT_LEADER_OR_FOLLOWER

    wait_until(is_led, f"node {node.id} leads {topic}")
    return answers[-1]


def see(node: ClusterNode, topic: str) -> Seen:
    """Return what a consumer gets that reads uncommitted, without waiting for more."""
    partition = FetchPartition(partition=0, partition_max_bytes=BYTES_MAX)
    request = FetchRequest(
        max_bytes=BYTES_MAX,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
    with BrokerConnection(node.port) as connection:
        answer = connection.ask(request, FetchResponse, FETCH_VERSION)
    ((found,),) = (topic.partitions for topic in answer.responses)
    assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code)
    records = read_all(bytes(found.records or b""))
    return Seen(found.high_watermark, [bytes(record.value or b"") for record in records])


def batches_on_disk(node: ClusterNode, topic: str, number: int = 0) -> list[Batch]:
    """Return the batches in a node's log, from its files."""
    return [
        Batch(header.base_offset, header.partition_leader_epoch, header.last_offset, header.crc)
        for file in sorted((node.data_dir / f"{topic}-{number}").glob("*.log"))
        for header in iter_batches(file.read_bytes())
    ]


def check_equal_logs(cluster: Cluster, topic: str) -> None:
    """Check that all replicas have the same batches: offsets, epochs and checksums."""
    first, *others = [batches_on_disk(node, topic) for node in cluster.brokers]
    assert first, "the log is empty"
    for other in others:
        assert other == first
