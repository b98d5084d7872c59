"""Segment files read without a broker: those of real Kafkas, and our own while they are written."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import BlockingAdmin, BlockingProducer
from odradek.client.settings import as_settings
from odradek.core.ids import TopicPartition
from odradek.spark import log_files
from odradek.spark.log_files import LogFiles
from odradek.spark.options import OptionError
from odradek.spark.planning import DataLossError
from odradek.storage.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.storage.disk import OsDisk
from odradek.storage.dump.read_only import ReadOnlyFile
from odradek.testing.broker import Broker
from tests.interop.kafka_peer.golden import GoldenPartition, read_manifest, unpack
from tests.spark_reading import batch_reader, produce, read_batch, values
from tests.storage_batches import BASE_TIME_MS, make_batch

ARCHIVES = ["clean", "crashed", "magic0", "magic1"]
COMMITTED = {"kafka.isolation.level": "read_committed"}


def rows_of(table_options: dict[str, str]) -> list[tuple[object, ...]]:
    table = read_batch({**table_options, "includeHeaders": "true"})
    return [
        (
            *(row["topic"], row["partition"], row["offset"], row["key"], row["value"]),
            round(row["timestamp"].timestamp() * 1000),
            tuple((each["key"], each["value"]) for each in row["headers"] or ()),
        )
        for row in table.to_pylist()
    ]


def expected(
    name: str, golden: GoldenPartition, *, end: int, states: set[str]
) -> list[tuple[object, ...]]:
    topic, _, number = name.rpartition("-")
    return [
        (
            *(topic, int(number), each.offset, each.key, each.value),
            *(each.timestamp, each.headers),
        )
        for each in golden.records
        if each.offset < end and each.state in states
    ]


@pytest.mark.parametrize("name", ARCHIVES)
def test_logs_of_real_kafkas_have_the_records_that_a_real_consumer_read(
    name: str, tmp_path: Path
) -> None:
    data_dir = unpack(name, tmp_path)
    marks = read_offset_checkpoint(OsDisk(), data_dir / HIGH_WATERMARK_CHECKPOINT)
    base = {"log.dirs": str(data_dir), "subscribePattern": ".*"}
    everything: list[tuple[object, ...]] = []
    committed: list[tuple[object, ...]] = []
    for folder, golden in read_manifest(name).items():
        topic, _, number = folder.rpartition("-")
        end = marks.get(TopicPartition(topic, int(number)), 0)
        everything += expected(folder, golden, end=end, states={"visible", "aborted", "pending"})
        end = min(end, golden.last_stable_offset)
        committed += expected(folder, golden, end=end, states={"visible"})
    known = {row[0] for row in everything}
    assert len(everything) > 100
    for options, wanted in (({}, everything), (COMMITTED, committed)):
        found = rows_of({**base, **options})
        assert sorted(row for row in found if row[0] in known) == sorted(wanted)


HEADER_COLUMNS = ("topic", "partition", "offset", "timestampType")


def by_headers(options: dict[str, str]) -> list[dict[str, object]]:
    """Read as Spark does where nothing is wanted but what headers tell."""
    reader = batch_reader({**options, "columns": ",".join(HEADER_COLUMNS)})
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert {tuple(batch.schema.names) for batch in batches} <= {HEADER_COLUMNS}
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("name", ARCHIVES)
@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_headers_tell_the_same_as_the_records(name: str, isolation: str, tmp_path: Path) -> None:
    """Records of real Kafkas: compacted, aborted, of all formats."""
    base = {
        "log.dirs": str(unpack(name, tmp_path)),
        "subscribePattern": ".*",
        "kafka.isolation.level": isolation,
    }
    everything = read_batch(base).select(HEADER_COLUMNS).to_pylist()
    assert len(everything) > 100
    assert by_headers(base) == everything
    pieces = {**base, "maxRecordsPerPartition": "7"}
    assert by_headers(pieces) == everything
    assert read_batch(pieces).select(HEADER_COLUMNS).to_pylist() == everything


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%04d" % number for number in range(start, start + count)]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The log directory of a broker that has stopped: 500 records in many small segments."""
    data_dir = tmp_path / "data"
    with Broker(data_dir=str(data_dir)) as broker:
        broker.create_topic(
            "t", segment_bytes="2000", index_interval_bytes="100", retention_ms="-1"
        )
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for start in range(0, 500, 10):
                for number in range(start, start + 10):
                    value, time_ms = b"%04d" % number, 1000 * number
                    producer.send("t", value=value, partition=0, timestamp=time_ms)
                producer.flush()
    (found,) = {path.parent.parent for path in data_dir.glob("**/t-0/*.log")}
    return found


def test_our_own_logs_are_read_whole(written: Path) -> None:
    assert len(LogFiles(written / "t-0").base_offsets()) > 3
    assert values(read_batch({"log.dirs": str(written), "subscribe": "t"})) == numbered(500)


def test_a_range_begins_and_ends_in_the_middle_of_segments(written: Path) -> None:
    base = {"log.dirs": str(written), "subscribe": "t"}
    for start, end in ((0, 1), (7, 13), (123, 377), (499, 500)):
        limits = {
            "startingOffsets": f'{{"t":{{"0":{start}}}}}',
            "endingOffsets": f'{{"t":{{"0":{end}}}}}',
        }
        assert values(read_batch({**base, **limits})) == numbered(end - start, start)


def test_a_range_by_headers_begins_and_ends_in_the_middle_of_batches(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {"log.dirs": str(written), "subscribe": "t"}
    opened: list[int] = []
    load = log_files._load

    def loading(file: ReadOnlyFile, position: int, size: int) -> memoryview:
        opened.append(position)
        return load(file, position, size)

    monkeypatch.setattr(log_files, "_load", loading)
    for start, end in ((0, 1), (7, 13), (123, 377), (499, 500), (0, 500)):
        limits = {
            "startingOffsets": f'{{"t":{{"0":{start}}}}}',
            "endingOffsets": f'{{"t":{{"0":{end}}}}}',
        }
        found = by_headers({**base, **limits})
        assert [row["offset"] for row in found] == list(range(start, end))
        assert len(opened) <= 2, "only those that are cut"
        opened.clear()


def test_a_batch_that_is_being_written_is_not_there_yet(written: Path) -> None:
    last = max((written / "t-0").glob("*.log"))
    (written / HIGH_WATERMARK_CHECKPOINT).unlink()
    whole = last.read_bytes()
    (*_, end) = LogFiles(written / "t-0").headers(0, 500)
    for cut in (1, end.size - 62, end.size - 30, end.size - 5):
        last.write_bytes(whole[:-cut])
        found = by_headers({"log.dirs": str(written), "subscribe": "t"})
        assert [row["offset"] for row in found] == list(range(end.base_offset))
        held = LogFiles(written / "t-0").held_batches(0, 500)
        assert [each.header.next_offset for each in held][-1] == end.base_offset


def test_indexes_say_where_to_begin(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = LogFiles(written / "t-0")
    monkeypatch.setattr("odradek.spark.log_files.READ_BYTES", 256)
    last = files.base_offsets()[-1]
    first_chunk = next(files.chunks(499, 500))
    assert files.size(last) > 600
    offset = int.from_bytes(first_chunk[:8], "big")
    assert last < offset <= 499


def test_an_index_that_leads_too_far_is_not_believed(written: Path) -> None:
    for path in (written / "t-0").glob("*.index"):
        wrong = bytearray(path.read_bytes())
        for slot in range(0, len(wrong), 8):
            wrong[slot + 4 : slot + 8] = (10**6).to_bytes(4, "big")
        path.write_bytes(wrong)
    base = {"log.dirs": str(written), "subscribe": "t"}
    for start in range(5, 500, 61):
        found = read_batch({**base, "startingOffsets": f'{{"t":{{"0":{start}}}}}'})
        assert values(found) == numbered(500 - start, start)


def test_ranges_by_time(written: Path) -> None:
    base = {"log.dirs": str(written), "subscribe": "t"}
    found = read_batch({**base, "startingTimestamp": "122500", "endingTimestamp": "130000"})
    assert values(found) == numbered(7, 123)
    with pytest.raises(OptionError, match="No offset matched"):
        read_batch({**base, "startingTimestamp": "999999999"})
    late = {"startingTimestamp": "999999999", "startingOffsetsByTimestampStrategy": "latest"}
    assert values(read_batch({**base, **late})) == []


def test_the_time_index_says_where_to_look(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.spark.log_files.READ_BYTES", 256)
    files = LogFiles(written / "t-0")
    base_offset, next_base_offset = files.base_offsets()[-3:-1]
    looked_at: list[int] = []
    whole = LogFiles.segment_chunks

    def watched(self: LogFiles, base_offset: int, position: int, end: int) -> Iterator[memoryview]:
        for chunk in whole(self, base_offset, position, end):
            looked_at.append(int.from_bytes(chunk[:8], "big"))
            yield chunk

    monkeypatch.setattr(LogFiles, "segment_chunks", watched)
    sought = next_base_offset - 1
    assert files.offset_at(1000 * sought, 0, 500) == sought
    assert base_offset < looked_at[0] <= sought


def test_times_that_are_not_in_order_are_all_found(tmp_path: Path) -> None:
    times = [5000, 9000, 1000, 2000, 8000, 500, 9500, 100]
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        broker.create_topic("t", index_interval_bytes="1", retention_ms="-1")
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number, time_ms in enumerate(times):
                producer.send("t", b"%d" % number, partition=0, timestamp=time_ms)
                producer.flush()
    (folder,) = {path.parent for path in tmp_path.glob("data/**/t-0/*.log")}
    for least in range(0, 10_000, 250):
        wanted = next((n for n, time_ms in enumerate(times) if time_ms >= least), None)
        assert LogFiles(folder).offset_at(least, 0, len(times)) == wanted


def test_a_task_is_a_run_of_segments(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.spark.log_dirs.TASK_BYTES", 3000)
    bases = LogFiles(written / "t-0").base_offsets()
    options = {"log.dirs": str(written), "subscribe": "t"}
    tasks = [part.value for part in batch_reader(options).partitions()]
    assert 1 < len(tasks) < len(bases)
    assert {task.start for task in tasks} <= set(bases)
    assert values(read_batch(options)) == numbered(500)
    smaller = batch_reader({**options, "maxRecordsPerPartition": "50"}).partitions()
    assert max(part.value.end - part.value.start for part in smaller) <= 50


def test_only_what_is_below_the_high_watermark_is_read(written: Path) -> None:
    base = {"log.dirs": str(written), "subscribe": "t"}
    mark = written / HIGH_WATERMARK_CHECKPOINT
    write_offset_checkpoint(OsDisk(), mark, {TopicPartition("t", 0): 42})
    assert values(read_batch(base)) == numbered(42)
    mark.unlink()
    segment = sorted((written / "t-0").glob("*.log"))[-1]
    with segment.open("ab") as log:
        torn = make_batch([b"torn"], base_offset=500, timestamp=BASE_TIME_MS)
        log.write(torn[:-3])
    assert values(read_batch(base)) == numbered(500)


def test_a_segment_deleted_after_planning_is_data_loss(written: Path) -> None:
    base = {"log.dirs": str(written), "subscribe": "t"}
    reader, lenient = batch_reader(base), batch_reader({**base, "failOnDataLoss": "false"})
    (planned,) = reader.partitions()
    sorted((written / "t-0").glob("*.log"))[0].unlink()
    with pytest.raises(DataLossError, match="a segment was deleted"):
        list(reader.read(planned))
    assert list(lenient.read(planned)) == []


def test_offsets_before_the_log_start_are_data_loss(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Broker(data_dir=str(data_dir), topics=["t"]) as broker:
        produce(broker.bootstrap_servers, "t", numbered(10))
        with BlockingAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.delete_records({TopicPartition("t", 0): 4}).unwrap()
    (log_dir,) = {path.parent.parent for path in data_dir.glob("**/t-0/*.log")}
    base = {"log.dirs": str(log_dir), "subscribe": "t"}
    assert values(read_batch(base)) == numbered(6, 4)
    from_zero = {**base, "startingOffsets": '{"t":{"0":0}}'}
    with pytest.raises(DataLossError, match="t-0: offsets 0 to 3 are gone"):
        read_batch(from_zero)
    assert values(read_batch({**from_zero, "failOnDataLoss": "false"})) == numbered(6, 4)


def test_tasks_know_which_transactions_were_aborted_and_which_are_open(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    with Broker(data_dir=str(data_dir), topics=["t"]) as broker:
        settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": "one"}
        with BlockingProducer(as_settings(settings)) as producer:
            producer.init_transactions()
            for start, is_good in ((0, True), (5, False), (10, True), (15, False), (20, True)):
                producer.begin_transaction()
                for value in numbered(5, start):
                    producer.send("t", value, partition=0)
                producer.flush()
                if is_good:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
            producer.begin_transaction()
            producer.send("t", b"open", partition=0)
            producer.flush()
            produce(broker.bootstrap_servers, "t", [b"behind"])
            (found,) = {path.parent for path in data_dir.glob("**/t-0/*.log")}
            # Of the log alone: checkpoints come and go beside it, as time passes.
            log_dir = Path(shutil.copytree(found, tmp_path / "copy" / "t-0")).parent
            producer.abort_transaction()
    base = {"log.dirs": str(log_dir), "subscribe": "t"}
    committed = [*numbered(5), *numbered(5, 10), *numbered(5, 20)]
    for pieces in ("100", "3", "1"):
        options = {**base, **COMMITTED, "maxRecordsPerPartition": pieces}
        assert values(read_batch(options)) == committed
    assert values(read_batch(base)) == [*numbered(25), b"open", b"behind"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t,missing"}, "there is no log of missing"),
        ({"assign": '{"t":[0,3]}'}, "there is no log of t-3"),
        ({"subscribe": "t", "log.dirs": "/does/not/exist"}, "is not a folder"),
        ({"subscribe": "t", "startingOffsets": '{"x":{"0":1}}'}, "there is no offset for t-0"),
    ],
)
def test_what_is_not_there_is_refused(written: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_batch({"log.dirs": str(written), **options})
