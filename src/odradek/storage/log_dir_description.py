"""What DescribeLogDirs tells of a log directory."""

from collections.abc import Callable, Mapping
from pathlib import PurePath
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.storage.log_directory import LogDirectory, StoredLog

UNKNOWN_BYTES: Final = -1


class VolumeSpace(NamedTuple):
    """Of the file system that a directory is on."""

    total_bytes: int = UNKNOWN_BYTES
    usable_bytes: int = UNKNOWN_BYTES


class LogDescription(NamedTuple):
    partition: TopicPartition
    size: int
    offset_lag: int
    """Of a future log behind the current one; of a current one behind its high watermark."""
    is_future: bool


class DirectoryDescription(NamedTuple):
    """One entry of a DescribeLogDirs response."""

    path: PurePath
    error_code: ErrorCode
    space: VolumeSpace
    logs: list[LogDescription]
    is_cordoned: bool = False


def describe(
    directory: LogDirectory,
    current: Mapping[TopicPartition, StoredLog],
    space_of: Callable[[PurePath], VolumeSpace] | None,
) -> DirectoryDescription:
    path, space = directory.path, VolumeSpace()
    try:
        with directory.guard:
            if space_of is not None:
                space = space_of(path)
    except ApiError as error:
        return DirectoryDescription(path, error.code, space, [])
    logs = [
        LogDescription(at, stored.log.segments.bytes, _lag(stored, current), stored.is_future)
        for at, stored in directory.logs.items()
    ]
    return DirectoryDescription(path, ErrorCode.NONE, space, logs, directory.is_cordoned)


def _lag(stored: StoredLog, current: Mapping[TopicPartition, StoredLog]) -> int:
    log = stored.log
    if not stored.is_future or log.partition not in current:
        return max(log.high_watermark - log.log_end_offset, 0)
    return current[log.partition].log.log_end_offset - log.log_end_offset
