"""Metadata (key 3), versions 0-13: brokers, topics, partitions and their leaders.

v1  an empty list means no topic, null means all; rack, controller, is internal.  v2  cluster id.
v4  whether topics may be created.  v5  offline replicas.  v6  LISTENER_NOT_FOUND.  v7  leader
epoch.  v8  authorized operations (on request).  v9  flexible.  v10  topic ids.  v12  topics by
id.  v13  top-level error.

A topic that does not exist is created if the client and ``auto.create.topics.enable`` allow it; the
answer is UNKNOWN_TOPIC_OR_PARTITION all the same, as in Kafka, and the client asks again. If the
controller refused to create it, the next answer says why.
"""

from typing import Final

from odradek.broker.context import RequestContext
from odradek.broker.internal_topics import INTERNAL_TOPICS
from odradek.broker.reachability import is_reachable, offline_replicas
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.core.slices import Steps
from odradek.core.topic_names import check_topic_name
from odradek.metadata.authorized_operations import (
    CLUSTER_OPERATIONS,
    NOT_ASKED_FOR,
    TOPIC_OPERATIONS,
)
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import NO_LEADER, PartitionImage
from odradek.metadata.topics import TopicImage
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from odradek.protocol.message import Message

VERSION_LISTENER_ERRORS: Final = 6


def handle(context: RequestContext, request: MetadataRequest) -> Steps[Message]:
    image = context.broker.image
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    topics: list[MetadataResponseTopic] = []
    if wants_all:
        for _, topic_image in sorted(image.topics.items()):
            yield
            topics.append(_topic(context, image, topic_image))
    else:
        missing: list[str] = []
        for wanted in request.topics or ():
            yield
            topics.append(_wanted(context, image, wanted, missing))
        may_create = context.version < 4 or request.allow_auto_topic_creation
        if missing and may_create and context.broker.config.auto_create_topics_enable:
            context.broker.auto_topics.create_soon(context, missing)
    if request.include_topic_authorized_operations:
        for topic in topics:
            if topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = TOPIC_OPERATIONS
    wants_cluster = request.include_cluster_authorized_operations
    brokers = _brokers(context, image)
    return MetadataResponse(
        brokers=brokers,
        cluster_id=context.broker.cluster_id,
        controller_id=context.broker.choose_controller([each.node_id for each in brokers]),
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if wants_cluster else NOT_ASKED_FOR,
    )


def _brokers(context: RequestContext, image: ClusterImage) -> list[MetadataResponseBroker]:
    """Return the brokers that can be reached by the listener on which the client asks."""
    found = []
    for broker_id, broker in sorted(image.brokers.items()):
        endpoint = broker.endpoints.get(context.listener)
        if not broker.fenced and endpoint is not None:
            found.append(
                MetadataResponseBroker(
                    node_id=broker_id, host=endpoint.host, port=endpoint.port, rack=broker.rack
                )
            )
    return found


def _wanted(
    context: RequestContext,
    image: ClusterImage,
    wanted: MetadataRequestTopic,
    missing: list[str],
) -> MetadataResponseTopic:
    """Return what is known of a topic; ``missing`` gets the name of one that could be created."""
    # Java's client sends an empty name, not null, beside an id.
    is_by_id = wanted.name is None or wanted.topic_id != ZERO_UUID
    try:
        if is_by_id:
            topic = image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, str(wanted.topic_id))
            return _topic(context, image, topic)
        assert wanted.name is not None
        check_topic_name(wanted.name)
        topic = image.topics.get(wanted.name)
        if topic is not None:
            return _topic(context, image, topic)
        missing.append(wanted.name)
        refused = context.broker.auto_topics.take_refusal(wanted.name)
        raise ApiError(refused or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
    except ApiError as error:  # one bad topic must not fail its neighbours
        return MetadataResponseTopic(
            error_code=error.code,
            name=(None if context.version >= 12 else "") if is_by_id else wanted.name,
            topic_id=wanted.topic_id if is_by_id else ZERO_UUID,
            is_internal=wanted.name in INTERNAL_TOPICS,
        )


def _topic(
    context: RequestContext, image: ClusterImage, topic: TopicImage
) -> MetadataResponseTopic:
    unreachable = (
        ErrorCode.LISTENER_NOT_FOUND
        if context.version >= VERSION_LISTENER_ERRORS
        else ErrorCode.LEADER_NOT_AVAILABLE
    )
    partitions = [
        _partition(image, index, partition, context.listener, unreachable)
        for index, partition in sorted(topic.partitions.items())
    ]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
    )


def _partition(
    image: ClusterImage,
    index: int,
    partition: PartitionImage,
    listener: str,
    unreachable: ErrorCode,
) -> MetadataResponsePartition:
    """Return a partition; ``unreachable`` is said of a leader without the client's listener."""
    has_leader, error = True, ErrorCode.NONE
    if not is_reachable(image, partition.leader, listener):
        is_known = partition.leader in image.brokers
        has_leader, error = False, unreachable if is_known else ErrorCode.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline_replicas(image, partition, listener),
    )
