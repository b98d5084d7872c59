"""Partitions with replicas on brokers of Odradek and of Kafka, under controllers of either kind."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from tests.cluster.processes import IS_WHOLE_MATRIX, Cluster, wait_until
from tests.interop.cluster.acknowledged import Load
from tests.interop.cluster.group_reading import GroupReading
from tests.interop.cluster.kafka_tools import KafkaTools
from tests.interop.cluster.replicated import (
    CONFIGS,
    FIRST,
    KAFKAS,
    ROLES,
    SECOND,
    Replicated,
    flavours,
)

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

TWO_IN_SYNC: Final = {"min.insync.replicas": "2"}


@pytest.fixture(scope="module")
def tools(kafka_libs: object) -> Iterator[KafkaTools]:
    started = KafkaTools()
    with started:
        yield started


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def mixed(
    request: pytest.FixtureRequest, tools: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicated]:
    """Controllers are of the kind that the id of a test has."""
    folder = tmp_path_factory.mktemp(f"{request.param}-controllers")
    kinds = flavours(request.param)
    with Cluster(folder, ROLES, kinds, configs=CONFIGS) as cluster:
        cluster.start()
        yield Replicated(cluster, tools, request.param)


FAULTS: dict[str, Sequence[tuple[int, str]]] = {
    "odradek": [(KAFKAS, "kill"), (FIRST, "pause")],
    "kafka": [(KAFKAS, "stop"), (FIRST, "kill")],
}
if IS_WHOLE_MATRIX:
    EACH: Final = [(broker, f) for broker in (FIRST, KAFKAS) for f in ("stop", "kill", "pause")]
    FAULTS.update(odradek=EACH, kafka=EACH)

MOVED, OFFSETS = "moved", "__consumer_offsets"
PREFERRED_LEADERS: Final = {
    TopicPartition(MOVED, 0): FIRST,
    TopicPartition(MOVED, 1): KAFKAS,
    TopicPartition(OFFSETS, 0): KAFKAS,
}


def test_leaders_change_sides_under_load(mixed: Replicated) -> None:
    """Each time a broker of one kind goes, one of the other kind leads; then it is elected back."""
    mixed.create(OFFSETS, (KAFKAS, FIRST, SECOND), configs={"cleanup.policy": "compact"})
    mixed.create(MOVED, (FIRST, KAFKAS, SECOND), (KAFKAS, FIRST, SECOND), configs=TWO_IN_SYNC)
    partitions = [at for at in PREFERRED_LEADERS if at.topic == MOVED]
    load = Load(mixed.cluster.bootstrap_servers, *partitions)
    group = GroupReading(mixed.cluster.bootstrap_servers, "g", MOVED)
    with group.running():
        with load.running():
            load.wait_for_progress()
            for broker, fault in FAULTS[mixed.controllers]:
                lose_leader(mixed, broker, fault, load, group)
                elect_back(mixed)
                load.wait_for_progress()
        for at in partitions:
            mixed.wait_until_equal(at)
        load.check()
        written = {value for writer in load.writers for value in writer.offsets}
        wait_until(lambda: group.values >= written, "the group has read all")
        ends = [mixed.batches(FIRST, at)[-1].last_offset + 1 for at in partitions]
        wait_until(lambda: group.committed(*partitions) == ends, "the group has committed all")
    mixed.wait_until_equal(TopicPartition(OFFSETS, 0))


def lose_leader(
    mixed: Replicated, broker: int, fault: str, load: Load, group: GroupReading
) -> None:
    """Take away a broker until those of the other kind lead what it led, and bring it back."""
    node, other = mixed.node(broker), KAFKAS if broker == FIRST else FIRST
    if fault == "stop":
        assert node.stop() in (0, 143)
    elif fault == "kill":
        node.kill()
    else:
        node.pause()
    for at, leader in PREFERRED_LEADERS.items():
        if leader == broker:
            mixed.wait_for(at, leader=other, asked={FIRST, KAFKAS, SECOND} - {broker})
    load.wait_for_progress()
    group.wait_for_progress()
    if fault == "pause":
        node.resume()
    else:
        node.restart()


def elect_back(mixed: Replicated) -> None:
    for at, leader in PREFERRED_LEADERS.items():
        mixed.wait_until_whole(at)
        assert mixed.elect(at) in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        mixed.wait_for(at, leader=leader)
