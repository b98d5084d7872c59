"""A leader takes no batch that its readers could not read, however good its checksum is."""

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.records import BatchBuilder, CompressionType, parse_header, read_records
from odradek.records.batch import seal
from odradek.records.compression import Room
from odradek.storage import opening
from odradek.storage.config import CleanupPolicy, LogConfig
from odradek.storage.opening import OpeningDeferredError, unpacked_bytes_max
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.validation import validate
from tests import malformed_batches
from tests.malformed_batches import PACKED, Case

NOW_MS = 1_700_000_000_000
MIB = 1024 * 1024
PLAIN = LogConfig()
CONFIGS = [
    PLAIN,
    LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT})),
    LogConfig(compression_type="lz4"),
    LogConfig(compression_type="uncompressed"),
]


class Purse:
    """A budget that does not come back."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.room = Room()

    def spend(self, count: int) -> None:
        self.left -= count


def code_of(case: Case, config: LogConfig) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        validate(case.batch(NOW_MS), config, AppendOrigin.CLIENT, NOW_MS)
    return raised.value.code


@pytest.mark.parametrize("case", malformed_batches.BODY_CASES, ids=lambda case: case.name)
def test_records_that_are_not_what_the_header_says_are_refused(case: Case) -> None:
    assert {code_of(case, config) for config in CONFIGS} == {ErrorCode.INVALID_RECORD}


@pytest.mark.parametrize("case", malformed_batches.OFFSET_CASES, ids=lambda case: case.name)
def test_offsets_that_do_not_count_from_0_are_refused(case: Case) -> None:
    assert {code_of(case, config) for config in CONFIGS} == {ErrorCode.INVALID_RECORD}


@pytest.mark.parametrize("case", malformed_batches.STREAM_CASES, ids=lambda case: case.name)
def test_what_does_not_unpack_is_refused(case: Case) -> None:
    assert {code_of(case, config) for config in CONFIGS} == {ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("case", malformed_batches.SOUND_CASES, ids=lambda case: case.name)
def test_what_is_merely_unusual_is_taken(case: Case) -> None:
    for config in CONFIGS:
        batch, header = validate(case.batch(NOW_MS), config, AppendOrigin.CLIENT, NOW_MS)
        assert [record.offset for record in read_records(batch, header)] == [0, 1, 2]


def test_what_the_broker_writes_itself_is_believed() -> None:
    batch = malformed_batches.batch_of(malformed_batches.GARBAGE, 3, NOW_MS)
    assert validate(batch, PLAIN, AppendOrigin.COORDINATOR, NOW_MS)[0] is batch


def large(size: int, codec: CompressionType) -> bytearray:
    """Return one record of zeros, which no codec but snappy leaves more than a percent of."""
    builder = BatchBuilder(codec=codec)
    builder.append(NOW_MS, b"k", bytes(size))
    return builder.build()


@pytest.mark.parametrize("codec", PACKED)
def test_a_batch_may_not_unpack_to_more_than_its_limit(
    codec: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "UNPACKED_BYTES_MAX", 2 * MIB)
    monkeypatch.setattr(opening, "UNPACKED_RATIO_MAX", 2)
    config = LogConfig(max_message_bytes=MIB)
    validate(large(2 * MIB - 100, codec), config, AppendOrigin.CLIENT, NOW_MS)
    with pytest.raises(ApiError, match="smaller batches") as raised:
        validate(large(2 * MIB, codec), config, AppendOrigin.CLIENT, NOW_MS)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_what_may_come_unpacked_may_come_packed() -> None:
    header = parse_header(large(10, CompressionType.ZSTD))
    assert unpacked_bytes_max(header, LogConfig(max_message_bytes=MIB)) == 16 * MIB
    assert unpacked_bytes_max(header, LogConfig(max_message_bytes=100 * MIB)) == 100 * MIB
    assert unpacked_bytes_max(header._replace(batch_length=MIB), LogConfig()) > 32 * MIB
    assert unpacked_bytes_max(header._replace(batch_length=100 * MIB), LogConfig()) == 256 * MIB


@pytest.mark.parametrize("codec", PACKED)
def test_what_passes_the_budget_is_left_for_later_and_paid_for(codec: CompressionType) -> None:
    batch, purse = large(100_000, codec), Purse(150_000)
    validate(batch, PLAIN, AppendOrigin.CLIENT, NOW_MS, purse)
    assert 49_000 < purse.left < 50_000
    before = bytes(batch)
    for _ in range(2):
        with pytest.raises(OpeningDeferredError):
            validate(batch, PLAIN, AppendOrigin.CLIENT, NOW_MS, purse)
        assert purse.left == 0
    assert batch == before
    validate(batch, PLAIN, AppendOrigin.CLIENT, NOW_MS)


def test_data_that_breaks_off_late_is_paid_for_too() -> None:
    packed = large(100_000, CompressionType.ZSTD)[:-3]
    packed[8:12] = (len(packed) - 12).to_bytes(4, "big")
    seal(packed, parse_header(packed))
    purse = Purse(MIB)
    with pytest.raises(ApiError):
        validate(packed, PLAIN, AppendOrigin.CLIENT, NOW_MS, purse)
    assert purse.left == 0


def test_packing_anew_is_never_done_within_a_budget() -> None:
    purse = Purse(MIB)
    with pytest.raises(OpeningDeferredError):
        validate(
            large(10, CompressionType.NONE),
            LogConfig(compression_type="gzip"),
            AppendOrigin.CLIENT,
            NOW_MS,
            purse,
        )
    assert purse.left == MIB
