"""AlterPartition: leaders propose new ISRs, and epochs tell which proposals came too late.

A proposal is carried out only if it is the leader's, in its epoch, on top of the newest state of
the partition; if all members of the ISR have a replica; and if the brokers behind them are the
incarnations that have fetched (KIP-903), neither fenced nor about to stop (KIP-841). What is
refused changes nothing. Two proposals for one partition in a request are both on top of the same
state; the second one is refused, where Kafka has the last one win.

The leader may be another one afterwards: if this one's log directory has failed, or if the new ISR
completes a reassignment that takes the leader out. It gets NEW_LEADER_ELECTED then, although its
proposal was carried out: it is to wait for the metadata.
"""

from typing import Final

from odradek.controller.leaders import change_of
from odradek.controller.result import Result, Steps
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import LeaderRecoveryState, PartitionImage, TopicImage, VersionedRecord
from odradek.metadata.touched import TopicIdPartition
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
) -> Steps[AlterPartitionResponse]:
    """Plan the new ISRs.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    view.check_broker_epoch(request.broker_id, request.broker_epoch)
    proposals = _Proposals(view, request.broker_id)
    response = AlterPartitionResponse()
    for topic in request.topics:
        results = []
        for proposal in topic.partitions:
            yield
            results.append(proposals.take(topic.topic_id, proposal))
        response.topics.append(ResponseTopicData(topic_id=topic.topic_id, partitions=results))
    return Result(tuple(proposals.records), response, may_split=True)


class _Proposals:
    """The proposals of one request, one after the other."""

    def __init__(self, view: ClusterView, sender: int) -> None:
        self._view = view
        self._sender = sender
        self._changed: set[TopicIdPartition] = set()
        self.records: list[VersionedRecord] = []

    def take(self, topic_id: Uuid, proposal: RequestPartitionData) -> ResponsePartitionData:
        """Plan a proposal, and return what its sender hears of it."""
        number = proposal.partition_index
        try:
            partition = self._plan(topic_id, proposal)
        except ApiError as error:  # one bad partition must not fail its neighbours
            return ResponsePartitionData(partition_index=number, error_code=error.code)
        if partition.leader != self._sender:
            code = ErrorCode.NEW_LEADER_ELECTED
            return ResponsePartitionData(partition_index=number, error_code=code)
        return ResponsePartitionData(
            partition_index=number,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _plan(self, topic_id: Uuid, proposal: RequestPartitionData) -> PartitionImage:
        """Add the record of one change; return the partition as it will be."""
        topic, partition = self._find(topic_id, proposal.partition_index)
        _check_epochs(self._sender, partition, proposal)
        # Up to version 2 a leader names only ids.
        members = proposal.new_isr_with_epochs or [
            BrokerState(broker_id=each) for each in proposal.new_isr
        ]
        isr = tuple(member.broker_id for member in members)
        _check_isr(partition, isr, proposal.leader_recovery_state)
        for member in members:
            _check_eligible(self._view, member)
        at = TopicIdPartition(topic_id, proposal.partition_index)
        if at in self._changed:
            raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, "the request has changed it already")
        view = self._view
        change = change_of(view, topic, at.partition, partition, view.is_active)
        change.isr = isr
        change.recovery_state = LeaderRecoveryState(proposal.leader_recovery_state)
        record = change.plan()
        if record is None:
            return partition
        self._changed.add(at)
        self.records.append(view.versioned(record))
        return partition.changed_by(record)

    def _find(self, topic_id: Uuid, number: int) -> tuple[TopicImage, PartitionImage]:
        topic = self._view.image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        partition = topic.partitions.get(number)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic, partition


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
