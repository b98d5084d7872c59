"""Data directories that a real Kafka wrote, kept in tests/golden/storage; no Java needed.

Each archive `<name>.tar.xz` is one data directory. Beside it lie `<name>.json`, what a real
consumer read from it, and `<name>.dump/*.txt`, what the real DumpLogSegments prints about it.
README.md in that folder describes each archive.
"""

import base64
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

FOLDER = Path(__file__).parents[2] / "golden" / "storage"

# aborted: hidden from read_committed for ever; pending: its transaction was still open.
State = Literal["visible", "aborted", "pending"]


class GoldenRecord(NamedTuple):
    """`timestamp` is -1 where the record's format, 0, has none."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    state: State


class GoldenPartition(NamedTuple):
    """What consumers saw; offsets that `records` skips are control records or compacted away."""

    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    timestamp_type: str
    records: tuple[GoldenRecord, ...]


def unpack(name: str, into: Path) -> Path:
    """Extract an archive; gives the data directory (its 10 MiB index files come out sparse)."""
    with tarfile.open(FOLDER / f"{name}.tar.xz") as archive:
        # As an attribute: Python before 3.11.4 ignores it, and newer ones want a filter named.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(into)
    return into / name


def read_manifest(name: str) -> dict[str, GoldenPartition]:
    """Partitions of an archive by folder name ("orders-0")."""
    document = json.loads((FOLDER / f"{name}.json").read_text())
    return {folder: _partition(found) for folder, found in document["partitions"].items()}


def dump_names(name: str) -> list[str]:
    return sorted(path.stem for path in (FOLDER / f"{name}.dump").glob("*.txt"))


def read_dump(name: str, dump: str) -> dict[str, list[str]]:
    """One DumpLogSegments run, by the file it dumped: each value starts with `Dumping ...`.

    The first line of the text file is the command line's flags.
    """
    text = (FOLDER / f"{name}.dump" / f"{dump}.txt").read_bytes().decode()
    files: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.removesuffix("\n").split("\n")[1:]:
        if line.startswith("Dumping "):
            lines = files[line.removeprefix("Dumping ")] = []
        lines.append(line)
    return files


def dump_flags(name: str, dump: str) -> list[str]:
    with (FOLDER / f"{name}.dump" / f"{dump}.txt").open(encoding="utf-8") as text:
        return text.readline().removeprefix("#").split()


def write_manifest(
    path: Path, facts: Mapping[str, Any], partitions: Mapping[str, GoldenPartition]
) -> None:
    """JSON with one record a line, so that a diff can be read."""
    entries = [_partition_json(folder, partitions[folder]) for folder in sorted(partitions)]
    head = json.dumps(dict(facts), indent=1, ensure_ascii=False).removesuffix("\n}")
    listed = ",\n".join(entries)
    path.write_text(f'{head},\n "partitions": {{\n{listed}\n }}\n}}\n')


def _partition_json(folder: str, partition: GoldenPartition) -> str:
    fields = {k: v for k, v in partition._asdict().items() if k != "records"}
    head = json.dumps(fields).removesuffix("}")
    rows = [
        json.dumps(
            [
                *(record.offset, record.timestamp, _text(record.key), _text(record.value)),
                [[name, _text(value)] for name, value in record.headers],
                record.state,
            ],
            ensure_ascii=False,
        )
        for record in partition.records
    ]
    listed = ",".join(f"\n   {row}" for row in rows)
    return f'  "{folder}": {head}, "records": [{listed}]}}'


def _partition(found: dict[str, Any]) -> GoldenPartition:
    rows = found.pop("records")
    records = tuple(
        GoldenRecord(
            *(offset, timestamp, _bytes(key), _bytes(value)),
            tuple((name, _bytes(header)) for name, header in headers),
            state,
        )
        for offset, timestamp, key, value, headers, state in rows
    )
    return GoldenPartition(**found, records=records)


def _text(data: bytes | None) -> str | dict[str, str] | None:
    """UTF-8 as a string, other bytes as {"base64": ...}."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _bytes(found: str | dict[str, str] | None) -> bytes | None:
    if isinstance(found, dict):
        return base64.b64decode(found["base64"])
    return None if found is None else found.encode()
