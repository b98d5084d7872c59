"""Tasks of the Spark sink against a real Kafka, without Spark: its markers are legal commits."""

from pathlib import Path

import pyarrow as pa
import pytest

from odradek.spark.marker_store import Markers
from odradek.spark.sink import OdradekWriter
from odradek.spark.sink_access import sink_access
from odradek.spark.sink_options import parse_sink_options
from odradek.spark.task_markers import Task
from odradek.spark.writing import write_task
from tests.interop.kafka_peer import KafkaNode, kafka_tool
from tests.interop.transaction_clients import wait_until_settled
from tests.written_records import read_topic, values

pytestmark = [pytest.mark.slow, pytest.mark.kafka]


def test_a_task_is_done_once_on_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    texts = [f"{number}" for number in range(5000)]
    batch = pa.RecordBatch.from_pydict({"value": texts, "key": texts})
    with KafkaNode(tmp_path / "data") as node:
        server = ("--bootstrap-server", node.bootstrap_servers)
        kafka_tool("topics", *server, "--create", "--topic", "out", "--partitions", "3")
        given = {"kafka.bootstrap.servers": node.bootstrap_servers, "topic": "out"}
        options = parse_sink_options(given)
        told = [
            write_task(options, Task("sink", "query", run, 4, partition), iter([batch]))
            for run, partition in (("a", 0), ("b", 0), ("b", 7), ("b", 7))
        ]
        assert [each.is_replay for each in told] == [False, True, False, True]
        wait_until_settled(node.bootstrap_servers, "out", 3)
        found = read_topic(node.bootstrap_servers, "out")
        assert sorted((each.value or b"").decode() for each in found) == sorted(texts * 2)
        listed = kafka_tool("consumer-groups", *server, "--list").stdout.split()
        assert sorted(listed) == ["sink-query-7", "sink-query-tasks"]
        described = kafka_tool("consumer-groups", *server, "--describe", "--all-groups").stdout
        lines = [each.split() for each in described.splitlines() if each.startswith("sink-query")]
        # Kafka's tool leaves out, or shows as "-", what has no offset: there is no lag to see.
        assert [each for each in lines if each[3:6:2] != ["-", "-"]] == []
        access = sink_access(options)
        now = Task("sink", "query", "c", 4, 0)
        survey = access.run(Markers(access.cluster).survey(now, 3, is_stream=True))
        assert [*survey.beyond] == [7]
        writer = OdradekWriter(options)
        writer.commit([write_task(options, writer._task(0), iter([batch]))])
        assert "odradek-spark" not in kafka_tool("consumer-groups", *server, "--list").stdout


def test_rows_that_a_real_kafka_refuses_are_told_from_their_neighbours(
    kafka_libs: Path, tmp_path: Path
) -> None:
    batch = pa.RecordBatch.from_pydict(
        {"value": ["a", "no key", "b", "nor here", "c"], "key": ["1", None, "2", None, "3"]}
    )
    with KafkaNode(tmp_path / "data") as node:
        for create in ("--topic compact --config cleanup.policy=compact", "--topic dead"):
            server = ("--bootstrap-server", node.bootstrap_servers)
            kafka_tool("topics", *server, "--create", *create.split())
        given = {"kafka.bootstrap.servers": node.bootstrap_servers, "topic": "compact"}
        options = parse_sink_options({**given, "deadLetterTopic": "dead"})
        told = write_task(options, Task("sink", "query", "run", 0, 0), iter([batch]))
        assert told.dead_letters == 2
        for topic in ("compact", "dead"):
            wait_until_settled(node.bootstrap_servers, topic)
        assert values(read_topic(node.bootstrap_servers, "compact")) == [b"a", b"b", b"c"]
        letters = read_topic(node.bootstrap_servers, "dead")
        assert values(letters) == [b"no key", b"nor here"]
        reason = dict(letters[0].headers)["__connect.errors.exception.message"]
        assert reason is not None
        assert b"INVALID_RECORD" in reason
