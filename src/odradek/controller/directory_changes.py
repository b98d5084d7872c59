"""AssignReplicasToDirs: brokers say in which log directory a replica lies (KIP-858).

A broker with several directories chooses by itself, and a replica may move. The controller must
know the directory, so that it can act when that directory fails.
"""

from odradek.controller.leaders import change_of
from odradek.controller.result import Result, Steps
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import BrokerImage, PartitionImage, TopicImage, VersionedRecord
from odradek.metadata.features import DIRECTORY_ASSIGNMENT_FROM
from odradek.protocol.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)


def assign_replicas_to_dirs(
    view: ClusterView, request: AssignReplicasToDirsRequest
) -> Steps[AssignReplicasToDirsResponse]:
    """Plan the directories of a broker's replicas.

    A replica in a directory that the broker does not have, or that has failed since the request
    was sent, leaves the ISR and leads no longer.

    Raises:
        ApiError: STALE_BROKER_EPOCH; UNSUPPORTED_VERSION if metadata.version knows no directories;
            INVALID_REQUEST if there are too many assignments.
    """
    if view.metadata_version < DIRECTORY_ASSIGNMENT_FROM:
        problem = "Directory assignment is not supported yet."
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
    broker = view.check_broker_epoch(request.broker_id, request.broker_epoch)
    _check_size(view, request)
    records: list[VersionedRecord] = []
    response = AssignReplicasToDirsResponse()
    for directory in request.directories:
        result = ResponseDirectoryData(id=directory.id)
        for topic in directory.topics:
            partitions = []
            for each in topic.partitions:
                yield
                number = each.partition_index
                code = _assign_one(view, broker, directory.id, topic.topic_id, number, records)
                partitions.append(ResponsePartitionData(partition_index=number, error_code=code))
            result.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=partitions))
        response.directories.append(result)
    return Result(tuple(records), response)


def _check_size(view: ClusterView, request: AssignReplicasToDirsRequest) -> None:
    limit = view.settings.partitions_per_request_max // 2  # each may take two records
    topics = [topic for directory in request.directories for topic in directory.topics]
    if sum(len(topic.partitions) for topic in topics) > limit:
        problem = f"more than {limit} assignments: split the request"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)


def _assign_one(
    view: ClusterView,
    broker: BrokerImage,
    directory: Uuid,
    topic_id: Uuid,
    number: int,
    records: list[VersionedRecord],
) -> ErrorCode:
    topic = view.image.topics_by_id.get(topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(number)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if broker.broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if partition.directory_of(broker.broker_id) != directory:
        change = change_of(view, topic, number, partition, view.is_active)
        change.moved_to[broker.broker_id] = directory
        record = change.plan()
        assert record is not None, "the directory changes"
        records.append(view.versioned(record))
        partition = partition.changed_by(record)
    if not broker.has_online(directory):
        records += _plan_leave(view, broker.broker_id, topic, number, partition)
    return ErrorCode.NONE


def _plan_leave(
    view: ClusterView, broker_id: int, topic: TopicImage, number: int, partition: PartitionImage
) -> list[VersionedRecord]:
    def may_lead(candidate: int) -> bool:
        return candidate != broker_id and view.is_active(candidate)

    change = change_of(view, topic, number, partition, may_lead)
    change.isr = tuple(each for each in partition.isr if each != broker_id)
    record = change.plan()
    return [] if record is None else [view.versioned(record)]
