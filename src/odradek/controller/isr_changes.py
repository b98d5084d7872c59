"""AlterPartition: leaders propose new ISRs, and epochs tell which proposals came too late.

Not implemented: completing a reassignment when its new replicas have joined the ISR.
"""

from typing import Final

from odradek.controller.leaders import change_of
from odradek.controller.result import Result
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import LeaderRecoveryState, PartitionImage, VersionedRecord
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

_SKIP_EPOCH_CHECK: Final = -1


def alter_partition(
    view: ClusterView, request: AlterPartitionRequest
) -> Result[AlterPartitionResponse]:
    """Plan the new ISRs.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[VersionedRecord] = []
    response = AlterPartitionResponse()
    for topic in request.topics:
        results = [
            _alter_one(view, request.broker_id, topic.topic_id, proposal, records)
            for proposal in topic.partitions
        ]
        response.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=results))
    return Result(tuple(records), response)


def _alter_one(
    view: ClusterView,
    sender: int,
    topic_id: Uuid,
    proposal: RequestPartitionData,
    records: list[VersionedRecord],
) -> ResponsePartitionData:
    number = proposal.partition_index
    try:
        partition = _plan_isr(view, sender, topic_id, proposal, records)
    except ApiError as error:  # one bad partition must not fail its neighbours
        return ResponsePartitionData(partition_index=number, error_code=error.code)
    return ResponsePartitionData(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )


def _plan_isr(
    view: ClusterView,
    sender: int,
    topic_id: Uuid,
    proposal: RequestPartitionData,
    records: list[VersionedRecord],
) -> PartitionImage:
    """Add the record of one change; return the partition as it will be."""
    topic = view.image.topics_by_id.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(proposal.partition_index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    # Up to version 2 a leader names only ids.
    members = proposal.new_isr_with_epochs or [BrokerState(broker_id=i) for i in proposal.new_isr]
    _check_epochs(sender, partition, proposal)
    isr = tuple(member.broker_id for member in members)
    _check_isr(partition, isr, proposal.leader_recovery_state)
    for member in members:
        _check_eligible(view, member)
    change = change_of(view, topic, proposal.partition_index, partition, view.is_active)
    change.isr = isr
    change.recovery_state = LeaderRecoveryState(proposal.leader_recovery_state)
    record = change.plan()
    if record is None:
        return partition
    records.append(view.versioned(record))
    return partition.changed_by(record)


def _check_epochs(sender: int, partition: PartitionImage, proposal: RequestPartitionData) -> None:
    # A leader that knows more than we do has heard it from another controller: let it look for
    # that one.
    if proposal.leader_epoch > partition.leader_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if proposal.partition_epoch > partition.partition_epoch:
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if proposal.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if sender != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}")
    if proposal.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)


def _check_isr(partition: PartitionImage, isr: tuple[int, ...], recovery_state: int) -> None:
    members = set(isr)
    if not members or len(members) != len(isr) or not members <= set(partition.replicas):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"ISR {isr} of replicas {partition.replicas}")
    if partition.leader not in members:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the ISR lacks the leader")
    if recovery_state not in (LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"leader recovery state {recovery_state}")
    if recovery_state == LeaderRecoveryState.RECOVERING:
        if len(isr) > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "followers in sync with a recovering leader")
        if partition.leader_recovery_state == LeaderRecoveryState.RECOVERED:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a recovered leader recovers again")


def _check_eligible(view: ClusterView, member: BrokerState) -> None:
    broker = view.image.brokers.get(member.broker_id)
    same = broker is not None and member.broker_epoch in (_SKIP_EPOCH_CHECK, broker.epoch)
    if broker is None or not broker.active or not same:
        raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id}")
