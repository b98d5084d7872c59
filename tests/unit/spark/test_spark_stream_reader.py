"""Micro-batches from a broker, driven as Spark drives them."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from odradek.client import BlockingAdmin, BlockingProducer, BrokerError
from odradek.client.settings import as_settings
from odradek.spark.options import OptionError
from odradek.spark.planning import DataLossError
from odradek.testing.broker import Broker
from tests.spark_reading import Stream, at, numbered, produce


def test_a_stream_begins_at_the_end_unless_told_otherwise(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("begin")
    produce(broker.bootstrap_servers, "begin", numbered(3))
    base = {**servers, "subscribe": "begin"}
    assert Stream(base).offset == {"begin": {"0": 3}}
    assert Stream({**base, "startingOffsets": "earliest"}).offset == {"begin": {"0": 0}}
    assert Stream({**base, "startingOffsets": '{"begin":{"0":2}}'}).offset == {"begin": {"0": 2}}
    at_time = {
        "startingTimestamp": "99999999999999",
        "startingOffsetsByTimestampStrategy": "latest",
    }
    assert Stream({**base, **at_time}).offset == {"begin": {"0": 3}}


def test_where_a_stream_begins_does_not_move_while_its_first_batch_is_planned(
    broker: Broker, servers: dict[str, str]
) -> None:
    """Spark asks twice, and records come in between."""
    broker.create_topic("twice")
    produce(broker.bootstrap_servers, "twice", numbered(3))
    stream = Stream({**servers, "subscribe": "twice"})
    for start in (3, 5):
        produce(broker.bootstrap_servers, "twice", numbered(2, start))
        assert stream.reader.initialOffset() == {"twice": {"0": 3}}
    assert stream.step() == numbered(4, 3)


def interrupted(options: dict[str, str]) -> Stream:
    """Plan the first batch of a stream; what Spark keeps of it is its end."""
    stream = Stream(options)
    end = stream.reader.latestOffset(stream.offset, stream.reader.getDefaultReadLimit())
    stream.reader.partitions(stream.offset, end)
    return Stream(options, start=end)


def replay(stream: Stream) -> list[bytes]:
    """Run the batch that was interrupted, as Spark does: nobody asks how far it shall go."""
    begin = stream.reader.initialOffset()
    return [
        value
        for part in stream.reader.partitions(begin, stream.offset)
        for batch in stream.reader.read(part)
        for value in batch.column("value").to_pylist()
    ]


def test_a_stream_from_latest_that_died_in_its_first_batch_reads_all_that_came_since(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("died")
    produce(broker.bootstrap_servers, "died", numbered(3))
    stream = interrupted({**servers, "subscribePattern": "died.*"})
    produce(broker.bootstrap_servers, "died", numbered(4, 3))
    broker.create_topic("died-2")
    produce(broker.bootstrap_servers, "died-2", [b"new"])
    assert replay(stream) == []
    assert stream.step() == [*numbered(4, 3), b"new"]


def test_only_what_begins_at_latest_is_left_out_of_the_first_batch(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("mixed", 2)
    for partition in (0, 1):
        produce(broker.bootstrap_servers, "mixed", numbered(3), partition=partition)
    options = {"subscribe": "mixed", "startingOffsets": '{"mixed":{"0":1,"1":-1}}'}
    stream = interrupted({**servers, **options})
    assert stream.offset == {"mixed": {"0": 3, "1": 3}}
    for partition in (0, 1):
        produce(broker.bootstrap_servers, "mixed", numbered(1, 3), partition=partition)
    assert replay(stream) == numbered(2, 1)
    assert stream.step() == [b"3", b"3"]


def test_a_time_that_comes_only_after_the_first_batch_died_is_no_loss(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("later")
    produce(broker.bootstrap_servers, "later", numbered(3))
    begin = {
        "startingTimestamp": str(time.time_ns() // 1_000_000 + 3_600_000),
        "startingOffsetsByTimestampStrategy": "latest",
    }
    stream = interrupted({**servers, "subscribe": "later", **begin})
    produce(broker.bootstrap_servers, "later", numbered(2, 3))
    late_ms = int(begin["startingTimestamp"]) + 1
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("later", value=b"5", partition=0, timestamp=late_ms).result()
    assert stream.reader.initialOffset() == {"later": {"0": 5}}
    assert replay(stream) == []
    assert stream.step() == numbered(3, 3)


def test_a_first_batch_from_earliest_is_whole_when_it_is_run_again(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("whole-1")
    produce(broker.bootstrap_servers, "whole-1", numbered(3))
    options = {"subscribePattern": "whole-.*", "startingOffsets": "earliest"}
    stream = interrupted({**servers, **options})
    broker.create_topic("whole-2")
    produce(broker.bootstrap_servers, "whole-2", [b"new"])
    produce(broker.bootstrap_servers, "whole-1", [b"3"])
    assert replay(stream) == numbered(3)
    assert stream.step() == [b"3", b"new"]


def test_what_comes_is_read_once(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("once")
    stream = Stream({**servers, "subscribe": "once"})
    assert stream.step() is None
    for start in (0, 10):
        produce(broker.bootstrap_servers, "once", numbered(10, start))
        assert stream.step() == numbered(10, start)
    assert stream.step() is None


def test_a_stream_goes_on_where_its_checkpoint_is(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("restart")
    produce(broker.bootstrap_servers, "restart", numbered(5))
    base = {**servers, "subscribe": "restart", "startingOffsets": "earliest"}
    stream = Stream(base)
    assert stream.step() == numbered(5)
    produce(broker.bootstrap_servers, "restart", numbered(5, 5))
    assert Stream(base, start=stream.offset).step() == numbered(5, 5)


def test_an_idle_stream_waits_and_is_woken_by_a_record(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("idle", 2)
    stream = Stream({**servers, "subscribe": "idle", "kafka.fetch.max.wait.ms": "300000"})
    reader = stream.reader
    reader.latestOffset(stream.offset, ReadAllAvailable())  # the first batch has nothing in it
    found: list[object] = []
    asking = threading.Thread(
        target=lambda: found.append(reader.latestOffset(stream.offset, ReadAllAvailable()))
    )
    asking.start()
    asking.join(0.3)
    assert asking.is_alive()  # else Spark would ask again and again
    produce(broker.bootstrap_servers, "idle", [b"x"], partition=1)
    asking.join(120)
    assert found == [{"idle": {"0": 0, "1": 1}}]


def test_an_idle_stream_answers_after_a_while(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("quiet")
    stream = Stream({**servers, "subscribe": "quiet", "kafka.fetch.max.wait.ms": "100"})
    stream.step()
    begun = time.monotonic()
    assert stream.step() is None
    assert time.monotonic() - begun >= 0.09  # it counts whole milliseconds


def test_a_stream_of_no_topic_yet_waits_too(broker: Broker, servers: dict[str, str]) -> None:
    stream = Stream({**servers, "subscribePattern": "not-yet-.*"})
    assert stream.offset == {}
    begun = time.monotonic()
    assert stream.step() is None
    assert time.monotonic() - begun >= 0.04  # it counts whole milliseconds


def test_the_most_per_trigger(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("most", 2)
    for partition in (0, 1):
        produce(broker.bootstrap_servers, "most", numbered(10), partition=partition)
    base = {**servers, "subscribe": "most", "startingOffsets": "earliest"}
    stream = Stream({**base, "maxOffsetsPerTrigger": "8"})
    assert stream.reader.getDefaultReadLimit() == ReadMaxRows(8)
    sizes = [len(rows) for rows in iter(stream.step, None)]
    assert sizes == [8, 8, 4]
    everything = Stream({**base, "maxOffsetsPerTrigger": "8"}).everything()
    assert everything is not None
    assert len(everything) == 20


def test_the_least_per_trigger(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("least")
    produce(broker.bootstrap_servers, "least", numbered(1))
    base = {**servers, "subscribe": "least", "startingOffsets": "earliest"}
    stream = Stream({**base, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "1h"})
    assert stream.reader.getDefaultReadLimit() == ReadMinRows(5)
    assert stream.step() == [b"0"]  # the first is not made to wait
    produce(broker.bootstrap_servers, "least", numbered(3, 1))
    assert stream.step() is None
    produce(broker.bootstrap_servers, "least", numbered(2, 4))
    assert stream.step() == numbered(5, 1)


def test_the_least_is_not_waited_for_longer_than_the_delay(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("delay")
    produce(broker.bootstrap_servers, "delay", numbered(1))
    base = {**servers, "subscribe": "delay", "startingOffsets": "earliest"}
    stream = Stream({**base, "minOffsetsPerTrigger": "5", "maxTriggerDelay": "0s"})
    assert stream.step() == [b"0"]
    produce(broker.bootstrap_servers, "delay", numbered(1, 1))
    assert stream.step() == [b"1"]


def test_the_least_and_the_most_together(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("both")
    produce(broker.bootstrap_servers, "both", numbered(10))
    base = {**servers, "subscribe": "both", "startingOffsets": "earliest"}
    limits = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "4"}
    stream = Stream({**base, **limits})
    assert [stream.step() for _ in range(3)] == [numbered(4), numbered(4, 4), None]


def test_available_now_ends_where_the_log_ended_when_it_began(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("now")
    produce(broker.bootstrap_servers, "now", numbered(5))
    base = {**servers, "subscribe": "now", "startingOffsets": "earliest"}
    limits = {"maxOffsetsPerTrigger": "3", "minOffsetsPerTrigger": "3"}
    stream = Stream({**base, **limits})
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() == numbered(3)
    produce(broker.bootstrap_servers, "now", numbered(5, 5))
    assert stream.step() == numbered(2, 3)
    with broker.delay("Fetch", 0.0, times=None, topic="now") as waiting:
        assert stream.step() is None
    assert not waiting.fired


def test_new_partitions_are_read_from_their_beginning(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("grows")
    stream = Stream({**servers, "subscribe": "grows", "maxOffsetsPerTrigger": "100"})
    produce(broker.bootstrap_servers, "grows", [b"a"])
    assert stream.step() == [b"a"]
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_partitions({"grows": 2}).unwrap()
    produce(broker.bootstrap_servers, "grows", [b"b", b"c"], partition=1)
    assert stream.step() == [b"b", b"c"]
    assert stream.offset == {"grows": {"0": 1, "1": 2}}


def test_new_topics_of_a_pattern_are_read_from_their_beginning(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("matching-1")
    stream = Stream({**servers, "subscribePattern": "matching-.*"})
    broker.create_topic("matching-2")
    produce(broker.bootstrap_servers, "matching-2", [b"new"])
    assert stream.step() == [b"new"]


def test_a_new_partition_that_has_lost_records_already_is_data_loss(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("late-1")
    base = {**servers, "subscribePattern": "late-.*"}
    strict, lenient = Stream(base), Stream({**base, "failOnDataLoss": "false"})
    broker.create_topic("late-2")
    produce(broker.bootstrap_servers, "late-2", numbered(5))
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({at("late-2"): 2}).unwrap()
    with pytest.raises(DataLossError, match="Added partition late-2-0 starts from 2"):
        strict.step()
    assert lenient.step() == numbered(3, 2)


def test_a_deleted_topic_fails_the_stream_or_is_left_out(
    broker: Broker, servers: dict[str, str]
) -> None:
    for topic in ("gone-1", "gone-2"):
        broker.create_topic(topic)
    base = {**servers, "subscribePattern": "gone-.*", "fetchOffset.numRetries": "2"}
    named = {**servers, "subscribe": "gone-1,gone-2", "fetchOffset.numRetries": "2"}
    strict, lenient = Stream(base), Stream({**base, "failOnDataLoss": "false"})
    strict_named, lenient_named = Stream(named), Stream({**named, "failOnDataLoss": "false"})
    produce(broker.bootstrap_servers, "gone-2", [b"kept"])
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics(["gone-1"]).unwrap()
    with pytest.raises(DataLossError, match="gone-1-0 are gone"):
        strict.step()
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        strict_named.step()
    for stream in (lenient, lenient_named):
        assert stream.step() == [b"kept"]
        assert stream.offset == {"gone-2": {"0": 1}}
        assert stream.step() is None


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_if_that_is_allowed(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("anew")
    produce(broker.bootstrap_servers, "anew", numbered(9))
    base = {**servers, "subscribe": "anew", "fetchOffset.numRetries": "2"}
    strict, lenient = Stream(base), Stream({**base, "failOnDataLoss": "false"})
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_topics(["anew"]).unwrap()
        admin.create_topics(["anew"]).unwrap()
    produce(broker.bootstrap_servers, "anew", [b"new-1", b"new-2"])
    with pytest.raises(DataLossError, match="offset was changed from 9 to 2"):
        strict.step()
    assert lenient.step() == [b"new-1", b"new-2"]


def test_an_aborted_transaction_makes_a_batch_without_rows(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("aborted")
    base = {**servers, "subscribe": "aborted", "kafka.isolation.level": "read_committed"}
    stream = Stream(base)
    where = {"transactional_id": "aborted-id", "bootstrap_servers": broker.bootstrap_servers}
    with BlockingProducer(as_settings(where)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("aborted", value=b"void", partition=0)
        producer.flush()
        assert stream.step() is None  # not before it is decided
        producer.abort_transaction()
    assert stream.step() == []
    produce(broker.bootstrap_servers, "aborted", [b"good"])
    assert stream.step() == [b"good"]


def committed(broker: Broker, group: str) -> dict[str, int]:
    with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
        found = admin.list_group_offsets([group]).unwrap()[group]
    return {str(partition): each.offset for partition, each in found.items()}


def test_processed_offsets_are_committed_to_a_group(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("lag")
    produce(broker.bootstrap_servers, "lag", numbered(5))
    options = {"subscribe": "lag", "startingOffsets": "earliest", "commitOffsetsToGroup": "shown"}
    stream = Stream({**servers, **options})
    assert stream.step() == numbered(5)
    stream.reader.commit(stream.offset)
    assert committed(broker, "shown") == {"lag-0": 5}
    produce(broker.bootstrap_servers, "lag", numbered(2, 5))
    stream.reader.prepareForTriggerAvailableNow()
    assert stream.step() == numbered(2, 5)
    assert stream.step() is None  # Spark tells of the last batch only by asking once more
    assert committed(broker, "shown") == {"lag-0": 7}


def test_a_refused_commit_does_not_end_the_stream(broker: Broker, servers: dict[str, str]) -> None:
    broker.create_topic("refused")
    produce(broker.bootstrap_servers, "refused", numbered(5))
    options = {"subscribe": "refused", "startingOffsets": "earliest"}
    stream = Stream({**servers, **options, "commitOffsetsToGroup": "unlucky"})
    with broker.fail("OffsetCommit", "GROUP_AUTHORIZATION_FAILED") as fault:
        stream.reader.commit({"refused": {"0": 1}})
    assert fault.fired == 1
    assert stream.step() == numbered(5)


def test_an_end_before_where_the_stream_is_is_asked_for_again(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("behind")
    produce(broker.bootstrap_servers, "behind", numbered(3))
    options = {"subscribe": "behind", "fetchOffset.numRetries": "10000"}
    stream = Stream({**servers, **options}, start={"behind": {"0": 5}})
    with (
        broker.delay("ListOffsets", 0.0, times=None, topic="behind") as asked,
        ThreadPoolExecutor(1) as threads,
    ):
        stepped = threads.submit(stream.step)
        while asked.fired < 2:
            assert not stepped.done()
            time.sleep(0.001)
        produce(broker.bootstrap_servers, "behind", numbered(3, 3))
        assert stepped.result(120) == [b"5"]


def test_reported_is_what_there_is_not_what_is_taken(
    broker: Broker, servers: dict[str, str]
) -> None:
    broker.create_topic("report")
    produce(broker.bootstrap_servers, "report", numbered(9))
    base = {**servers, "subscribe": "report", "startingOffsets": "earliest"}
    stream = Stream({**base, "maxOffsetsPerTrigger": "4"})
    stream.step()
    assert stream.offset == {"report": {"0": 4}}
    assert stream.reader.reportLatestOffset() == {"report": {"0": 9}}


def test_options_for_batches_only_are_refused_when_the_reader_is_made() -> None:
    with pytest.raises(OptionError, match="ending offset not valid in streaming queries"):
        Stream({"kafka.bootstrap.servers": "h:1", "subscribe": "t", "endingOffsets": "latest"})
