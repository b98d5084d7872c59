"""An image of very many partitions is taken over in short steps, also as a whole.

Measured with the CPU time of the thread, and without the collector of Python's garbage.
"""

import gc
import time
from collections.abc import Generator, Iterator
from random import Random
from typing import TypeVar

import pytest

from odradek.controller.partition_index import PartitionIndex
from odradek.core.ids import Uuid
from odradek.metadata import ClusterImage, MetadataLoader
from odradek.metadata.image import MetadataProvenance
from odradek.protocol.generated.metadata_records import PartitionRecord, TopicRecord
from odradek.protocol.message import Message

T = TypeVar("T")

TOPICS = 1_000
PARTITIONS = 100
STEP_SECONDS_MAX = 0.05


@pytest.fixture(autouse=True)
def _without_collector() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    yield
    if was_enabled:
        gc.enable()


def records() -> list[Message]:
    random = Random(1)
    made: list[Message] = []
    for number in range(TOPICS):
        topic_id = Uuid.random(random)
        made.append(TopicRecord(name=f"topic-{number}", topic_id=topic_id))
        made += (
            PartitionRecord(partition_id=each, topic_id=topic_id, replicas=[1], isr=[1], leader=1)
            for each in range(PARTITIONS)
        )
    return made


def in_short_steps(steps: Generator[None, None, T]) -> T:
    longest = 0.0
    while True:
        began = time.thread_time()
        try:
            next(steps)
        except StopIteration as ended:
            outcome: T = ended.value
            assert max(longest, time.thread_time() - began) < STEP_SECONDS_MAX
            return outcome
        longest = max(longest, time.thread_time() - began)
        assert longest < STEP_SECONDS_MAX


@pytest.mark.slow
def test_a_snapshot_of_a_hundred_thousand_partitions_is_taken_over_in_short_steps() -> None:
    loader = MetadataLoader()
    update = in_short_steps(loader.load_snapshot_in_steps(records(), MetadataProvenance(0, 1, 0)))
    changed = update.delta.partitions_changed
    assert len(changed) == TOPICS * PARTITIONS
    ordered = in_short_steps(update.delta.partitions_in_steps())
    assert ordered == sorted(changed)
    index = PartitionIndex()
    in_short_steps(index.follow(ClusterImage(), update.image, update.delta))
    assert index.with_replica(1) == ordered
