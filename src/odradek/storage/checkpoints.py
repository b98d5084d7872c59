"""Checkpoints: small text files that are always replaced as a whole.

::

    0                        version
    <count>                  of the lines that follow
    <entry>                  fields with a space between them
    ...

The offset checkpoints of a log directory have entries ``<topic> <partition> <offset>``; a log's
``leader-epoch-checkpoint`` has ``<epoch> <start offset>`` (``leader_epochs``). Kafka makes these
files empty before it has something to write, so that means no entries, as does no file at all.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final, TypeVar

from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition
from odradek.storage.disk import Disk, write_atomically

RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_CHECKPOINT: Final = "cleaner-offset-checkpoint"

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

_VERSION: Final = 0
_NUMBER: Final = re.compile("[0-9]{1,19}")

Entry = TypeVar("Entry")


def read_offset_checkpoint(disk: Disk, path: PurePath) -> dict[TopicPartition, int]:
    """Return the offset of each partition; of a missing file, none.

    Raises:
        CorruptionError: The file is malformed; the message names the line.
    """
    return dict(read_checkpoint(disk, path, _parse_offset))


def write_offset_checkpoint(
    disk: Disk, path: PurePath, offsets: Mapping[TopicPartition, int]
) -> None:
    lines = [f"{at.topic} {at.partition} {offset}" for at, offset in offsets.items()]
    write_checkpoint(disk, path, lines)


def _parse_offset(fields: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = fields
    at = TopicPartition(topic, parse_number(partition, INT32_MAX))
    return at, parse_number(offset, INT64_MAX)


def read_checkpoint(disk: Disk, path: PurePath, parse: Callable[[list[str]], Entry]) -> list[Entry]:
    """Return what ``parse`` makes of the fields of each line; its ValueError is corruption."""
    data = disk.read(path) if disk.exists(path) else b""
    lines = data.splitlines()
    entries: list[Entry] = []
    count = 0
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode()
            if number == 1:
                parse_number(text, _VERSION)
            elif number == 2:
                count = parse_number(text, INT32_MAX)
            else:
                entries.append(parse(text.split()))
        except ValueError as error:
            raise CorruptionError(f"{path}, line {number}: {line[:80]!r}: {error}") from error
    if count != len(entries):
        raise CorruptionError(f"{path}, line 2: {count} entries promised, {len(entries)} found")
    if entries and not data.endswith(b"\n"):  # a number may have lost its last digits
        raise CorruptionError(f"{path}, line {len(lines)}: cut short")
    return entries


def write_checkpoint(disk: Disk, path: PurePath, lines: list[str], *, syncs: bool = True) -> None:
    assert not any("\n" in line for line in lines)
    text = "\n".join([str(_VERSION), str(len(lines)), *lines, ""])
    write_atomically(disk, path, text.encode(), syncs=syncs)


def parse_number(text: str, most: int) -> int:
    """Parse digits only: ``int`` would also take ``1_000``, signs and other alphabets."""
    if not _NUMBER.fullmatch(text) or int(text) > most:
        raise ValueError(f"no number from 0 to {most}: {text!r}")
    return int(text)
