"""Lines about batches and records, for what the golden files do not have."""

import pytest

from odradek.records import BatchBuilder, CompressionType, Record
from odradek.records.batch import peek_header
from odradek.records.control import ControlRecordType, encode_control_key
from odradek.records.legacy import build_message_set
from tests.unit.storage.dump.dumped import LOG, batch, lines_of, out, problems

BATCH_0 = (
    "baseOffset: 0 lastOffset: 1 count: 2 baseSequence: -1 lastSequence: -1 producerId: -1 "
    "producerEpoch: -1 partitionLeaderEpoch: 0 isTransactional: false isControl: false "
    "deleteHorizonMs: OptionalLong.empty position: 0 CreateTime: 1731661200000 size: {size} "
    "magic: 2 compresscodec: none crc: {crc} isvalid: {valid}"
)


def orders() -> bytes:
    builder = BatchBuilder(partition_leader_epoch=0)
    builder.append(1731661200000, b"k1", b"hello")
    builder.append(1731661200000, None, None, [("a", b""), ("b", None)])
    return bytes(builder.build())


@pytest.mark.seed_row("4.5")
def test_lines_are_those_of_the_conventions() -> None:
    data = orders()
    header = peek_header(data)
    assert out(lines_of({LOG: data}, f"/data/orders-0/{LOG}", print_data_log=True)) == [
        f"Dumping /data/orders-0/{LOG}",
        "Log starting offset: 0",
        BATCH_0.format(size=len(data), crc=header.crc, valid="true"),
        "| offset: 0 CreateTime: 1731661200000 keySize: 2 valueSize: 5 sequence: -1 "
        "headerKeys: [] key: k1 payload: hello",
        "| offset: 1 CreateTime: 1731661200000 keySize: -1 valueSize: -1 sequence: -1 "
        "headerKeys: [a,b]",
    ]


def test_records_are_left_out_unless_asked_for() -> None:
    assert len(out(lines_of({LOG: orders()}, LOG))) == 3
    assert out(lines_of({LOG: orders()}, LOG, deep_iteration=True))[3].endswith("headerKeys: []")


def test_bytes_behind_the_last_whole_batch_are_counted() -> None:
    lines = lines_of({LOG: orders() + orders()[:30]}, LOG)
    assert out(lines)[-1] == f"Found 30 invalid bytes at the end of {LOG}"
    assert problems(lines) == []


def test_a_byte_limit_ends_the_dump_without_complaint() -> None:
    data = orders()
    assert len(out(lines_of({LOG: data * 3}, LOG, bytes_max=2 * len(data)))) == 4
    assert len(out(lines_of({LOG: data * 3}, LOG, bytes_max=2 * len(data) - 1))) == 3


def test_a_batch_that_fails_its_checksum_is_shown_with_its_records() -> None:
    data = bytearray(orders())
    data[data.index(b"hello")] ^= 0x20
    crc = peek_header(data).crc
    shown = out(lines_of({LOG: bytes(data)}, LOG, print_data_log=True))
    assert shown[2] == BATCH_0.format(size=len(data), crc=crc, valid="false")
    assert shown[3].endswith("payload: Hello")


def test_a_header_that_contradicts_itself_is_shown_as_it_is() -> None:
    data = bytearray(orders())
    data[57:61] = (9).to_bytes(4, "big")  # nine records, two offsets
    assert " count: 9 " in out(lines_of({LOG: bytes(data)}, LOG))[2]
    lines = lines_of({LOG: bytes(data)}, LOG, deep_iteration=True)
    assert len(problems(lines)) == 1
    assert problems(lines)[0].startswith(f"{LOG}: malformed records")


def test_gaps_between_offsets_are_told_at_the_end() -> None:
    name = "00000000000000000007.log"
    data = batch(b"a", b"b", base_offset=7) + batch(b"c", base_offset=12)
    assert problems(lines_of({name: data}, name, deep_iteration=True)) == [
        f"Non-consecutive offsets in /data/orders-0/{name}",
        "  -1 is followed by 7",
        "  8 is followed by 12",
    ]


def test_delete_horizon_and_sequences_that_wrap() -> None:
    data = batch(
        b"a",
        b"b",
        delete_horizon_ms=123,
        producer_id=4,
        producer_epoch=0,
        base_sequence=2**31 - 1,
    )
    shown = out(lines_of({LOG: data}, LOG, deep_iteration=True))
    assert "baseSequence: 2147483647 lastSequence: 0 producerId: 4" in shown[2]
    assert "deleteHorizonMs: OptionalLong[123]" in shown[2]
    assert " sequence: 2147483647 " in shown[3]
    assert " sequence: 0 " in shown[4]


def control(key: bytes | None, value: bytes | None) -> list[str]:
    builder = BatchBuilder(control=True)
    builder.append(1000, key, value)
    lines = lines_of({LOG: bytes(builder.build())}, LOG, print_data_log=True)
    return out(lines)[3:] + problems(lines)


@pytest.mark.parametrize("name", ["COMMIT", "ABORT"])
def test_markers_say_how_a_transaction_ended(name: str) -> None:
    [line] = control(encode_control_key(ControlRecordType[name]), b"\0\0\0\0\0\7")
    assert line.endswith(f"headerKeys: [] endTxnMarker: {name} coordinatorEpoch: 7")


def test_control_records_from_the_future_and_from_nowhere() -> None:
    [line] = control(b"\0\0\0\x2a", b"")
    assert line.endswith(" controlType: UNKNOWN(42)")
    assert control(b"\0", b"")[0].startswith(f"{LOG}: ")
    assert "has no value" in control(b"\0\0\0\2", None)[0]


def test_skipping_metadata_leaves_an_empty_line_for_a_control_record() -> None:
    builder = BatchBuilder(control=True)
    builder.append(1000, b"\0\0\0\1", b"\0\0\0\0\0\7")
    data = batch(b"a") + bytes(builder.build())
    shown = out(lines_of({LOG: data}, LOG, print_data_log=True, skip_record_metadata=True))
    assert shown[3] == "| payload: a"
    assert shown[-1] == ""


def test_text_that_is_not_utf8_is_replaced_as_java_does() -> None:
    shown = out(lines_of({LOG: batch(b"a\xff\xed\xa0\x80z\xe2\x82")}, LOG, print_data_log=True))
    assert shown[3].endswith("payload: a\ufffd\ufffdz\ufffd")


@pytest.mark.parametrize(("magic", "kind"), [(0, "NoTimestampType: -1"), (1, "CreateTime: 5")])
def test_old_messages_have_their_own_checksums(magic: int, kind: str) -> None:
    records = [Record(3, 5, b"k", b"v"), Record(4, 5, None, None)]
    data = build_message_set(records, magic=magic)
    first, header, second, tombstone = out(lines_of({LOG: data}, LOG, print_data_log=True))[2:]
    crc = int.from_bytes(data[12:16], "big")
    size = len(build_message_set(records[:1], magic=magic))
    assert first == (
        f"offset: 3 position: 0 {kind} size: {size} magic: {magic} "
        f"compresscodec: none crc: {crc} isvalid: true"
    )
    assert header == (
        f"| offset: 3 {kind} keySize: 1 valueSize: 1 isValid: true crc: {crc} key: k payload: v"
    )
    assert second.startswith(f"offset: 4 position: {size} ")
    assert f"{kind} keySize: -1 valueSize: -1 isValid: true" in tombstone


def test_a_damaged_old_message_is_shown() -> None:
    data = bytearray(build_message_set([Record(3, 5, b"k", b"value")], magic=1))
    data[-1] ^= 1
    shown = out(lines_of({LOG: bytes(data)}, LOG, print_data_log=True))
    assert shown[2].endswith("isvalid: false")
    assert "isValid: false" in shown[3]


def test_messages_inside_a_wrapper_get_their_offsets_and_the_time_of_the_log() -> None:
    records = [Record(offset, 5, None, b"v") for offset in (7, 8, 9)]
    data = build_message_set(records, magic=1, codec=CompressionType.GZIP, log_append_time=99)
    shown = out(lines_of({LOG: data}, LOG, deep_iteration=True))
    assert shown[2].startswith("offset: 9 position: 0 LogAppendTime: 99 ")
    assert [line[:29] for line in shown[3:]] == [
        f"| offset: {offset} LogAppendTime: 99" for offset in (7, 8, 9)
    ]


def test_metadata_snapshots_are_named_by_offset_and_epoch() -> None:
    name = "00000000000000000012-0000000003.checkpoint"
    assert out(lines_of({name: b""}, name))[1] == "Snapshot end offset: 12, epoch: 3"
    name = "bootstrap.checkpoint"
    assert out(lines_of({name: b""}, name))[1] == "KRaft bootstrap snapshot"
    [problem] = problems(lines_of({"x.checkpoint": b""}, "x.checkpoint"))
    assert "OFFSET-EPOCH.checkpoint" in problem
