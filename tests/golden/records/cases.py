"""What the golden files hold: the same few records, written by other people's libraries."""

from pathlib import Path

from odradek.records import Record

DATA = Path(__file__).parent / "data"
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LEGACY_CODECS = CODECS[:4]
T0 = 1_700_000_000_000

RECORDS = (
    Record(0, T0, b"key", b"value", (("h", b"1"), ("h", b""), ("n", None), ("ü", b"\xff"))),
    Record(1, T0 + 5, None, b"no key"),
    Record(2, T0 + 3, b"tombstone", None),
    Record(3, T0 + 7, b"", b""),
    # Long enough to cross a 32 KiB chunk of snappy and a 64 KiB block of LZ4.
    *(Record(4 + i, T0 + 10, b"k%d" % i, b"the same again and again " * 40) for i in range(80)),
)


def records_of(codec: str, magic: int = 2) -> tuple[Record, ...]:
    """Return what a file holds: few records if they are not compressed, to keep the file small."""
    records = RECORDS[:8] if codec == "none" else RECORDS
    # Message sets know no headers, and those of v0 no timestamps.
    if magic < 2:
        records = tuple(record._replace(headers=()) for record in records)
    if magic < 1:
        records = tuple(record._replace(timestamp=-1) for record in records)
    return records


def path_of(library: str, codec: str, magic: int = 2) -> Path:
    return DATA / f"{library}-v{magic}-{codec}.bin"
