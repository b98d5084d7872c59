"""What the sink takes and refuses, before anything runs."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from odradek.spark.options import OptionError
from odradek.spark.sink import batch_writer, stream_writer
from odradek.spark.sink_options import TRANSACTION_TIMEOUT_MS, check_schema, parse_sink_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = StructField("value", StringType())


def test_defaults() -> None:
    options = parse_sink_options({**SERVERS, "topic": "t"})
    assert options.is_exactly_once
    assert options.transactional_id_prefix == "odradek-spark"
    settings = options.settings("id")
    assert settings.integer("transaction.timeout.ms") == TRANSACTION_TIMEOUT_MS
    chosen = parse_sink_options({**SERVERS, "kafka.transaction.timeout.ms": "7000"})
    assert chosen.settings("id").integer("transaction.timeout.ms") == 7000


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "kafka.bootstrap.servers"),
        ({**SERVERS, "deliveryGuarantee": "sometimes"}, "deliveryGuarantee"),
        ({**SERVERS, "deadLettersTopic": "x"}, "did you mean 'deadLetterTopic'"),
        ({**SERVERS, "kafka.lingr.ms": "1"}, "did you mean 'linger.ms'"),
        ({**SERVERS, "kafka.key.serializer": "x"}, "key.serializer"),
        ({**SERVERS, "kafka.transactional.id": "x"}, "transactionalIdPrefix"),
        ({**SERVERS, "kafka.acks": "1"}, "acks=all"),
        ({**SERVERS, "kafka.acks": "0", "deliveryGuarantee": "at-least-once"}, "kafka.acks"),
        ({**SERVERS, "topic": " "}, "topic is empty"),
        ({**SERVERS, "transactionalIdPrefix": "a b"}, "transactionalIdPrefix"),
        ({**SERVERS, "txnAppId": "a"}, "go together"),
        ({**SERVERS, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        parse_sink_options(given)


def test_settings_of_java_and_options_of_spark_do_no_harm() -> None:
    given = {"checkpointLocation": "/x", "queryName": "q", "kafka.metric.reporters": "x"}
    options = parse_sink_options({**SERVERS, **given, "kafka.compression.type": "lz4"})
    assert dict(options.client) == {
        "bootstrap.servers": "localhost:9092",
        "compression.type": "lz4",
    }


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ([StructField("key", StringType())], "'value' not found"),
        ([StructField("value", LongType())], "value attribute unsupported type bigint"),
        ([VALUE, StructField("key", IntegerType())], "key attribute unsupported type int"),
        ([VALUE, StructField("partition", LongType())], "partition attribute unsupported"),
        ([VALUE, StructField("headers", ArrayType(StringType()))], "headers attribute"),
    ],
)
def test_columns_are_checked_as_sparks_kafka_sink_does(
    fields: list[StructField], problem: str
) -> None:
    with pytest.raises(OptionError, match=problem):
        check_schema(parse_sink_options({**SERVERS, "topic": "t"}), StructType(fields))


def test_without_the_option_there_has_to_be_a_column_for_the_topic() -> None:
    with pytest.raises(OptionError, match="topic option required"):
        check_schema(parse_sink_options(SERVERS), StructType([VALUE]))


def test_columns_that_it_takes() -> None:
    header = StructType([StructField("k", StringType()), StructField("v", BinaryType())])
    fields = [
        StructField("Value", BinaryType()),
        StructField("key", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("headers", ArrayType(header)),
        StructField("else", LongType()),
    ]
    check_schema(parse_sink_options(SERVERS), StructType(fields))


def test_what_a_batch_and_a_stream_cannot_do() -> None:
    schema = StructType([VALUE])
    given = {**SERVERS, "topic": "t"}
    with pytest.raises(OptionError, match="overwritten"):
        batch_writer(given, schema, overwrite=True)
    with pytest.raises(OptionError, match="txnAppId is for batch writes"):
        stream_writer({**given, "txnAppId": "a", "txnVersion": "1"}, schema, overwrite=False)
