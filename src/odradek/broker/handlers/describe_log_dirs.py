"""DescribeLogDirs (key 35), versions 1-5: log directories and the replicas in them.

v2  flexible.  v3  top-level error.  v4  size of the volume and what is free of it.  v5  whether a
directory is cordoned: none ever is.

``__cluster_metadata`` is not listed, as in Kafka.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path, PurePath
from shutil import disk_usage

from odradek.broker.context import Answer, RequestContext
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.storage.log_dir_description import LogDescription, VolumeSpace


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> Answer:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, number)
            for topic in request.topics
            for number in topic.partitions
        }
    results = [
        DescribeLogDirsResult(
            error_code=each.error_code,
            log_dir=str(Path(each.path).absolute()),
            topics=_topics(log for log in each.logs if wanted is None or log.partition in wanted),
            total_bytes=each.space.total_bytes,
            usable_bytes=each.space.usable_bytes,
        )
        for each in context.node.store.describe(_space_of)
    ]
    return DescribeLogDirsResponse(results=results)


def _topics(logs: Iterable[LogDescription]) -> list[DescribeLogDirsTopic]:
    by_topic: defaultdict[str, list[DescribeLogDirsPartition]] = defaultdict(list)
    for log in sorted(logs):
        by_topic[log.partition.topic].append(
            DescribeLogDirsPartition(
                partition_index=log.partition.partition,
                partition_size=log.size,
                offset_lag=log.offset_lag,
                is_future_key=log.is_future,
            )
        )
    return [
        DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in by_topic.items()
    ]


def _space_of(path: PurePath) -> VolumeSpace:
    try:
        usage = disk_usage(path)
    except FileNotFoundError:  # a disk in memory has no volume; a real one that is gone is noticed
        return VolumeSpace()  # by the next write, which takes the directory offline
    return VolumeSpace(usage.total, usage.free)
