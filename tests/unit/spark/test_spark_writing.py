"""What tasks of the sink do to a broker, without Spark: guarantees, bad rows, faults."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from odradek.client.errors import BrokerError
from odradek.client.producer.coordination import Coordination
from odradek.client.producer.transaction import ProducerFencedError
from odradek.core.ids import TopicPartition
from odradek.spark.dead_letter_counts import read_count
from odradek.spark.dead_letters import BadRowError
from odradek.spark.marker_store import Markers
from odradek.spark.sink import OdradekStreamWriter, OdradekWriter
from odradek.spark.sink_access import sink_access
from odradek.spark.sink_options import SinkOptions, parse_sink_options
from odradek.spark.task_markers import ReplayError, Task
from odradek.spark.writing import TaskWriter, TaskWritten, write_task
from odradek.testing.broker import Broker
from tests.written_records import Written, read_topic, values

ROWS = 12_000
SECONDS_MAX = 300
_numbers = count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(memory=True, config={"auto.create.topics.enable": "false"}) as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    name = f"out-{next(_numbers)}"
    broker.create_topic(name, 3)
    yield name
    broker.clear_faults()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is not there is given up on soon; all else has the time that it needs."""
    monkeypatch.setattr("odradek.spark.task_topics.TOPIC_WAIT_MS_MAX", 300)


def options(broker: Broker, **given: str) -> SinkOptions:
    named = {name.replace("__", "."): value for name, value in given.items()}
    return parse_sink_options({"kafka.bootstrap.servers": broker.bootstrap_servers, **named})


def task(topic: str, batch: int = 0, partition: int = 0, run: str = "run") -> Task:
    return Task("sink", topic, run, batch, partition)


def rows(*texts: str, **columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": list(texts), **columns})


def read(broker: Broker, topic: str, isolation: str = "read_committed") -> list[Written]:
    return read_topic(broker.bootstrap_servers, topic, isolation=isolation)


def many(number: int, size: int = 100) -> pa.RecordBatch:
    texts = [f"{n:0{size}d}" for n in range(number)]
    return pa.RecordBatch.from_pydict({"value": texts, "key": [f"k{n % 9}" for n in range(number)]})


@pytest.mark.slow
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_every_row_is_there_once_and_in_the_order_of_its_key(
    broker: Broker, topic: str, guarantee: str
) -> None:
    chosen = options(broker, topic=topic, deliveryGuarantee=guarantee)
    everything = many(ROWS, 1000)  # more than is sent at once
    parts = [everything.slice(start, 3000) for start in range(0, ROWS, 3000)]
    told = write_task(chosen, task(topic), iter([many(0), *parts, many(0)]))
    assert (told.rows, told.dead_letters, told.is_replay) == (ROWS, 0, False)
    found = read(broker, topic)
    assert sorted(values(found), key=str) == [f"{n:01000d}".encode() for n in range(ROWS)]
    for key in {each.key for each in found}:
        ordered = [each for each in found if each.key == key]
        assert len({each.partition for each in ordered}) == 1
        assert values(ordered) == sorted(values(ordered), key=str)


def test_a_task_without_rows_leaves_no_trace(broker: Broker, topic: str) -> None:
    with broker.fail("InitProducerId", "UNKNOWN_SERVER_ERROR", times=None) as fault:
        told = write_task(options(broker, topic=topic), task(topic), iter([rows()]))
    assert told == TaskWritten(task(topic), 0, 0, is_replay=False, is_first_of_run=False)
    assert not fault.fired


@pytest.mark.seed_row("0.4")
def test_a_batch_that_comes_again_is_not_written_again(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    for batch, is_replay in ((0, False), (0, True), (1, False), (1, True), (0, True)):
        told = write_task(chosen, task(topic, batch), iter([rows("a", "b")]))
        assert told.is_replay is is_replay
    assert sorted(values(read(broker, topic)), key=str) == [b"a", b"a", b"b", b"b"]


def test_clusters_that_have_to_be_told_of_partitions_first(
    broker: Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before transaction.version 2; brokers of today still serve clients of that time."""

    async def has_version_2(self: Coordination, transactional_id: str) -> bool:
        return False

    monkeypatch.setattr(Coordination, "has_version_2", has_version_2)
    chosen = options(broker, topic=topic)
    for batch, is_replay in ((0, False), (0, True), (1, False)):
        told = write_task(chosen, task(topic, batch), iter([many(50), many(50)]))
        assert told.is_replay is is_replay
    assert len(read(broker, topic)) == 200


def test_without_the_marker_it_is(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic, odradek__testing__withoutMarker="true")
    for _ in range(2):
        write_task(chosen, task(topic), iter([rows("a")]))
    assert values(read(broker, topic)) == [b"a", b"a"]


def test_tasks_of_a_batch_do_not_know_each_other(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    for partition in (0, 1, 1, 0, 2):
        write_task(chosen, task(topic, 0, partition), iter([rows(f"of {partition}")]))
    assert sorted(values(read(broker, topic)), key=str) == [b"of 0", b"of 1", b"of 2"]


def test_the_marker_is_found_whatever_topics_rows_went_to(broker: Broker, topic: str) -> None:
    other = f"{topic}-other"
    broker.create_topic(other)
    chosen = options(broker)
    for batch, target in ((0, topic), (1, other), (1, other), (2, topic), (1, other)):
        write_task(chosen, task(topic, batch), iter([rows("x", topic=[target])]))
    assert values(read(broker, topic)) == [b"x", b"x"]
    assert values(read(broker, other)) == [b"x"]


@pytest.mark.slow
def test_a_task_that_fails_aborts_at_once(broker: Broker) -> None:
    topic = f"out-{next(_numbers)}"
    broker.create_topic(topic)

    def broken() -> Iterator[pa.RecordBatch]:
        yield many(100_000)
        raise RuntimeError("upstream")

    chosen = options(broker, topic=topic)
    with pytest.raises(RuntimeError, match="upstream"):
        write_task(chosen, task(topic), broken())
    assert len(read(broker, topic, "read_uncommitted")) > 0
    write_task(chosen, task(topic, 0, 1), iter([rows("of another task, behind it")]))
    assert values(read(broker, topic)) == [b"of another task, behind it"]
    assert not write_task(chosen, task(topic), iter([rows("a")])).is_replay
    assert len(read(broker, topic)) == 2


def test_an_attempt_that_commits_while_the_next_begins_is_seen_by_it(
    broker: Broker, topic: str
) -> None:
    first = options(broker, topic=topic)
    # One that asked again, because nobody answers, would not be held back.
    patient = {"kafka__request__timeout__ms": "600000", "kafka__max__block__ms": "600000"}
    patient["kafka__delivery__timeout__ms"] = "900000"
    second = options(broker, topic=topic, kafka__client__id="second", **patient)
    has_begun, may_end = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        yield rows("a")
        has_begun.set()
        assert may_end.wait(SECONDS_MAX)

    with ThreadPoolExecutor(2) as threads:
        slow_attempt = threads.submit(write_task, first, task(topic), slow())
        assert has_begun.wait(SECONDS_MAX)
        with broker.delay("InitProducerId", SECONDS_MAX, client_id="second") as held:
            next_attempt = threads.submit(write_task, second, task(topic), iter([rows("a")]))
            while not held.fired:
                assert not next_attempt.done()
                time.sleep(0.001)
            may_end.set()
            assert not slow_attempt.result(SECONDS_MAX).is_replay
        assert next_attempt.result(SECONDS_MAX).is_replay
    assert values(read(broker, topic)) == [b"a"]


def test_an_attempt_that_lost_its_place_commits_nothing(broker: Broker, topic: str) -> None:
    """A zombie goes on after the next attempt of its task was done."""
    chosen = options(broker, topic=topic)

    def zombie() -> Iterator[pa.RecordBatch]:
        yield many(100_000)
        write_task(chosen, task(topic), iter([rows("of the second attempt")]))
        yield rows("late")

    with pytest.raises(ProducerFencedError, match="taken over"):
        TaskWriter(chosen, task(topic)).write(zombie())
    assert values(read(broker, topic)) == [b"of the second attempt"]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("api", ["InitProducerId", "Produce", "TxnOffsetCommit", "EndTxn"])
def test_requests_and_answers_that_are_lost_change_nothing(
    broker: Broker, topic: str, api: str, after: bool
) -> None:
    chosen = options(broker, topic=topic)
    with broker.drop(api, after=after, times=2) as fault:
        write_task(chosen, task(topic), iter([many(500)]))
    assert fault.fired == 2
    assert len(read(broker, topic)) == 500
    assert write_task(chosen, task(topic), iter([many(500)])).is_replay


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_what_may_pass_is_waited_for(broker: Broker, topic: str, api: str) -> None:
    error = "NOT_LEADER_OR_FOLLOWER" if api == "Produce" else "NOT_COORDINATOR"
    with broker.fail(api, error, times=2) as fault:
        write_task(options(broker, topic=topic), task(topic), iter([rows("a")]))
    assert fault.fired == 2
    assert values(read(broker, topic)) == [b"a"]


def test_a_refusal_fails_the_task_and_aborts(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    with (
        broker.fail("TxnOffsetCommit", "GROUP_AUTHORIZATION_FAILED"),
        pytest.raises(Exception, match="GROUP_AUTHORIZATION_FAILED"),
    ):
        write_task(chosen, task(topic), iter([rows("a")]))
    assert read(broker, topic) == []
    assert not write_task(chosen, task(topic), iter([rows("a")])).is_replay


def test_a_replay_with_other_rows_is_refused(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    write_task(chosen, task(topic, run="first"), iter([rows("a", "b")]))
    with pytest.raises(ReplayError, match="with 2 rows and now has 3"):
        write_task(chosen, task(topic, run="second"), iter([rows("a"), rows("b", "c")]))


def test_the_driver_sees_tasks_that_are_missing_now(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    for partition in range(4):
        write_task(chosen, task(topic, 5, partition, "first"), iter([rows("a")]))
    write_task(chosen, task(topic, 6, 3, "first"), iter([rows("b")]))
    access = sink_access(chosen)
    now = task(topic, 5, 0, "second")
    markers = Markers(access.cluster)
    surveys = [access.run(markers.survey(now, tasks, is_stream=True)) for tasks in (4, 3, 1)]
    assert [[*each.beyond] for each in surveys] == [
        [],
        [],
        [1, 2],
    ]  # the one of batch 6 is not of batch 5


def test_the_first_task_of_a_run_is_told_from_the_next(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    told = [
        write_task(chosen, task(topic, batch, run=run), iter([rows("a")])).is_first_of_run
        for batch, run in ((0, "x"), (1, "x"), (1, "y"), (2, "y"))
    ]
    assert told == [True, False, True, True]


def test_batches_too_large_for_the_topic_are_cut(broker: Broker, topic: str) -> None:
    small = f"{topic}-small"
    broker.create_topic(small, 1, max_message_bytes="2000")
    write_task(options(broker, topic=small), task(topic), iter([many(300)]))
    assert values(read(broker, small)) == [f"{n:0100d}".encode() for n in range(300)]


def test_a_row_too_large_for_the_topic_is_named(broker: Broker, topic: str) -> None:
    small = f"{topic}-small"
    broker.create_topic(small, 1, max_message_bytes="2000")
    batches = [rows("a", "b"), rows("c", "x" * 3000, "d")]
    with pytest.raises(
        BadRowError, match=r"batch 7, Spark partition 2, row 3: .*MESSAGE_TOO_LARGE"
    ):
        write_task(options(broker, topic=small), task(topic, 7, 2), iter(batches))
    assert read(broker, small) == []


def test_rows_around_one_that_is_too_large_are_written(broker: Broker, topic: str) -> None:
    small, dead = f"{topic}-small", f"{topic}-dead"
    broker.create_topic(small, 1, max_message_bytes="2000")
    broker.create_topic(dead)
    batch = rows(*(f"{n:0100d}" for n in range(50)), "x" * 3000, *(f"{n}" for n in range(50)))
    told = write_task(
        options(broker, topic=small, deadLetterTopic=dead), task(topic), iter([batch])
    )
    assert told.dead_letters == 1
    expected = [text.encode() for text in batch.column(0).to_pylist() if len(text) < 3000]
    assert values(read(broker, small)) == expected
    (letter,) = read(broker, dead)
    assert dict(letter.headers)["__odradek.errors.row"] == b"50"


def test_a_row_that_the_broker_refuses_is_named(broker: Broker, topic: str) -> None:
    compact = f"{topic}-compact"
    broker.create_topic(compact, 1, cleanup_policy="compact")
    batch = rows("a", "b", "c", key=["1", None, "3"])
    with pytest.raises(BadRowError, match=r"row 1: .*INVALID_RECORD"):
        write_task(options(broker, topic=compact), task(topic), iter([batch]))


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_bad_rows_become_dead_letters(broker: Broker, topic: str, guarantee: str) -> None:
    dead, compact = f"{topic}-dead", f"{topic}-compact"
    broker.create_topic(dead)
    broker.create_topic(compact, 1, cleanup_policy="compact")
    chosen = options(
        broker,
        deadLetterTopic=dead,
        deliveryGuarantee=guarantee,
        kafka__max__request__size="10000",
    )
    batch = pa.RecordBatch.from_pydict(
        {
            "value": [
                "good",
                "null topic",
                "no topic",
                "x" * 20_000,
                "partition",
                "no key",
                "a",
                "b",
            ],
            "key": ["k", "k", "k", "k", "k", None, "k", "k"],
            "topic": [topic, None, "nowhere", topic, topic, compact, compact, compact],
            "partition": pa.array([None, None, None, None, 9, None, None, None], pa.int32()),
            "headers": pa.array(
                [[{"key": "h", "value": b"1"}]] * 8,
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    told = write_task(chosen, task(topic, 4, 1), iter([batch]))
    assert (told.rows, told.dead_letters) == (8, 5)
    assert values(read(broker, topic)) == [b"good"]
    assert values(read(broker, compact)) == [b"a", b"b"]
    letters = {dict(each.headers)["__odradek.errors.row"]: each for each in read(broker, dead)}
    assert letters.keys() == {b"1", b"2", b"3", b"4", b"5"}
    told_headers = {number: dict(each.headers) for number, each in letters.items()}
    reasons = {n: h["__connect.errors.exception.message"] for n, h in told_headers.items()}
    for number, part in (
        (b"1", b"null topic"),
        (b"2", b"UNKNOWN_TOPIC_OR_PARTITION"),
        (b"3", b"max.request.size"),
        (b"4", b"no partition 9"),
        (b"5", b"INVALID_RECORD"),
    ):
        reason = reasons[number]
        assert reason is not None
        assert part in reason
    assert letters[b"4"][1:3] == (b"k", b"partition")
    assert letters[b"3"][1:3] == (None, None)
    first = told_headers[b"2"]
    assert first["h"] == b"1"
    assert first["__connect.errors.topic"] == b"nowhere"
    assert first["__connect.errors.task.id"] == b"1"
    assert first["__connect.errors.connector.name"] == topic.encode()
    assert first["__odradek.errors.query"] == topic.encode()
    assert first["__odradek.errors.batch"] == b"4"
    assert first["__odradek.errors.spark.partition"] == b"1"


def test_the_driver_counts_dead_letters_also_of_a_batch_whose_commit_nobody_heard_of(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "counts.json"
    broker.create_topic(f"{topic}-dead")
    chosen = options(
        broker,
        topic=topic,
        deadLetterTopic=f"{topic}-dead",
        deadLetterCountFile=str(path),
        kafka__max__request__size="2000",
    )
    writer = OdradekStreamWriter(chosen)

    def write(batch: int) -> list[TaskWritten]:
        large = [iter([rows("good", "x" * 5000, *["x" * 3000] * number)]) for number in (0, 1)]
        return [write_task(chosen, task(topic, batch, n), each) for n, each in enumerate(large)]

    write(0)  # and the driver is killed before it is told
    for batch in (0, 0, 1):
        writer.commit([*write(batch), None], batch)
        assert read_count(path) == (topic, batch, 3 * (1 + batch))
    path.unlink()
    path.mkdir()  # rows are not refused because there is nowhere to count
    writer.commit(write(2), 2)


def test_dead_letters_tell_who_refused_the_row(broker: Broker, topic: str) -> None:
    dead, compact = f"{topic}-dead", f"{topic}-compact"
    broker.create_topic(dead)
    broker.create_topic(compact, 1, cleanup_policy="compact")
    batch = rows("no key", "no topic", topic=pa.array([compact, None], pa.string()))
    write_task(options(broker, deadLetterTopic=dead), task(topic), [batch])
    told = {each.value: dict(each.headers) for each in read(broker, dead)}
    names = ("__odradek.errors.refused.by", "__odradek.errors.code")
    name_of_class = "__connect.errors.exception.class.name"
    by_broker, by_sink = told[b"no key"], told[b"no topic"]
    assert [by_broker.get(name) for name in names] == [b"broker", b"INVALID_RECORD"]
    assert by_broker[name_of_class] == b"odradek.client.errors.BrokerError"
    assert [by_sink.get(name) for name in names] == [b"sink", None]
    assert by_sink[name_of_class] == b"odradek.spark.dead_letters.BadRowError"


def test_rows_that_a_broker_names_cost_one_refusal(broker: Broker, topic: str) -> None:
    dead, compact = f"{topic}-dead", f"{topic}-compact"
    broker.create_topic(dead)
    broker.create_topic(compact, 1, cleanup_policy="compact")
    texts = [f"{number}" for number in range(3000)]
    keys = [None if number % 7 == 3 else text for number, text in enumerate(texts)]
    chosen = options(broker, topic=compact, deadLetterTopic=dead, deliveryGuarantee="at-least-once")
    told = write_task(chosen, task(topic), [rows(*texts, key=keys)])
    bad = [text.encode() for text, key in zip(texts, keys, strict=True) if key is None]
    assert told.dead_letters == len(bad)
    assert values(read(broker, dead)) == bad
    assert len(read(broker, compact)) == len(texts) - len(bad)
    replica = broker.node.broker.replicas.find(TopicPartition(compact, 0))
    assert replica is not None
    assert replica.traffic.total_produce_requests == 2


def test_where_a_broker_names_no_row_smaller_batches_find_it(broker: Broker, topic: str) -> None:
    one = f"{topic}-one"
    broker.create_topic(one)
    texts = [f"{number}" for number in range(100)]
    with broker.fail("Produce", "INVALID_RECORD", times=3, topic=one):
        write_task(options(broker, topic=one), task(topic), [rows(*texts)])
    assert values(read(broker, one)) == [text.encode() for text in texts]
    with (
        broker.fail("Produce", "INVALID_RECORD", times=1, topic=one),
        pytest.raises(BadRowError, match=r"row 0: .*INVALID_RECORD"),
    ):
        write_task(options(broker, topic=one), task(topic, 1), [rows("alone")])


def test_when_the_row_is_found_batches_are_as_large_as_before(broker: Broker, topic: str) -> None:
    dead, one = f"{topic}-dead", f"{topic}-one"
    broker.create_topic(dead)
    broker.create_topic(one)
    chosen = options(broker, topic=one, deadLetterTopic=dead, deliveryGuarantee="at-least-once")
    # Four rows are refused, then the first of them alone.
    with broker.fail("Produce", "INVALID_RECORD", times=2, topic=one):
        told = write_task(chosen, task(topic), [rows("a", "b", "c", "d")])
    assert told.dead_letters == 1
    assert values(read(broker, dead)) == [b"a"]
    assert values(read(broker, one)) == [b"b", b"c", b"d"]
    replica = broker.node.broker.replicas.find(TopicPartition(one, 0))
    assert replica is not None
    assert replica.traffic.total_produce_requests == 1


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
@pytest.mark.parametrize("fault", ["compacted", "TOPIC_AUTHORIZATION_FAILED"])
def test_no_row_is_lost_where_dead_letters_are_refused(
    broker: Broker, topic: str, guarantee: str, fault: str
) -> None:
    dead, compact = f"{topic}-dead", f"{topic}-compact"
    broker.create_topic(compact, 1, cleanup_policy="compact")
    policy = "compact" if fault == "compacted" else "delete"
    broker.create_topic(dead, 1, cleanup_policy=policy)
    if fault != "compacted":
        broker.fail("Produce", fault, topic=dead)
    chosen = options(broker, topic=compact, deadLetterTopic=dead, deliveryGuarantee=guarantee)
    with pytest.raises(BadRowError if fault == "compacted" else BrokerError, match=dead):
        write_task(chosen, task(topic), [rows("good", "no key", key=["k", None])])
    assert values(read(broker, dead)) == []
    assert values(read(broker, compact)) == ([] if guarantee == "exactly-once" else [b"good"])
    broker.clear_faults()
    markers = Markers(sink_access(chosen).cluster)
    found = sink_access(chosen).run(markers.find(task(topic)))
    assert found.next_batch == 0


@pytest.mark.usefixtures("hasty")
def test_a_dead_letter_that_cannot_be_written_fails_the_task(broker: Broker, topic: str) -> None:
    chosen = options(broker, deadLetterTopic="gone")
    with pytest.raises(BadRowError, match="gone"):
        write_task(chosen, task(topic), iter([rows("a", topic=pa.array([None], pa.string()))]))


def test_a_batch_write_by_name_is_done_once(broker: Broker, topic: str) -> None:
    def write(version: int) -> bool:
        chosen = options(broker, topic=topic, txnAppId=topic, txnVersion=str(version))
        writer = OdradekWriter(chosen)
        told = write_task(chosen, writer._task(0), iter([rows("a")]))
        writer.commit([told])
        return told.is_replay

    assert [write(3), write(3), write(2), write(4)] == [False, True, True, False]


def test_a_batch_write_leaves_no_group_behind(broker: Broker, topic: str) -> None:
    chosen = options(broker, topic=topic)
    writer = OdradekWriter(chosen)
    told = write_task(chosen, writer._task(0), iter([rows("a")]))
    access = sink_access(chosen)
    markers = Markers(access.cluster)
    assert told.task.shared_group in [g.group_id for g in access.run(markers.list_groups())]
    writer.commit([told])
    assert told.task.shared_group not in [g.group_id for g in access.run(markers.list_groups())]


def test_the_driver_aborts_what_a_dead_task_left_open(broker: Broker) -> None:
    topic = f"out-{next(_numbers)}"
    broker.create_topic(topic)
    chosen = options(broker, topic=topic)
    writer = OdradekWriter(chosen)
    dead = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": writer._task(1).transactional_id,
            "transaction.timeout.ms": SECONDS_MAX * 1000,
        }
    )
    dead.init_transactions()
    dead.begin_transaction()
    dead.produce(topic, b"never committed")
    dead.flush()
    done = write_task(chosen, writer._task(0), iter([rows("a")]))
    assert read(broker, topic) == []  # behind a transaction that is open
    writer.abort([done, None])
    assert values(read(broker, topic)) == [b"a"]
