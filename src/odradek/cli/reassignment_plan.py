"""The JSON of a reassignment: which brokers shall have partitions, in which log directories.

``{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2],
"log_dirs": ["any", "/data"]}]}``; without ``log_dirs``, or where one is ``any``, the broker
chooses.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.cli.json_files import (
    Words,
    array,
    duplicates,
    field,
    integer,
    partition_of,
    read_rows,
    text_of,
)
from odradek.cli.tool_options import ToolError
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.core.ids import TopicPartition

Replicas = Mapping[TopicPartition, Sequence[int]]
LogDirs = Mapping[TopicPartitionReplica, str]

_ANY: Final = "any"


class _Row(NamedTuple):
    partition: TopicPartition
    replicas: list[int]
    log_dirs: list[str]


class Plan(NamedTuple):
    replicas: dict[TopicPartition, list[int]]
    log_dirs: dict[TopicPartitionReplica, str]

    @property
    def topics(self) -> list[str]:
        return sorted({key.topic for key in self.replicas})

    @property
    def brokers(self) -> list[int]:
        return sorted({each for replicas in self.replicas.values() for each in replicas})


def read_plan(path: Path, *, is_strict: bool = False) -> Plan:
    """Read a plan; a strict one is to be carried out.

    Raises:
        ToolError: The file is something else, or nobody could do what it says.
    """
    rows = read_rows(path, "partitions", _row, Words(missing=None))
    for partition, replicas, log_dirs in rows:
        if len(replicas) != len(log_dirs):
            raise ToolError(
                f"Size of replicas list {_list(replicas)} is different from size of log dirs list"
                f" {_list(log_dirs)} for partition {partition}"
            )
    if is_strict:
        _check(rows)
    places = {
        TopicPartitionReplica(*row.partition, broker): path
        for row in rows
        for broker, path in zip(row.replicas, row.log_dirs, strict=True)
        if path != _ANY
    }
    return Plan({row.partition: row.replicas for row in rows}, places)


def _row(fields: dict[str, Any]) -> _Row:
    partition = partition_of(fields)
    replicas = [integer(each) for each in array(field(fields, "replicas"))]
    log_dirs = [text_of(each) for each in array(fields.get("log_dirs", [_ANY] * len(replicas)))]
    return _Row(partition, replicas, log_dirs)


def _check(rows: Sequence[_Row]) -> None:
    if not rows:
        raise ToolError("Partition reassignment list cannot be empty")
    if not all(row.replicas for row in rows):
        raise ToolError("Partition replica list cannot be empty")
    twice = duplicates(row.partition for row in rows)
    if twice:
        problem = "Partition reassignment contains duplicate topic partitions"
        raise ToolError(f"{problem}: {comma_separated(twice)}")
    repeated = [
        f"{row.partition} contains multiple entries for {comma_separated(found)}"
        for row in rows
        if (found := duplicates(row.replicas))
    ]
    if repeated:
        problem = "Partition replica lists may not contain duplicate entries"
        raise ToolError(f"{problem}: {'. '.join(repeated)}")


def comma_separated(items: Sequence[object]) -> str:
    return ",".join(map(str, items))


def _list(items: Sequence[object]) -> str:
    return f"[{', '.join(map(str, items))}]"


def document(replicas: Replicas, log_dirs: LogDirs) -> str:
    """Return the JSON of an assignment, as ``read_plan`` reads it."""
    rows = [
        {
            "topic": key.topic,
            "partition": key.partition,
            "replicas": list(brokers),
            "log_dirs": [log_dirs.get(TopicPartitionReplica(*key, each), _ANY) for each in brokers],
        }
        for key, brokers in sorted(replicas.items())
    ]
    return json.dumps({"version": 1, "partitions": rows}, separators=(",", ":"))
