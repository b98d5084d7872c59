"""Every way into ``odradek.records``: batches, message sets, the record codec, the four codecs.

Checksums would stop nearly every damaged batch at the door, so most inputs are mended: the length
and checksum of the first batch or message are made to fit. Attackers can compute those too.

The compiled record codec and its plain-Python twin get the same bytes and must give the same
records, or refuse in the same place.
"""

import struct
from collections.abc import Callable
from random import Random
from zlib import crc32

from crc32c import crc32c

from fuzz.targets import Input, Target
from odradek.core.errors import ApiError, CorruptionError
from odradek.records import (
    HEADER_BYTES,
    BatchBuilder,
    CompressionType,
    ControlRecordType,
    EndTransactionMarker,
    Record,
    build_end_transaction_marker,
    implementation,
    iter_headers,
    read_records,
    summarize,
    verify_crc,
)
from odradek.records import codec as plain_codec
from odradek.records.arrow import PartitionRecords, to_table
from odradek.records.compression import compress, decompress
from odradek.records.legacy import build_message_set, convert_to_v2, iter_legacy

OUTPUT_BYTES_MAX = 1 << 16
LOG_OVERHEAD = 12
_COUNT = struct.Struct(">H")


class RecordsTarget(Target):
    name = "records"

    def __init__(self) -> None:
        self._decoders: dict[str, Callable[[bytes], None]] = {
            "batch": decode_batches,
            "legacy": decode_legacy,
            "arrow": decode_arrow,
            "records": decode_records,
            **{codec.name.lower(): unpacker(codec) for codec in CompressionType if codec},
        }

    def seeds(self) -> list[Input]:
        random = Random("records")
        inputs: list[Input] = []
        for count in (0, 1, 2, 5, 40):
            records = [random_record(random, offset) for offset in range(count)]
            batches = [one_batch(records, codec) for codec in CompressionType]
            batches.append(batches[0] + batches[1])
            inputs += [Input(label, batch) for batch in batches for label in ("batch", "arrow")]
            for message_set in message_sets(records):
                inputs += [Input("legacy", message_set), Input("arrow", message_set)]
            body = batches[0][HEADER_BYTES:]
            inputs.append(Input("records", _COUNT.pack(count) + body))
            inputs += [
                Input(codec.name.lower(), compress(codec, body))
                for codec in CompressionType
                if codec
            ]
        inputs.append(Input("batch", end_marker()))
        return inputs

    def decode(self, given: Input) -> bool:
        try:
            self._decoders[given.label](given.data)
        except (CorruptionError, ApiError):
            return False
        return True

    def mend(self, given: Input, random: Random) -> Input:
        data = bytearray(given.data)
        if given.label not in ("batch", "legacy", "arrow") or len(data) < 26:
            return given
        if random.random() < 0.5:
            struct.pack_into(">i", data, 8, len(data) - LOG_OVERHEAD)
        (size,) = struct.unpack_from(">i", data, 8)
        end = LOG_OVERHEAD + max(size, 0)
        if data[16] >= 2:
            struct.pack_into(">I", data, 17, crc32c(data[21:end]))
        else:
            struct.pack_into(">I", data, 12, crc32(data[16:end]))
        return Input(given.label, bytes(data))

    def peak_bytes_max(self, size: int) -> int:
        """A record of seven bytes becomes an object of some two hundred."""
        return (OUTPUT_BYTES_MAX + size) * 64


def decode_batches(data: bytes) -> None:
    for header in iter_headers(data, partial_tail=True):
        verify_crc(data, header)
        summary = summarize(data, header, output_bytes_max=OUTPUT_BYTES_MAX)
        records = read_records(data, header, output_bytes_max=OUTPUT_BYTES_MAX)
        assert sum(record.key is None for record in records) == summary.null_keys


def decode_legacy(data: bytes) -> None:
    for batch in iter_legacy(data, partial_tail=True, output_bytes_max=OUTPUT_BYTES_MAX):
        assert batch.records
    # Numbered anew, as a leader does; what came out of it must be a sound batch.
    for converted in convert_to_v2(
        data, base_offset=0, partial_tail=True, output_bytes_max=OUTPUT_BYTES_MAX
    ):
        try:
            decode_batches(bytes(converted))
        except CorruptionError as error:
            raise AssertionError("conversion made a corrupt batch") from error


def decode_arrow(data: bytes) -> None:
    part = PartitionRecords("t", 0, data)
    table = to_table(
        [part],
        include_headers=True,
        partial_tail=True,
        check_crc=False,
        output_bytes_max=OUTPUT_BYTES_MAX,
    )
    table.validate(full=True)


def decode_records(data: bytes) -> None:
    """Decode records without a batch around them, twice."""
    if len(data) < _COUNT.size:
        return
    (count,) = _COUNT.unpack_from(data)
    body = data[_COUNT.size :]
    for theirs, ours in (
        (
            attempt(lambda: list(plain_codec.iter_records(body, count, 0, 0, None))),
            attempt(lambda: list(implementation.iter_records(body, count, 0, 0, None))),
        ),
        (
            attempt(lambda: plain_codec.summarize_records(body, count, 0)),
            attempt(lambda: implementation.summarize_records(body, count, 0)),
        ),
    ):
        assert ours == theirs, "the compiled codec and its twin differ"
        if isinstance(ours, str):
            raise CorruptionError(ours)


def attempt(work: Callable[[], object]) -> object:
    """Return what ``work`` gave, or the text of its refusal."""
    try:
        return work()
    except CorruptionError as error:
        return str(error)


def unpacker(codec: CompressionType) -> Callable[[bytes], None]:
    def unpack(data: bytes) -> None:
        unpacked = decompress(codec, data, output_bytes_max=OUTPUT_BYTES_MAX)
        assert len(unpacked) <= OUTPUT_BYTES_MAX

    return unpack


def random_record(random: Random, offset: int) -> Record:
    def some_bytes() -> bytes | None:
        return None if random.random() < 0.2 else random.randbytes(random.choice((0, 3, 20, 200)))

    headers = tuple((f"h{i}", some_bytes()) for i in range(random.choice((0, 0, 2))))
    return Record(offset, 1_700_000_000_000 + offset, some_bytes(), some_bytes(), headers)


def one_batch(records: list[Record], codec: CompressionType) -> bytes:
    builder = BatchBuilder(codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)
    builder.append_records(records)
    return bytes(builder.build())


def message_sets(records: list[Record]) -> list[bytes]:
    """Return the records as message sets of both old formats, plain and in wrappers."""
    bare = [record._replace(headers=()) for record in records]
    codecs = (CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4)
    return [
        build_message_set(bare, magic=magic, codec=codec)
        for magic in (0, 1)
        for codec in (CompressionType.NONE, *(codecs if bare else ()))
    ]


def end_marker() -> bytes:
    marker = EndTransactionMarker(ControlRecordType.COMMIT, coordinator_epoch=3)
    return bytes(build_end_transaction_marker(marker, timestamp=1, producer_id=7, producer_epoch=1))
