"""Markers of the sink: where they are, that they show no lag, and what becomes of old ones."""

import json
from collections.abc import Iterator
from itertools import count

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as Offset

from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.blocking.admin import BlockingAdmin
from odradek.core.ids import TopicPartition
from odradek.spark import task_markers
from odradek.spark.sink import OdradekStreamWriter, OdradekWriter
from odradek.spark.sink_options import SinkOptions, parse_sink_options
from odradek.spark.task_markers import ReplayError, Task
from odradek.spark.writing import TaskWritten, write_task
from odradek.testing.broker import Broker
from tests.unit.broker.metrics_scrape import scrape
from tests.written_records import read_topic, values

PARTITIONS = 3
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True, config={"auto.create.topics.enable": "false"}) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> str:
    name = f"out-{next(_numbers)}"
    broker.create_topic(name, PARTITIONS)
    return name


def options(broker: Broker, **given: str) -> SinkOptions:
    return parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **given})


def write(
    broker: Broker, topic: str, partition: int, batch: int = 0, run: str = "run", **given: str
) -> TaskWritten:
    rows = pa.RecordBatch.from_pydict({"value": [f"{partition}/{batch}"]})
    task = Task("sink", topic, run, batch, partition)
    return write_task(options(broker, topic=topic, **given), task, iter([rows]))


def admin(broker: Broker) -> BlockingAdmin:
    return BlockingAdmin({"bootstrap.servers": broker.bootstrap_servers})


def groups(broker: Broker, topic: str) -> list[str]:
    with admin(broker) as asked:
        found = [each.group_id for each in asked.list_groups()]
    return sorted(each for each in found if each.startswith(f"sink-{topic}-"))


def leave_old_marker(broker: Broker, topic: str, partition: int, batch: int) -> None:
    """Leave what the sink left when each task had a group and the batch was the offset."""
    told = {"dead_letters": 0, "rows": 1, "run": "before"}
    old = CommittedOffset(batch + 1, json.dumps(told))
    with admin(broker) as asked:
        asked.alter_group_offsets(f"sink-{topic}-{partition}", {TopicPartition(topic, 0): old})


def read(broker: Broker, topic: str) -> list[bytes | None]:
    return sorted(values(read_topic(broker.bootstrap_servers, topic)), key=str)


def test_no_lag_is_seen_in_what_the_sink_keeps(broker: Broker, topic: str) -> None:
    for batch in range(2):
        for partition in range(5):
            write(broker, topic, partition, batch)
    found = scrape(broker)
    for name in ("lag", "lag_sum", "current_offset", "current_offset_sum"):
        shown = found.labels(f"kafka_consumergroup_{name}")
        assert [each for each in shown if each["topic"] == topic] == []
    with admin(broker) as asked:
        listed = asked.list_group_offsets(groups(broker, topic)).unwrap()
    assert [offsets for offsets in listed.values() if offsets] == []


def test_a_query_has_one_group_where_its_topic_has_a_partition_for_each_task(
    broker: Broker, topic: str
) -> None:
    for partition in range(PARTITIONS):
        write(broker, topic, partition)
    assert groups(broker, topic) == [f"sink-{topic}-tasks"]
    assert write(broker, topic, PARTITIONS + 4).marker_group == f"sink-{topic}-7"


def test_tasks_find_their_own_marker_wherever_it_is(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = [write(broker, topic, partition).is_replay for partition in (0, 1, 2, 5, 0, 1, 2, 5)]
    assert told == [False] * 4 + [True] * 4
    # A topic that grows, or the other way round: the marker stays where it was.
    monkeypatch.setattr(task_markers, "SHARED_TASKS_MAX", 0)
    assert [write(broker, topic, partition).is_replay for partition in (0, 2)] == [True, True]
    write(broker, topic, 2, batch=1)
    monkeypatch.undo()
    assert write(broker, topic, 2, batch=1).is_replay
    assert read(broker, topic) == [b"0/0", b"1/0", b"2/0", b"2/1", b"5/0"]


def test_the_marker_goes_where_there_is_room_among_the_topics_written(
    broker: Broker, topic: str
) -> None:
    broker.create_topic(f"{topic}-narrow", 1)
    topics = [f"{topic}-narrow", topic]
    rows = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": topics})
    task = Task("sink", topic, "run", 0, 2)
    told = [write_task(options(broker), task, iter([rows])) for _ in range(2)]
    assert [each.is_replay for each in told] == [False, True]
    assert groups(broker, topic) == [f"sink-{topic}-tasks"]


def test_a_task_does_not_wait_for_what_another_left_open(broker: Broker, topic: str) -> None:
    write(broker, topic, 1)
    task = Task("sink", topic, "run", 0, 1)
    dead = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": task.transactional_id,
            "transaction.timeout.ms": 600_000,
        }
    )
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": task.shared_group}
    )
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce(topic, b"never committed", partition=0)
    dead.send_offsets_to_transaction(
        [Offset(topic, task.partition, 5)], consumer.consumer_group_metadata()
    )
    consumer.close()
    assert not write(broker, topic, 0).is_replay
    assert not write(broker, topic, 1, batch=1).is_replay  # fences it
    assert read(broker, topic) == [b"0/0", b"1/0", b"1/1"]


@pytest.mark.parametrize("partition", [1, 5])
def test_an_old_marker_is_heeded(broker: Broker, topic: str, partition: int) -> None:
    leave_old_marker(broker, topic, partition, batch=7)
    told = [write(broker, topic, partition, batch).is_replay for batch in (7, 8, 8, 7)]
    assert told == [True, False, True, True]
    assert read(broker, topic) == [f"{partition}/8".encode()]


def test_old_groups_go_with_the_first_batch_of_a_run(broker: Broker, topic: str) -> None:
    for partition in (0, 1, 2, 3, 9):
        leave_old_marker(broker, topic, partition, batch=7)
    told = [write(broker, topic, partition, 8) for partition in range(4)]
    OdradekStreamWriter(options(broker, topic=topic)).commit(told, 8)
    assert groups(broker, topic) == [f"sink-{topic}-3", f"sink-{topic}-tasks"]
    assert write(broker, topic, 3, 8).is_replay


def test_groups_of_an_interrupted_batch_stay(broker: Broker, topic: str) -> None:
    for partition in range(4):
        leave_old_marker(broker, topic, partition, batch=7)
    told = [write(broker, topic, partition, 7) for partition in range(4)]
    assert all(each.is_replay for each in told)
    OdradekStreamWriter(options(broker, topic=topic)).commit(told, 7)
    assert groups(broker, topic) == [f"sink-{topic}-{partition}" for partition in range(4)]


def test_the_driver_says_how_to_go_on_when_tasks_are_missing(broker: Broker, topic: str) -> None:
    for partition in (0, 1, 2, 5):
        write(broker, topic, partition, 4, run="first")
    again = [write(broker, topic, 0, 4, run="second")]
    writer = OdradekStreamWriter(options(broker, topic=topic))
    with pytest.raises(ReplayError, match=r"partitions \[1, 2, 5\]") as refused:
        writer.commit(again, 4)
    for place in (f"sink-{topic}-tasks --topic {topic}:2", f"sink-{topic}-5 --topic {topic}:0"):
        assert f"--delete-offsets --group {place}" in str(refused.value)
    with admin(broker) as asked:
        for group, partition in (("tasks", 1), ("tasks", 2), ("5", 0)):
            forgotten = [TopicPartition(topic, partition)]
            asked.delete_group_offsets(f"sink-{topic}-{group}", forgotten).unwrap()
    writer.commit(again, 4)


def test_a_named_write_keeps_what_an_older_version_may_ask_for(broker: Broker, topic: str) -> None:
    def written(version: int, tasks: int) -> list[bool]:
        chosen = options(broker, topic=topic, txnAppId=topic, txnVersion=str(version))
        writer = OdradekWriter(chosen)
        rows = pa.RecordBatch.from_pydict({"value": ["a"]})
        told = [write_task(chosen, writer._task(each), iter([rows])) for each in range(tasks)]
        writer.commit(told)
        return [each.is_replay for each in told]

    assert written(1, 5) == [False] * 5
    assert written(2, 2) == [False] * 2
    assert written(1, 5) == [True] * 5
