"""Real Kafka reads what our storage engine wrote: its dump tool, and a whole node on our files."""

import re
from pathlib import Path
from random import Random

import confluent_kafka
import pytest

from odradek.core.ids import TopicPartition
from odradek.records import CompressionType
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.recovery import LogSettings, create_log
from tests.interop.kafka_peer import KafkaNode, dump_log, kafka_tool
from tests.storage_batches import BASE_TIME_MS, make_batch, make_marker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

DEADLINE_SECONDS = 90
SETTINGS = LogSettings(LogConfig(segment_bytes=2000, index_interval_bytes=300))


def fill(log: Log) -> None:
    """Every codec, a committed and an aborted transaction, several epochs and segments."""
    for number in range(40):
        codec = CompressionType(number % 5)
        batch = make_batch(
            [b"value %d" % number, None, b""],
            keys=[b"k%d" % number, b"tombstone", None],
            codec=codec,
            timestamp=BASE_TIME_MS + number,
        )
        log.append_as_leader(batch, leader_epoch=number // 20, now_ms=BASE_TIME_MS)
    for producer_id, commit in ((7, True), (8, False)):
        for sequence in range(3):
            batch = make_batch(
                [b"in a transaction"],
                timestamp=BASE_TIME_MS + 100,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=True,
            )
            log.append_as_leader(batch, leader_epoch=2, now_ms=BASE_TIME_MS)
        marker = make_marker(producer_id, 0, commit=commit, timestamp=BASE_TIME_MS + 100)
        log.append_as_leader(
            marker, leader_epoch=2, now_ms=BASE_TIME_MS, origin=AppendOrigin.COORDINATOR
        )
    log.update_high_watermark(log.log_end_offset)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    log = create_log(
        TopicPartition("t", 0),
        OsDisk(),
        tmp_path / "t-0",
        SETTINGS,
        now_ms=BASE_TIME_MS,
        random=Random(1),
    )
    fill(log)
    assert len(log.segments) > 2
    log.close()
    return tmp_path / "t-0"


def names(folder: Path, kind: str) -> list[Path]:
    found = sorted(path.relative_to(folder) for path in folder.glob(f"*{kind}"))
    assert found
    return found


@pytest.mark.seed_row("1.1")
def test_its_dump_tool_finds_our_segments_valid(folder: Path) -> None:
    text = dump_log(names(folder, ".log"), "--print-data-log", "--deep-iteration", cwd=folder)
    batches = re.findall(r"baseOffset: (\d+) lastOffset: (\d+) .* isvalid: (\w+)", text)
    assert len(batches) == 40 + 8
    assert {valid for _, _, valid in batches} == {"true"}
    assert int(batches[-1][1]) == 40 * 3 + 8 - 1
    assert len(re.findall(r"endTxnMarker: COMMIT", text)) == 1
    assert len(re.findall(r"endTxnMarker: ABORT", text)) == 1
    assert "payload: value 39" in text


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_its_dump_tool_finds_our_indexes_true(folder: Path, kind: str) -> None:
    checked = kafka_tool(
        "dump-log",
        "--verify-index-only",
        "--files",
        ",".join(map(str, names(folder, kind))),
        cwd=folder,
    )
    assert "Mismatches" not in checked.stdout + checked.stderr
    sane = kafka_tool(
        "dump-log",
        "--index-sanity-check",
        "--files",
        ",".join(map(str, names(folder, kind))),
        cwd=folder,
    )
    assert sane.stdout.count("passed sanity check.") == len(names(folder, kind))


def test_its_dump_tool_reads_our_snapshots_and_aborted_transactions(folder: Path) -> None:
    snapshot = dump_log(names(folder, ".snapshot")[-1:], cwd=folder)
    assert "producerId: 7 producerEpoch: 0" in snapshot
    aborted = dump_log(names(folder, ".txnindex"), cwd=folder)
    assert re.search(r"producerId: 8 firstOffset: 124 lastOffset: 127", aborted)


@pytest.mark.seed_row("1.1")
def test_a_real_node_serves_a_log_that_we_wrote(tmp_path: Path) -> None:
    """Kafka makes a topic, we write its log while it is down, Kafka serves our records."""
    data_dir = tmp_path / "data"
    with KafkaNode(data_dir) as node:
        kafka_tool(
            *("topics", "--bootstrap-server", node.bootstrap_servers),
            *("--create", "--topic", "t", "--partitions", "1"),
        )
    folder = data_dir / "t-0"
    for path in folder.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    log = create_log(
        TopicPartition("t", 0), OsDisk(), folder, SETTINGS, now_ms=BASE_TIME_MS, random=Random(1)
    )
    for number in range(30):
        batch = make_batch([b"value %d" % number], codec=CompressionType(number % 5))
        log.append_as_leader(batch, leader_epoch=0, now_ms=BASE_TIME_MS)
    log.close()
    # The records are old: retention would take them 30 s after the node has started.
    with KafkaNode(data_dir, {"log.retention.ms": "-1"}) as node:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": node.bootstrap_servers, "group.id": "g", "check.crcs": True}
        )
        consumer.assign([confluent_kafka.TopicPartition("t", 0, 0)])
        messages = consumer.consume(30, timeout=DEADLINE_SECONDS)
        consumer.close()
    assert [m.value() for m in messages] == [b"value %d" % number for number in range(30)]
