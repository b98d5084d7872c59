"""Metadata (key 3), versions 0-13: brokers, topics, partitions and their leaders.

v1  an empty list means no topic, null means all; rack, controller, is internal.  v2  cluster id.
v4  whether topics may be created.  v5  offline replicas.  v7  leader epoch.  v8  authorized
operations (on request).  v9  flexible.  v10  topic ids.  v12  topics by id.  v13  top-level error.

A topic that does not exist is created if the client and ``auto.create.topics.enable`` allow it; the
answer is LEADER_NOT_AVAILABLE, as in Kafka, and the client asks again.

Not implemented: authorized operations (nothing is refused to anybody yet).
"""

from odradek.broker.context import Answer, RequestContext
from odradek.broker.internal_topics import INTERNAL_TOPICS
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import ZERO_UUID
from odradek.core.topic_names import check_topic_name
from odradek.metadata.image import ClusterImage
from odradek.metadata.partition import PartitionImage
from odradek.metadata.topics import TopicImage
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NO_AUTHORIZED_OPERATIONS = -(2**31)


def handle(context: RequestContext, request: MetadataRequest) -> Answer:
    image = context.node.image
    wants_all = request.topics is None or (context.version == 0 and not request.topics)
    if wants_all:
        topics = [_topic(context, topic) for _, topic in sorted(image.topics.items())]
    else:
        topics = [_wanted(context, request, wanted) for wanted in request.topics or []]
    return MetadataResponse(
        brokers=_brokers(context, image),
        cluster_id=context.node.cluster_id,
        controller_id=context.node.node_id,
        topics=topics,
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
    context: RequestContext, request: MetadataRequest, wanted: MetadataRequestTopic
) -> MetadataResponseTopic:
    image = context.node.image
    # Java's client sends an empty name, not null, beside an id.
    is_by_id = wanted.name is None or wanted.topic_id != ZERO_UUID
    try:
        if is_by_id:
            topic = image.topics_by_id.get(wanted.topic_id)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, str(wanted.topic_id))
            return _topic(context, topic)
        assert wanted.name is not None
        check_topic_name(wanted.name)
        topic = image.topics.get(wanted.name)
        if topic is not None:
            return _topic(context, topic)
        may_create = context.version < 4 or request.allow_auto_topic_creation
        if may_create and context.node.config.auto_create_topics_enable:
            context.node.create_topic_soon(wanted.name)
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, wanted.name)
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, wanted.name)
    except ApiError as error:  # one bad topic must not fail its neighbours
        return MetadataResponseTopic(
            error_code=error.code,
            name=(None if context.version >= 12 else "") if is_by_id else wanted.name,
            topic_id=wanted.topic_id if is_by_id else ZERO_UUID,
        )


def _topic(context: RequestContext, topic: TopicImage) -> MetadataResponseTopic:
    partitions = [
        _partition(context, index, partition)
        for index, partition in sorted(topic.partitions.items())
    ]
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=partitions,
        topic_authorized_operations=NO_AUTHORIZED_OPERATIONS,
    )


def _partition(
    context: RequestContext, index: int, partition: PartitionImage
) -> MetadataResponsePartition:
    image = context.node.image
    brokers = image.brokers
    offline = [
        replica
        for replica in partition.replicas
        if replica not in brokers or brokers[replica].fenced
    ]
    has_leader = partition.leader in brokers
    return MetadataResponsePartition(
        error_code=0 if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if has_leader else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        offline_replicas=offline,
    )
