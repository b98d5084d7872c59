"""Avro values inside Spark: every type gets there, and bad rows into ``_corrupt``."""

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from pyspark.sql import SparkSession

from odradek.client import BlockingProducer
from odradek.testing.broker import Broker

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "order", "type": "int"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "digest", "type": {"type": "fixed", "name": "Digest", "size": 2}},
        {
            "name": "items",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Item",
                    "fields": [{"name": "n", "type": "long"}],
                },
            },
        },
        {"name": "counts", "type": {"type": "map", "values": ["null", "double"]}},
        {"name": "either", "type": ["null", "int", "string"]},
    ],
}
VALUE = {
    "order": 7,
    "day": date(2026, 1, 2),
    "at": MOMENT,
    "local": MOMENT.replace(tzinfo=None),
    "price": Decimal("12.34"),
    "kind": "B",
    "digest": b"\x01\x02",
    "items": [{"n": 1}, {"n": 2**40}],
    "counts": {"a": 1.5, "b": None},
    "either": "text",
}


def encoded(value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(SCHEMA), value)
    return stream.getvalue()


@pytest.mark.slow
def test_avro_of_every_type_becomes_columns(spark: SparkSession) -> None:
    good = encoded(VALUE)
    header = b"\0" + (5).to_bytes(4, "big")
    with Broker(memory=True, topics=["t"]) as broker:
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for value in (header + good, None, header + good[:-1], header + encoded(VALUE)):
                producer.send("t", value).result(60)
        rows = (
            spark.read.format("odradek")
            .option("kafka.bootstrap.servers", broker.bootstrap_servers)
            .options(subscribe="t", valueFormat="avro", valueSchema=json.dumps(SCHEMA))
            .option("avroFraming", "confluent")
            .load()
            .orderBy("offset")
        )
        told = rows.selectExpr("value.*", "_corrupt.error IS NOT NULL AS bad").collect()
        moments = rows.selectExpr("unix_millis(value.at) AS at").collect()
    found = [row.asDict(recursive=True) for row in told]
    assert [row["bad"] for row in found] == [False, False, True, False]
    expected = {
        **{name: VALUE[name] for name in ("order", "day", "local", "price", "kind", "counts")},
        "digest": bytearray(b"\x01\x02"),
        "items": VALUE["items"],
        "either": {"member0": None, "member1": "text"},
    }
    for row in (found[0], found[3]):
        assert {name: row[name] for name in expected} == expected
    assert {found[n][name] for n in (1, 2) for name in ("order", "at", "kind")} == {None}
    # A moment has the zone of the session when it is collected.
    millis = int(MOMENT.timestamp() * 1000)
    assert [row["at"] for row in moments] == [millis, None, None, millis]
