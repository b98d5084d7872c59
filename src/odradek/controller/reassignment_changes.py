"""AlterPartitionReassignments and ListPartitionReassignments.

What a move means for the replicas of a partition is in ``reassignment.py``. Here are the rules for
who may ask for what, in Kafka's words: people search for them, and scripts look for them. Moves end
in ``partition_change.py``, with whatever change finds the ISR ready.

A request that names a partition twice is refused for the second time; Kafka plans both for the same
state and lets the later one win.
"""

from collections.abc import Sequence

from odradek.controller.assignments import check_brokers
from odradek.controller.leaders import change_of
from odradek.controller.partition_change import Election
from odradek.controller.reassignment import begun, current, reverted
from odradek.controller.result import Result, Steps
from odradek.controller.topic_changes import check_record_count
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import PartitionImage, TopicImage, VersionedRecord
from odradek.metadata.touched import TopicIdPartition
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from odradek.protocol.generated.metadata_records import PartitionChangeRecord


def alter_partition_reassignments(
    view: ClusterView, request: AlterPartitionReassignmentsRequest
) -> Steps[AlterPartitionReassignmentsResponse]:
    """Plan moves, and the end of moves; each partition has its own answer.

    Raises:
        ApiError: POLICY_VIOLATION: more partitions than one operation may change.
    """
    check_record_count(view, sum(len(topic.partitions) for topic in request.topics))
    moves = _Moves(view, keeps_factor=not request.allow_replication_factor_change)
    response = AlterPartitionReassignmentsResponse(
        error_message=None, allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            yield
            results.append(moves.take(topic.name, wanted))
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=results))
    return Result(tuple(moves.records), response)


class _Moves:
    """What one request asks for, a partition after the other."""

    def __init__(self, view: ClusterView, *, keeps_factor: bool) -> None:
        self._view = view
        self._keeps_factor = keeps_factor
        self._seen: set[TopicIdPartition] = set()
        self.records: list[VersionedRecord] = []

    def take(self, name: str, wanted: ReassignablePartition) -> ReassignablePartitionResponse:
        number = wanted.partition_index
        try:
            record = self._plan(name, number, wanted.replicas)
        except ApiError as error:  # one bad partition must not fail its neighbours
            message = error.message or None
            return ReassignablePartitionResponse(
                partition_index=number, error_code=error.code, error_message=message
            )
        if record is not None:
            self.records.append(self._view.versioned(record))
        return ReassignablePartitionResponse(partition_index=number, error_message=None)

    def _plan(
        self, name: str, number: int, target: Sequence[int] | None
    ) -> PartitionChangeRecord | None:
        topic, partition = self._find(name, number)
        key = TopicIdPartition(topic.topic_id, number)
        if key in self._seen:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"The request names {name}:{number} twice.")
        self._seen.add(key)
        if target is None:
            return self._cancel(topic, number, partition)
        return self._begin(topic, number, partition, target)

    def _find(self, name: str, number: int) -> tuple[TopicImage, PartitionImage]:
        topic = self._view.image.topics.get(name)
        if topic is None:
            problem = f"Unable to find a topic named {name}."
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        partition = topic.partitions.get(number)
        if partition is None:
            problem = f"Unable to find partition {name}:{number}."
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
        return topic, partition

    def _begin(
        self, topic: TopicImage, number: int, partition: PartitionImage, target: Sequence[int]
    ) -> PartitionChangeRecord | None:
        check_brokers(self._view, target)
        factor = len(set(partition.replicas).difference(partition.removing))
        if self._keeps_factor and len(target) != factor:
            problem = f"The replication factor is changed from {factor} to {len(target)}"
            raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
        change = change_of(self._view, topic, number, partition, self._view.is_active)
        change.assignment = begun(partition, target)
        # A move is no reason for an unclean election, even if the topic allows them.
        change.election = Election.ONLINE
        return change.plan()

    def _cancel(
        self, topic: TopicImage, number: int, partition: PartitionImage
    ) -> PartitionChangeRecord | None:
        if not current(partition).is_moving:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        change = change_of(self._view, topic, number, partition, self._view.is_active)
        assignment, isr, is_unclean = reverted(partition, change.is_acceptable_leader)
        if is_unclean and not self._view.unclean_election_allowed(topic.name):
            problem = f"Unable to revert partition assignment for {topic.name}:{number} because it"
            problem += " would require an unclean leader election."
            raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)
        change.assignment = assignment
        change.isr = isr
        return change.plan()


def list_partition_reassignments(
    view: ClusterView, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """List the moves under way: all of them, or those of the partitions that are named."""
    response = ListPartitionReassignmentsResponse(error_message=None)
    if request.topics is None:
        found: dict[str, OngoingTopicReassignment] = {}
        for topic, number, partition in view.partitions(view.partition_index.reassigning()):
            yield
            ongoing = found.setdefault(topic.name, OngoingTopicReassignment(name=topic.name))
            ongoing.partitions.append(_ongoing(number, partition))
        response.topics = list(found.values())
    else:
        for named in request.topics:
            known = view.image.topics.get(named.name)
            if known is None:
                continue
            ongoing = OngoingTopicReassignment(name=named.name)
            for number in named.partition_indexes:
                yield
                there = known.partitions.get(number)
                if there is not None and current(there).is_moving:
                    ongoing.partitions.append(_ongoing(number, there))
            if ongoing.partitions:
                response.topics.append(ongoing)
    return Result((), response)


def _ongoing(number: int, partition: PartitionImage) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=number,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding),
        removing_replicas=list(partition.removing),
    )
