"""Options of the source: names, defaults, precedence, and what is refused with which words."""

import pytest

from odradek.core.ids import TopicPartition
from odradek.spark.offsets import (
    EARLIEST,
    LATEST,
    AtTimestamp,
    AtTimestamps,
    Everywhere,
    Specific,
)
from odradek.spark.options import (
    Assign,
    OptionError,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    check_for_batch,
    check_for_stream,
    parse_options,
)
from odradek.spark.source import OdradekDataSource

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
MINIMAL = {**SERVERS, "subscribe": "t"}


def options(**given: str) -> SourceOptions:
    return parse_options({**MINIMAL, **given})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    parsed = options()
    assert parsed.selection == Subscribe(("t",))
    assert parsed.starting_for_batch == Everywhere(EARLIEST)
    assert parsed.ending_for_batch == Everywhere(LATEST)
    assert parsed.starting_for_stream == Everywhere(LATEST)
    assert parsed.fail_on_data_loss
    assert not parsed.include_headers
    assert (parsed.retries, parsed.retry_interval_ms) == (3, 1000)
    assert parsed.trigger_delay_max_ms == 15 * 60_000
    assert parsed.poll_timeout_ms == 120_000
    assert not parsed.is_read_committed


def test_names_are_taken_in_any_case() -> None:
    parsed = parse_options({"KAFKA.Bootstrap.Servers": "h:1", "SUBSCRIBE": " a, b ,a,"})
    assert parsed.selection == Subscribe(("a", "b"))


def test_columns_are_wanted_in_the_order_given() -> None:
    assert options().columns == ()
    assert options(columns=" offset, key,offset ,").columns == ("offset", "key")
    given = {**MINIMAL, "columns": "offset,key", "keyFormat": "utf8"}
    assert OdradekDataSource(given).schema() == "offset LONG, key STRING"
    with pytest.raises(OptionError, match="columns: 'headers' is not one of key, value, topic"):
        OdradekDataSource({**MINIMAL, "columns": "key,headers"}).schema()


def test_the_three_ways_to_select_partitions() -> None:
    pattern = parse_options({**SERVERS, "subscribePattern": " t.* "})
    assert pattern.selection == SubscribePattern("t.*")
    assigned = parse_options({**SERVERS, "assign": '{"a":[0,2],"b":[1]}'})
    wanted = {TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)}
    assert assigned.selection == Assign(frozenset(wanted))


def test_a_global_timestamp_wins_over_those_of_partitions_and_these_over_offsets() -> None:
    offsets = {"startingOffsets": "earliest"}
    by_time = {**offsets, "startingOffsetsByTimestamp": '{"t":{"0":7}}'}
    everywhere = {**by_time, "startingTimestamp": "5"}
    assert options(**offsets).starting == Everywhere(EARLIEST)
    at = AtTimestamps({TopicPartition("t", 0): 7}, or_latest=False)
    assert options(**by_time).starting == at
    assert options(**everywhere).starting == AtTimestamp(5, or_latest=False)


def test_only_a_start_can_fail_for_want_of_records_that_new() -> None:
    latest = {"startingOffsetsByTimestampStrategy": "Latest", "startingTimestamp": "5"}
    assert options(**latest).starting == AtTimestamp(5, or_latest=True)
    assert options(endingTimestamp="5").ending == AtTimestamp(5, or_latest=True)


def test_offsets_are_read_from_json_with_marks() -> None:
    parsed = options(startingOffsets='{"t":{"0":23,"1":-2,"2":-1}}').starting
    assert parsed == Specific(
        {TopicPartition("t", 0): 23, TopicPartition("t", 1): -2, TopicPartition("t", 2): -1}
    )


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("10s", 10_000), ("2 min", 120_000), ("1h", 3_600_000), ("250", 250), ("1d", 86_400_000)],
)
def test_trigger_delays_have_units(text: str, milliseconds: int) -> None:
    assert options(maxTriggerDelay=text).trigger_delay_max_ms == milliseconds


def test_kafka_options_go_to_the_client_and_those_of_the_java_client_only_are_ignored() -> None:
    parsed = options(
        **{"kafka.isolation.level": "read_committed", "kafka.receive.buffer.bytes": "1"}
    )
    assert parsed.is_read_committed
    assert dict(parsed.client) == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_committed",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kafka.bootstrap.servers": "h:1"}, "One of the following options must be specified"),
        ({**MINIMAL, "subscribePattern": "x"}, "Only one of these options can be specified"),
        ({"subscribe": "t"}, "'kafka.bootstrap.servers' must be specified"),
        ({**SERVERS, "subscribe": " , "}, "No topics to subscribe to"),
        ({**SERVERS, "subscribePattern": " "}, "Pattern to subscribe is empty"),
        ({**SERVERS, "subscribePattern": "("}, "is no pattern"),
        ({**SERVERS, "assign": "t"}, "assign: expected e.g."),
        ({**SERVERS, "assign": "{}"}, "No topicpartitions to assign"),
        ({**SERVERS, "assign": '{"t":[-1]}'}, "needs a list of partition numbers"),
        ({**MINIMAL, "startingOffsets": "soon"}, "startingOffsets: expected e.g."),
        ({**MINIMAL, "startingOffsets": '{"t":{"0":-3}}'}, "-3 is out of range"),
        ({**MINIMAL, "startingOffsets": '{"t":{"x":1}}'}, "'x' is not a partition number"),
        ({**MINIMAL, "startingTimestamp": "now"}, "expected a single long value, got now"),
        ({**MINIMAL, "startingOffsetsByTimestamp": '{"t":{"0":-1}}'}, "-1 is out of range"),
        ({**MINIMAL, "startingOffsetsByTimestampStrategy": "guess"}, "'guess' is no strategy"),
        ({**MINIMAL, "failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({**MINIMAL, "minPartitions": "0"}, "minPartitions must be positive"),
        ({**MINIMAL, "maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition must be positive"),
        ({**MINIMAL, "maxOffsetsPerTrigger": "x"}, "maxOffsetsPerTrigger must be positive"),
        (
            {**MINIMAL, "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            r"minOffsetsPerTrigger\(5\) is higher than the maxOffsetsPerTrigger\(4\)",
        ),
        ({**MINIMAL, "maxTriggerDelay": "soon"}, "is not a time like"),
        ({**MINIMAL, "fetchOffset.numRetries": "-1"}, "not a number of 0 or more"),
        ({**MINIMAL, "kafka.auto.offset.reset": "latest"}, "'startingOffsets'"),
        ({**MINIMAL, "kafka.enable.auto.commit": "true"}, "'enable.auto.commit' is not supported"),
        ({**MINIMAL, "kafka.key.deserializer": "x"}, "'key.deserializer' is not supported"),
        ({**MINIMAL, "kafka.value.deserializer": "x"}, "'value.deserializer' is not supported"),
        ({**MINIMAL, "kafka.interceptor.classes": "x"}, "'interceptor.classes' is not supported"),
        ({**MINIMAL, "kafka.isolation.levle": "x"}, "did you mean 'isolation.level'"),
        ({**MINIMAL, "kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not host:port"),
        ({**MINIMAL, "startingOffset": "earliest"}, "did you mean 'startingOffsets'"),
        ({**MINIMAL, "valueFormat": "xml"}, "valueFormat: 'xml' is not one of"),
        ({**MINIMAL, "valueFormat": "avro"}, "valueFormat=avro and valueSchema go together"),
        ({**MINIMAL, "avroFraming": "plain"}, "avroFraming is for"),
        (
            {**MINIMAL, "keyFormat": "avro", "keySchema": '"int"', "avroFraming": "x"},
            "avroFraming: 'x' is not one of",
        ),
        ({**MINIMAL, "valueFormat": "json"}, "valueFormat=json and valueSchema go together"),
        ({**MINIMAL, "keySchema": "a int"}, "keySchema goes together with keyFormat=json or avro"),
        ({**MINIMAL, "commitOffsetsToGroup": " "}, "the name of a group is empty"),
    ],
)
def test_what_is_wrong_is_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse_options(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "startingOffsets for t-0 can't be latest"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest"),
        ({"endingOffsets": '{"t":{"0":-2}}'}, "ending offset for t-0 can't be earliest"),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"0":4}}'},
            "t-0: the starting offset 5 is after the ending one, 4",
        ),
        (
            {"startingOffsets": '{"t":{"0":5}}', "endingOffsets": '{"t":{"1":9}}'},
            "different topic partitions",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"t":{"0":5}}',
                "endingOffsetsByTimestamp": '{"t":{"0":4}}',
            },
            "t-0: the starting timestamp 5 is after",
        ),
        ({"commitOffsetsToGroup": "g"}, "commitOffsetsToGroup is for streaming queries"),
    ],
)
def test_what_a_batch_cannot_have(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_for_batch(options(**given))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"endingOffsets": "latest"}, "ending offset not valid in streaming queries"),
        ({"endingTimestamp": "5"}, "ending timestamp not valid in streaming queries"),
        ({"log.dirs": "/x"}, "log.dirs is not valid in streaming queries"),
    ],
)
def test_what_a_stream_cannot_have(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        check_for_stream(options(**given))


def test_log_dirs_need_no_servers() -> None:
    parsed = parse_options({"log.dirs": "/a, /b", "subscribe": "t"})
    assert parsed.log_dirs == ("/a", "/b")
    check_for_batch(parsed)
