"""Refusals name the records at fault, all of them and no others."""

from collections.abc import Sequence

import pytest

from odradek.core.errors import ErrorCode
from odradek.records import BatchBuilder, CompressionType, TimestampType, parse_header
from odradek.records.batch import seal, set_max_timestamp, verify_crc
from odradek.storage.config import CleanupPolicy, LogConfig
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.record_errors import RECORD_ERRORS_MAX, RecordsRefusedError
from odradek.storage.validation import validate

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
COMPACT = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
RECENT = LogConfig(message_timestamp_before_max_ms=HOUR_MS)
CODECS = [CompressionType.NONE, CompressionType.ZSTD]

Row = tuple[bytes | None, int]


def batch_of(rows: Sequence[Row], codec: CompressionType = CompressionType.NONE) -> bytearray:
    builder = BatchBuilder(codec=codec)
    for key, timestamp in rows:
        builder.append(timestamp, key, b"v")
    return builder.build()


def refusal(batch: bytearray, config: LogConfig) -> RecordsRefusedError:
    with pytest.raises(RecordsRefusedError) as raised:
        validate(batch, config, AppendOrigin.CLIENT, NOW_MS)
    return raised.value


def indexes(refused: RecordsRefusedError) -> list[int]:
    return [each.batch_index for each in refused.record_errors]


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_named_where_the_log_is_compacted(codec: CompressionType) -> None:
    batch = batch_of([(b"k", NOW_MS), (None, NOW_MS), (b"", NOW_MS), (None, NOW_MS)], codec)
    refused = refusal(batch, COMPACT)
    assert refused.code is ErrorCode.INVALID_RECORD
    assert indexes(refused) == [1, 3]
    assert "2 of 4 records" in refused.message
    assert "compacted" in refused.record_errors[0].message
    validate(batch, RECENT, AppendOrigin.CLIENT, NOW_MS)


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_out_of_bounds_are_named_on_both_sides(codec: CompressionType) -> None:
    times = [NOW_MS - HOUR_MS - 1, NOW_MS - HOUR_MS, NOW_MS, NOW_MS + HOUR_MS, NOW_MS + HOUR_MS + 1]
    refused = refusal(batch_of([(b"k", each) for each in times], codec), RECENT)
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert indexes(refused) == [0, 4]
    assert str(times[4]) in refused.record_errors[1].message


def test_a_record_without_a_timestamp_neither_fails_nor_hides_one_that_is_too_old() -> None:
    old = NOW_MS - HOUR_MS - 1
    assert indexes(refusal(batch_of([(b"k", -1), (b"k", old), (b"k", NOW_MS)]), RECENT)) == [1]
    validate(batch_of([(b"k", -1), (b"k", NOW_MS)]), RECENT, AppendOrigin.CLIENT, NOW_MS)


def test_one_bad_timestamp_decides_the_code_of_all() -> None:
    late = NOW_MS + HOUR_MS + 1
    refused = refusal(batch_of([(None, NOW_MS), (b"k", late), (None, late)]), COMPACT)
    assert refused.code is ErrorCode.INVALID_TIMESTAMP
    assert indexes(refused) == [0, 1, 2]
    assert ["compacted" in each.message for each in refused.record_errors] == [True, False, True]


def test_a_time_that_only_the_broker_sets_is_the_fault_of_every_record() -> None:
    batch = batch_of([(b"k", NOW_MS), (b"k", NOW_MS)])
    set_max_timestamp(batch, parse_header(batch), TimestampType.LOG_APPEND_TIME, NOW_MS)
    config = LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    refused = refusal(batch, config)
    assert (refused.code, indexes(refused)) == (ErrorCode.INVALID_TIMESTAMP, [0, 1])


@pytest.mark.parametrize("claimed_ms", [NOW_MS + 2 * HOUR_MS, NOW_MS - HOUR_MS, -1])
@pytest.mark.parametrize("codec", CODECS)
def test_a_header_that_claims_a_time_no_record_has_is_put_right(
    claimed_ms: int, codec: CompressionType
) -> None:
    batch = batch_of([(b"k", NOW_MS - 1), (b"k", NOW_MS)], codec)
    batch[35:43] = claimed_ms.to_bytes(8, "big", signed=True)
    seal(batch, parse_header(batch))
    valid, header = validate(batch, LogConfig(), AppendOrigin.CLIENT, NOW_MS)
    assert header == parse_header(valid)
    assert header.max_timestamp == NOW_MS
    verify_crc(valid, header)


def test_a_refusal_names_no_more_than_the_limit_and_counts_all() -> None:
    refused = refusal(batch_of([(None, NOW_MS)] * (RECORD_ERRORS_MAX + 5)), COMPACT)
    assert indexes(refused) == list(range(RECORD_ERRORS_MAX))
    assert f"{RECORD_ERRORS_MAX + 5} of {RECORD_ERRORS_MAX + 5}" in refused.message
    assert f"and {RECORD_ERRORS_MAX + 2} more" in refused.message
