"""What a broker at work asks of its controller."""

from typing import Any

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import TopicImage
from odradek.protocol.generated import alter_partition, assign_replicas_to_dirs
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.interop.cluster.registrations import Asked, Registered, new_id, new_uuid


def unfenced(controller: Asked, *log_dirs: Uuid) -> Registered:
    broker = Registered(controller, log_dirs=list(log_dirs or [new_uuid()]))
    assert broker.beat(broker.epoch) == ["caught up"]
    return broker


def create_topic(controller: Asked, *brokers: Registered, **configs: str) -> TopicImage:
    """Create a topic of one partition with replicas on these brokers.

    In the names of ``configs`` an underscore stands for a dot.
    """
    name = f"topic-{new_id()}"
    place = CreatableReplicaAssignment(
        partition_index=0, broker_ids=[each.request.broker_id for each in brokers]
    )
    topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[place])
    topic.configs = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value)
        for key, value in configs.items()
    ]
    request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
    answer = controller.ask(request, CreateTopicsResponse)
    assert [each.error_code for each in answer.topics] == [0]
    created = controller.catch_up().topics[name]
    assert created.topic_id == answer.topics[0].topic_id
    return created


def alter(
    broker: Registered,
    topic: TopicImage,
    isr: list[int],
    version: int | None = None,
    **changes: Any,
) -> str:
    """Propose an ISR; return the error of the request, or of its partition."""
    header = {
        "broker_id": changes.pop("broker_id", broker.request.broker_id),
        "broker_epoch": changes.pop("broker_epoch", broker.epoch),
    }
    topic_id = changes.pop("topic_id", topic.topic_id)
    member_epoch = changes.pop("member_epoch", -1)
    proposal = alter_partition.RequestPartitionData(
        **{"partition_index": 0, "leader_epoch": 0, "partition_epoch": 0, **changes}
    )
    if version == 2:
        proposal.new_isr = isr
    else:
        proposal.new_isr_with_epochs = [
            alter_partition.BrokerState(broker_id=each, broker_epoch=member_epoch) for each in isr
        ]
    data = alter_partition.RequestTopicData(topic_id=topic_id, partitions=[proposal])
    request = alter_partition.AlterPartitionRequest(**header, topics=[data])
    answer = broker.controller.ask(request, alter_partition.AlterPartitionResponse, version)
    parts = [part for each in answer.topics for part in each.partitions]
    return ErrorCode(parts[0].error_code if parts else answer.error_code).name


def assign(
    broker: Registered, topic_id: Uuid, directory: Uuid, number: int = 0, epoch: int | None = None
) -> str:
    module = assign_replicas_to_dirs
    partition = module.RequestPartitionData(partition_index=number)
    topic = module.RequestTopicData(topic_id=topic_id, partitions=[partition])
    request = module.AssignReplicasToDirsRequest(
        broker_id=broker.request.broker_id,
        broker_epoch=broker.epoch if epoch is None else epoch,
        directories=[module.RequestDirectoryData(id=directory, topics=[topic])],
    )
    answer = broker.controller.ask(request, module.AssignReplicasToDirsResponse)
    parts = [
        part for each in answer.directories for named in each.topics for part in named.partitions
    ]
    return ErrorCode(parts[0].error_code if parts else answer.error_code).name


def allocate(broker: Registered, epoch: int) -> AllocateProducerIdsResponse:
    request = AllocateProducerIdsRequest(broker_id=broker.request.broker_id, broker_epoch=epoch)
    return broker.controller.ask(request, AllocateProducerIdsResponse)
