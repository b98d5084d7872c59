"""DescribeLogDirs (key 35), versions 1-5: log directories and the replicas in them.

v2  flexible.  v3  top-level error.  v4  size of the volume and what is free of it.  v5  whether a
directory is cordoned; never at a metadata.version that does not know of it.

``__cluster_metadata`` is not listed, as in Kafka.
"""

from pathlib import Path, PurePath
from shutil import disk_usage

from odradek.broker.context import RequestContext
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.protocol.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from odradek.protocol.message import Message
from odradek.storage.log_dir_description import LogDescription, VolumeSpace


def handle(context: RequestContext, request: DescribeLogDirsRequest) -> Steps[Message]:
    wanted = None
    if request.topics is not None:
        wanted = {
            TopicPartition(topic.topic, number)
            for topic in request.topics
            for number in topic.partitions
        }
    response = DescribeLogDirsResponse()
    for each in context.broker.store.describe(_space_of):
        yield
        logs = [log for log in each.logs if wanted is None or log.partition in wanted]
        result = DescribeLogDirsResult(
            error_code=each.error_code,
            log_dir=str(Path(each.path).absolute()),
            topics=(yield from _topics(logs)),
            total_bytes=each.space.total_bytes,
            usable_bytes=each.space.usable_bytes,
            is_cordoned=each.is_cordoned and context.broker.knows_cordoned,
        )
        response.results.append(result)
    yield
    return response


def _topics(logs: list[LogDescription]) -> Steps[list[DescribeLogDirsTopic]]:
    by_topic: dict[str, DescribeLogDirsTopic] = {}
    for log in sorted(logs):
        yield
        name = log.partition.topic
        topic = by_topic.get(name)
        if topic is None:
            topic = by_topic[name] = DescribeLogDirsTopic(name=name)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=log.partition.partition,
                partition_size=log.size,
                offset_lag=log.offset_lag,
                is_future_key=log.is_future,
            )
        )
    return list(by_topic.values())


def _space_of(path: PurePath) -> VolumeSpace:
    try:
        usage = disk_usage(path)
    except FileNotFoundError:  # a disk in memory has no volume; a real one that is gone is noticed
        return VolumeSpace()  # by the next write, which takes the directory offline
    return VolumeSpace(usage.total, usage.free)
