"""Batch reads from a broker: where they begin and end, what is in them, what goes wrong."""

import pyarrow as pa
import pytest

from odradek.client import BlockingAdmin, BlockingProducer, BrokerError
from odradek.client.settings import as_settings
from odradek.records import CompressionType
from odradek.spark.cluster_access import access_to
from odradek.spark.options import OptionError, parse_options
from odradek.spark.planning import DataLossError
from odradek.spark.reading import cut
from odradek.spark.source import OdradekReader
from odradek.testing.broker import Broker
from tests.spark_reading import at, batch_reader, numbered, produce, read_batch, values
from tests.storage_batches import make_batch


def test_every_column_of_every_record(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("columns", 2, retention_ms="-1")
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        headers = [("h", b"1"), ("h", None)]
        producer.send("columns", key=b"k", value=b"v", partition=1, timestamp=1500).result()
        producer.send("columns", value=None, partition=1, timestamp=7, headers=headers).result()
    table = read_batch({**servers, "subscribe": "columns", "includeHeaders": "true"})
    first, second = table.to_pylist()
    assert first.pop("timestamp").timestamp() == 1.5
    assert second.pop("timestamp").timestamp() == 0.007
    where = {"topic": "columns", "partition": 1, "timestampType": 0}
    assert first == {**where, "key": b"k", "value": b"v", "offset": 0, "headers": None}
    two = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert second == {**where, "key": None, "value": None, "offset": 1, "headers": two}


def test_partitions_by_name_by_pattern_and_one_by_one(
    broker: Broker, servers: dict[str, str]
) -> None:
    for topic in ("select-a", "select-b"):
        broker.create_topic(topic, 2)
        for partition in (0, 1):
            name = f"{topic}/{partition}".encode()
            produce(broker.bootstrap_servers, topic, [name], partition=partition)
    both = {b"select-a/0", b"select-a/1", b"select-b/0", b"select-b/1"}
    assert set(values(read_batch({**servers, "subscribe": "select-a, select-b"}))) == both
    assert set(values(read_batch({**servers, "subscribePattern": "select-.*"}))) == both
    assert values(read_batch({**servers, "subscribePattern": "select"})) == []
    assigned = {"assign": '{"select-a":[1],"select-b":[0]}'}
    assert set(values(read_batch({**servers, **assigned}))) == {b"select-a/1", b"select-b/0"}


def test_a_topic_or_partition_that_is_not_there_is_an_error(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("there")
    for wanted in ({"subscribe": "there,missing"}, {"assign": '{"there":[0,1]}'}):
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            read_batch({**servers, **wanted})


def test_ranges_by_offset(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("ranges", 2)
    produce(broker.bootstrap_servers, "ranges", numbered(10))
    produce(broker.bootstrap_servers, "ranges", numbered(5, 100), partition=1)
    options = {
        "subscribe": "ranges",
        "startingOffsets": '{"ranges":{"0":3,"1":-2}}',
        "endingOffsets": '{"ranges":{"0":6,"1":-1}}',
    }
    assert values(read_batch({**servers, **options})) == [b"3", b"4", b"5", *numbered(5, 100)]
    with pytest.raises(OptionError, match="all TopicPartitions must be in it"):
        read_batch({**servers, "subscribe": "ranges", "startingOffsets": '{"ranges":{"0":3}}'})


def test_ranges_by_time(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("times", 2, retention_ms="-1")
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            value = b"%d" % number
            producer.send("times", value=value, partition=0, timestamp=1000 * number).result()
        producer.send("times", value=b"old", partition=1, timestamp=500).result()
    base = {**servers, "subscribe": "times"}
    with pytest.raises(OptionError, match=r"No offset matched .* times-1 and timestamp 3000"):
        read_batch({**base, "startingTimestamp": "3000"})
    latest = {**base, "startingOffsetsByTimestampStrategy": "latest"}
    found = read_batch({**latest, "startingTimestamp": "2500", "endingTimestamp": "6000"})
    assert values(found) == [b"3", b"4", b"5"]
    start, end = '{"times":{"0":8000,"1":0}}', '{"times":{"0":99000,"1":400}}'
    by_partition = {"startingOffsetsByTimestamp": start, "endingOffsetsByTimestamp": end}
    assert values(read_batch({**base, **by_partition})) == [b"8", b"9"]


def test_tasks_are_cut_by_least_number_and_largest_size(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("tasks", 2)
    produce(broker.bootstrap_servers, "tasks", numbered(90))
    produce(broker.bootstrap_servers, "tasks", numbered(10), partition=1)
    base = {**servers, "subscribe": "tasks"}

    def sizes(**options: str) -> list[int]:
        reader = batch_reader({**base, **options})
        return [part.value.end - part.value.start for part in reader.partitions()]

    assert sizes() == [90, 10]
    assert sizes(minPartitions="4") == [30, 30, 30, 10]
    assert sizes(maxRecordsPerPartition="45") == [45, 45, 10]
    split = read_batch({**base, "minPartitions": "7"})
    assert sorted(values(split)) == sorted(numbered(90) + numbered(10))


@pytest.mark.slow
def test_what_needs_many_answers_comes_whole_and_in_order(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("large")
    sent = [b"%06d" % number * 50 for number in range(5000)]
    produce(broker.bootstrap_servers, "large", sent, compression_type="lz4", batch_size=20_000)
    small = {"kafka.max.partition.fetch.bytes": "30000", "subscribe": "large"}
    assert values(read_batch({**servers, **small})) == sent


def test_batches_have_a_bounded_number_of_rows(
    broker: Broker, servers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.spark.reading.ROWS_MAX", 100)
    broker.create_topic("bounded")
    produce(broker.bootstrap_servers, "bounded", numbered(1000))
    reader = batch_reader({**servers, "subscribe": "bounded"})
    sizes = [each.num_rows for part in reader.partitions() for each in reader.read(part)]
    assert sum(sizes) == 1000
    assert max(sizes) <= 100


def test_answers_are_decoded_in_pieces_of_a_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.spark.reading.ROWS_MAX", 25)
    small = [make_batch([b"x"] * 10, base_offset=start) for start in range(0, 100, 10)]
    rows = [len(piece) // len(small[0]) for piece, _ in cut(memoryview(b"".join(small)))]
    assert rows == [2, 2, 2, 2, 2]
    monkeypatch.setattr("odradek.spark.reading.PIECE_BYTES_MAX", 8 * 300)
    packed = make_batch([bytes(900)], codec=CompressionType.GZIP)
    assert 150 > len(packed) > 75
    both = bytes(packed) * 4 + bytes(make_batch([bytes(5000)]))[:-1]
    assert [len(piece) for piece, _ in cut(memoryview(both))] in (
        [len(packed) * 2] * 2,
        [len(packed) * 3, len(packed)],
    )


def test_offsets_behind_pieces_are_those_of_the_next_records() -> None:
    batches = [make_batch([b"x"] * 10, base_offset=start) for start in (5, 40)]
    assert [behind for _, behind in cut(memoryview(b"".join(batches)))] == [50]
    assert list(cut(memoryview(bytes(batches[0])[:-1]))) == []


def test_an_empty_topic_has_no_rows(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("empty")
    assert read_batch({**servers, "subscribe": "empty"}).num_rows == 0


def test_only_committed_records_are_read_on_request(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("committed")
    send_transactions(broker.bootstrap_servers, "committed")
    base = {**servers, "subscribe": "committed"}
    committed = [*numbered(5), *numbered(5, 20), b"plain"]
    assert values(read_batch({**base, "kafka.isolation.level": "read_committed"})) == committed
    everything = values(read_batch(base))
    assert set(everything) == {*numbered(25), b"plain"}
    pieces = {"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": "3"}
    assert values(read_batch({**base, **pieces})) == committed


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.parametrize("more", [{}, {"maxRecordsPerPartition": "3"}])
def test_headers_from_brokers_tell_the_same_as_the_records(
    broker: Broker, servers: dict[str, str], isolation: str, more: dict[str, str]
) -> None:
    topic = f"by-headers-{isolation}-{len(more)}"
    broker.create_topic(topic)
    send_transactions(broker.bootstrap_servers, topic)
    options = {**servers, "subscribe": topic, "kafka.isolation.level": isolation, **more}
    everything = read_batch(options).column("offset").to_pylist()
    assert len(everything) >= 11
    reader = batch_reader({**options, "columns": "offset"})
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {str(batch.schema) for batch in batches} == {"offset: int64"}
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == everything


def send_transactions(servers: str, topic: str) -> None:
    """Commit 0 to 4, abort 5 to 19, commit 20 to 24; then one without a transaction."""
    transactional = {"transactional_id": f"{topic}-id", "bootstrap_servers": servers}
    with BlockingProducer(as_settings(transactional)) as producer:
        producer.init_transactions()
        for start, count, is_good in ((0, 5, True), (5, 15, False), (20, 5, True)):
            producer.begin_transaction()
            for value in numbered(count, start):
                producer.send(topic, value=value, partition=0)
            if is_good:
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
    produce(servers, topic, [b"plain"])


def test_an_open_transaction_holds_back_what_is_behind_it(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("open")
    produce(broker.bootstrap_servers, "open", [b"before"])
    where = {"transactional_id": "open-id", "bootstrap_servers": broker.bootstrap_servers}
    base = {**servers, "subscribe": "open", "kafka.isolation.level": "read_committed"}
    with BlockingProducer(as_settings(where)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("open", value=b"inside", partition=0)
        producer.flush()
        produce(broker.bootstrap_servers, "open", [b"behind"])
        assert values(read_batch(base)) == [b"before"]
        producer.commit_transaction()
    assert values(read_batch(base)) == [b"before", b"inside", b"behind"]


def test_records_that_aged_out_fail_the_query_or_are_skipped(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("aged")
    produce(broker.bootstrap_servers, "aged", numbered(10))
    base = {**servers, "subscribe": "aged", "startingOffsets": '{"aged":{"0":0}}'}
    reader = batch_reader(base)
    planned = reader.partitions()
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({at("aged"): 4}).unwrap()
    with pytest.raises(DataLossError, match=r"aged-0: offsets 0 to 3 are gone.*failOnDataLoss"):
        list(reader.read(planned[0]))
    lenient = {**base, "failOnDataLoss": "false"}
    assert values(read_batch(lenient)) == numbered(6, 4)


def test_an_end_that_the_log_does_not_reach_is_data_loss(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("short")
    produce(broker.bootstrap_servers, "short", numbered(3))
    base = {**servers, "subscribe": "short", "fetchOffset.numRetries": "1"}
    beyond = {**base, "endingOffsets": '{"short":{"0":5}}'}
    with pytest.raises(DataLossError, match=r"offsets 3 to 4 are gone, the log ends at 3"):
        read_batch(beyond)
    assert values(read_batch({**beyond, "failOnDataLoss": "false"})) == numbered(3)
    outside = {**base, "startingOffsets": '{"short":{"0":7}}'}
    outside |= {"endingOffsets": '{"short":{"0":9}}'}
    with pytest.raises(DataLossError, match="the log ends at 3"):
        read_batch(outside)


def test_a_topic_deleted_after_planning_is_data_loss(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("doomed")
    produce(broker.bootstrap_servers, "doomed", numbered(3))
    base = {**servers, "subscribe": "doomed", "fetchOffset.numRetries": "1"}
    strict, lenient = batch_reader(base), batch_reader({**base, "failOnDataLoss": "false"})
    planned = strict.partitions()
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics(["doomed"]).unwrap()
    with pytest.raises(DataLossError, match="offsets 0 to 2 are gone, the topic is gone"):
        list(strict.read(planned[0]))
    assert list(lenient.read(planned[0])) == []


@pytest.mark.parametrize("error", ["NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH"])
def test_a_leader_that_moved_is_looked_for_again(
    broker: Broker, servers: dict[str, str], error: str
) -> None:
    topic = f"moved-{error.lower()}"
    broker.create_topic(topic)
    produce(broker.bootstrap_servers, topic, numbered(100))
    with broker.fail("Fetch", error, times=2, topic=topic) as fault:
        assert values(read_batch({**servers, "subscribe": topic})) == numbered(100)
    assert fault.fired == 2


def test_a_lost_connection_is_made_again(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("lost")
    produce(broker.bootstrap_servers, "lost", numbered(100))
    base = {**servers, "subscribe": "lost"}
    with broker.drop("Fetch", times=2) as fault:
        assert values(read_batch(base)) == numbered(100)
    assert fault.fired == 2
    broker.drop_connections()
    assert values(read_batch(base)) == numbered(100)


def test_offsets_are_asked_for_as_often_as_the_options_say(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("asked")
    produce(broker.bootstrap_servers, "asked", numbered(2))
    base = {**servers, "subscribe": "asked"}
    with broker.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=2) as fault:
        assert values(read_batch({**base, "fetchOffset.numRetries": "3"})) == numbered(2)
    assert fault.fired == 2
    with (
        broker.fail("ListOffsets", "LEADER_NOT_AVAILABLE", times=None) as fault,
        pytest.raises(BrokerError, match="LEADER_NOT_AVAILABLE"),
    ):
        read_batch({**base, "fetchOffset.numRetries": "2"})
    assert fault.fired == 2


def test_a_task_does_not_wait_for_ever(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("stuck")
    produce(broker.bootstrap_servers, "stuck", numbered(2))
    reader = batch_reader({**servers, "subscribe": "stuck", "kafkaConsumer.pollTimeoutMs": "300"})
    planned = reader.partitions()
    with (
        broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=None) as fault,
        pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"),
    ):
        list(reader.read(planned[0]))
    assert 0 < fault.fired < 10  # a tenth of a second passes between two


def test_a_query_that_is_left_half_read_leaves_nothing_behind(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("half")
    produce(broker.bootstrap_servers, "half", [b"x" * 1000] * 200, batch_size=5000)
    options = {**servers, "subscribe": "half", "kafka.max.partition.fetch.bytes": "5000"}
    reader = batch_reader(options)
    rows = iter(reader.read(reader.partitions()[0]))
    assert isinstance(next(rows), pa.RecordBatch)
    rows.close()  # type: ignore[attr-defined]  # a generator, as Spark's limit(1) closes it
    assert read_batch(options).num_rows == 200


@pytest.mark.parametrize("key_format", ["binary", "utf8"])
def test_only_columns_that_are_wanted_are_handed_on(
    broker: Broker, servers: dict[str, str], key_format: str
) -> None:
    topic = f"columns-{key_format}"
    broker.create_topic(topic)
    produce(broker.bootstrap_servers, topic, numbered(3))
    options = {**servers, "subscribe": topic, "columns": "offset,key", "keyFormat": key_format}
    kind = pa.string() if key_format == "utf8" else pa.binary()
    wanted = pa.schema([("offset", pa.int64()), ("key", kind)])
    reader = OdradekReader(parse_options(options), wanted)
    (batch,) = reader.read(reader.partitions()[0])
    assert batch.schema == wanted
    assert batch.to_pylist() == [{"offset": number, "key": None} for number in range(3)]


def test_tasks_of_a_process_share_connections(broker: Broker, servers: dict[str, str]) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers}
    assert access_to(client) is access_to(dict(client))
    assert access_to(client) is not access_to({**client, "client.id": "another"})
