"""AlterReplicaLogDirs (key 34), versions 1-2: move replicas between the log directories of a node.

v2  flexible.

The answer comes when the moves have begun (``storage/log_move``); DescribeLogDirs shows how far
they are. A replica that is not here yet is REPLICA_NOT_AVAILABLE, and will be made in that
directory.
"""

from collections import defaultdict
from pathlib import Path

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from odradek.storage.log_directory import LogDirectory


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> Answer:
    wanted = {
        TopicPartition(topic.name, number): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for number in topic.partitions
    }
    by_topic: defaultdict[str, list[AlterReplicaLogDirPartitionResult]] = defaultdict(list)
    for partition, path in wanted.items():
        code = ErrorCode.NONE
        try:
            _check_not_being_made(context, partition)
            directory = _directory(context, path)
            if directory.is_online and directory.is_cordoned:
                problem = f"Log directory {path} is cordoned"
                raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
            context.broker.store.moves.start(partition, directory, context.broker.clock.now_ms())
        except ApiError as error:  # one bad partition must not fail its neighbours
            code = error.code
        by_topic[partition.topic].append(
            AlterReplicaLogDirPartitionResult(partition_index=partition.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ]
    )


def _check_not_being_made(context: RequestContext, partition: TopicPartition) -> None:
    """Refuse a log that is not durable yet: nobody has been told of it."""
    node = context.broker
    if node.replicas.find(partition) is None and node.store.get(partition) is not None:
        raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, f"{partition} is being made")


def _directory(context: RequestContext, path: str) -> LogDirectory:
    for directory in context.broker.store.directories:
        if str(Path(directory.path).absolute()) == path:  # as DescribeLogDirs shows it
            return directory
    raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not in log.dirs")
