"""Record formats: batch v2, message sets v0 and v1, compression, and the way to Arrow and back.

``batch``           a batch from the outside: header, checksum, the fields a broker patches
``reader``          the records of a batch, lazily; the summary a leader needs before it appends
``builder``         batches from records; markers, emptied batches
``control``         control records and the markers that end transactions
``legacy``          message sets v0 and v1, and their conversion
``compression``     the four codecs, each with a ceiling on its output
``arrow``           tables from batches and batches from columns (needs pyarrow; import it yourself)
``record``          the record, its layout, and the faults its bytes can have
``codec``           the record codec in plain Python …
``column_codec``    … its part for columns …
``_compiled``       … and the compiled twin of both, used if it was built: ``COMPILED`` tells
``columns``         the shapes of columns, shared by the twins
``implementation``  which twin is in use

Bytes that came from outside and are malformed raise ``odradek.core.errors.CorruptionError`` and
nothing else; nothing is allocated on their word.
"""

from odradek.records.batch import (
    HEADER_BYTES,
    BatchHeader,
    TimestampType,
    is_partial,
    iter_headers,
    magic_at,
    parse_header,
    peek_header,
    set_last_offset,
    set_max_timestamp,
    set_producer_state,
    stamp,
    verify_crc,
)
from odradek.records.builder import (
    BatchBuilder,
    build_empty_batch,
    build_end_transaction_marker,
    record_size_max,
)
from odradek.records.compression import DECOMPRESSED_BYTES_MAX, CompressionType
from odradek.records.control import ControlRecordType, EndTransactionMarker
from odradek.records.implementation import COMPILED
from odradek.records.reader import read_all, read_records, records_body, summarize
from odradek.records.record import Header, Record, RecordsSummary

__all__ = [
    "COMPILED",
    "DECOMPRESSED_BYTES_MAX",
    "HEADER_BYTES",
    "BatchBuilder",
    "BatchHeader",
    "CompressionType",
    "ControlRecordType",
    "EndTransactionMarker",
    "Header",
    "Record",
    "RecordsSummary",
    "TimestampType",
    "build_empty_batch",
    "build_end_transaction_marker",
    "is_partial",
    "iter_headers",
    "magic_at",
    "parse_header",
    "peek_header",
    "read_all",
    "read_records",
    "record_size_max",
    "records_body",
    "set_last_offset",
    "set_max_timestamp",
    "set_producer_state",
    "stamp",
    "summarize",
    "verify_crc",
]
