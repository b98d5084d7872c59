"""The names of the folders in a log directory, one for each log.

::

    <topic>-<partition>                     the log of a partition
    <topic>-<partition>.<uuid>-delete       on its way out; the topic may be cut short
    <topic>-<partition>.<uuid>-stray        taken aside, as nobody knows whose it is; as above
    <topic>-<partition>.<uuid>-future       being filled, to replace one in another directory

The uuid is 32 hexadecimal digits. File systems take names of up to 255 bytes. A topic is 1 to 249
of ``a-z A-Z 0-9 . _ -``, but neither ``.`` nor ``..``: all that a client can choose of a path.

A name is parsed only if we would have written it, so that no two names mean one log: ``t-07`` is
none. What is no log's name is left alone; a log directory may hold ``lost+found``.
"""

import re
from enum import Enum
from random import Random
from typing import Final, NamedTuple

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.topic_names import check_topic_name
from odradek.storage.checkpoints import INT32_MAX

FOLDER_NAME_BYTES_MAX: Final = 255

_FOLDER: Final = re.compile(
    r"(?P<topic>[a-zA-Z0-9._-]{1,249})-(?P<partition>0|[1-9][0-9]{0,9})"
    r"(?:\.[0-9a-f]{32}-(?P<kind>delete|future|stray))?"
)


class FolderKind(Enum):
    CURRENT = ""
    DELETE = "delete"
    FUTURE = "future"
    STRAY = "stray"


class LogFolder(NamedTuple):
    """What a folder's name says. Of DELETE and STRAY the topic may be cut short."""

    partition: TopicPartition
    kind: FolderKind


def folder_name(partition: TopicPartition) -> str:
    """Return the name of a log's folder.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION: a name that must not become a path, or is too long.
    """
    check_topic_name(partition.topic)
    assert 0 <= partition.partition <= INT32_MAX
    return _fitting(str(partition))


def new_folder_name(partition: TopicPartition, kind: FolderKind, random: Random) -> str:
    """Return a name that no folder has yet, for a log that is not, or not yet, the current one.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION: the topic's name is too long for a future log.
    """
    assert kind is not FolderKind.CURRENT
    check_topic_name(partition.topic)
    rest = f"-{partition.partition}.{random.randbytes(16).hex()}-{kind.value}"
    if kind is FolderKind.FUTURE:  # its name must tell the whole topic
        return _fitting(partition.topic + rest)
    return partition.topic[: FOLDER_NAME_BYTES_MAX - len(rest)] + rest


def parse_folder_name(name: str) -> LogFolder | None:
    """Return whose folder it is; None if no log's."""
    match = _FOLDER.fullmatch(name) if len(name) <= FOLDER_NAME_BYTES_MAX else None
    if match is None or match["topic"] in (".", ".."):
        return None
    number = int(match["partition"])
    if number > INT32_MAX:
        return None
    partition = TopicPartition(match["topic"], number)
    return LogFolder(partition, FolderKind(match["kind"] or ""))


def _fitting(name: str) -> str:
    # Refused here: the file system's own error would look like a broken disk.
    if len(name) > FOLDER_NAME_BYTES_MAX:
        raise _refuse(
            f"a folder called {name} has {len(name)} characters, {FOLDER_NAME_BYTES_MAX} are "
            "possible; choose a shorter name"
        )
    return name


def _refuse(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
