"""Leaders: changes when brokers come and go, and ElectLeaders."""

from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from typing import Final

from odradek.controller.partition_change import Election, PartitionChange, PartitionRules
from odradek.controller.result import Result, Steps
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import NO_LEADER, PartitionImage, TopicImage
from odradek.metadata.features import (
    DIRECTORY_ASSIGNMENT_FROM,
    NO_EPOCH_BUMP_ON_ISR_SHRINK_FROM,
)
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.touched import TopicIdPartition
from odradek.protocol.generated.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from odradek.protocol.generated.metadata_records import PartitionChangeRecord

Changes = Generator[None, None, list[VersionedRecord]]
"""The records of changes, of which there may be thousands: a partition in each step."""

ELECTIONS_AT_ONCE_MAX: Final = 1_000
"""Of those that the controller holds by itself: others are served before it goes on."""

_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMove:
    """Which broker's standing changes, while the image still shows the old one."""

    leaves: int = NO_LEADER
    """Goes out of every ISR and leads nothing."""
    joins: int = NO_LEADER
    """May lead although the image has it fenced."""
    lost: int = NO_LEADER
    """Came back from a crash: out of ISR and ELR."""


def plan_broker_move(
    view: ClusterView,
    move: BrokerMove,
    concerns: Callable[[PartitionImage], bool] = lambda _partition: True,
) -> Changes:
    """Return the changes of leader and ISR that ``move`` means for partitions it concerns.

    Those of a broker that joins are partitions without a leader, others have a replica on it.
    """

    def may_lead(broker_id: int) -> bool:
        if broker_id in (move.leaves, move.lost):
            return False
        return broker_id == move.joins or view.is_active(broker_id)

    records = []
    index = view.partition_index
    if move.joins != NO_LEADER:
        keys = index.without_leader()
    else:
        keys = index.with_replica(max(move.leaves, move.lost))
    for topic, number, partition in view.partitions(keys):
        yield
        if not concerns(partition):
            continue
        change = change_of(view, topic, number, partition, may_lead)
        change.isr = tuple(each for each in partition.isr if each not in (move.leaves, move.lost))
        change.lost_replica = move.lost
        record = change.plan()
        if record is not None:
            records.append(view.versioned(record))
    return records


def change_of(
    view: ClusterView,
    topic: TopicImage,
    number: int,
    partition: PartitionImage,
    may_lead: Callable[[int], bool],
) -> PartitionChange:
    """Return a change that as yet changes nothing."""

    def is_acceptable(broker_id: int) -> bool:
        broker = view.image.brokers.get(broker_id)
        if broker is None or not may_lead(broker_id):
            return False
        return broker.has_online(partition.directory_of(broker_id))

    unclean = view.unclean_election_allowed(topic.name)
    has_directories = view.metadata_version >= DIRECTORY_ASSIGNMENT_FROM
    return PartitionChange(
        topic_id=topic.topic_id,
        number=number,
        partition=partition,
        rules=PartitionRules(
            min_isr=view.min_isr(topic),
            elr_enabled=view.image.elr_enabled,
            bump_epoch_on_shrink=view.metadata_version < NO_EPOCH_BUMP_ON_ISR_SHRINK_FROM,
        ),
        is_acceptable_leader=is_acceptable,
        isr=partition.isr,
        recovery_state=partition.leader_recovery_state,
        election=Election.UNCLEAN if unclean else Election.ONLINE,
        default_directory=view.default_directory if has_directories else None,
    )


def elect_leaders(view: ClusterView, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    """Plan ElectLeaders; no partitions given means all, and then only those that needed it.

    Raises:
        ApiError: INVALID_REQUEST, there is no such type of election.
    """
    election = _ELECTIONS.get(request.election_type)
    if election is None:
        problem = f"Unknown election type {request.election_type}"
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    records: list[VersionedRecord] = []
    response = ElectLeadersResponse()
    wanted: Iterable[tuple[str, Iterable[int]]]
    if request.topic_partitions is None:
        wanted = [(name, topic.partitions) for name, topic in sorted(view.image.topics.items())]
    else:
        wanted = [(each.topic, each.partitions) for each in request.topic_partitions]
    for name, numbers in wanted:
        results = []
        for number in numbers:
            yield
            results.append(_elect_one(view, name, number, election, records))
        if request.topic_partitions is None:
            not_needed = ErrorCode.ELECTION_NOT_NEEDED
            results = [each for each in results if each.error_code != not_needed]
        topic_result = ReplicaElectionResult(topic=name, partition_result=results)
        response.replica_election_results.append(topic_result)
    return Result(tuple(records), response)


def elect_preferred_leaders(view: ClusterView) -> Steps[bool]:
    """Plan what ``auto.leader.rebalance.enable`` asks for, some partitions at a time."""
    return _elect_some(view, view.partition_index.not_led_by_preferred(), Election.PREFERRED)


def elect_unclean_leaders(
    view: ClusterView, at_once_max: int = ELECTIONS_AT_ONCE_MAX
) -> Steps[bool]:
    """Plan leaders for leaderless partitions whose topics allow unclean elections."""
    keys = view.partition_index.without_leader()
    return _elect_some(view, keys, Election.UNCLEAN, min(at_once_max, ELECTIONS_AT_ONCE_MAX))


def _elect_some(
    view: ClusterView,
    keys: Iterable[TopicIdPartition],
    election: Election,
    at_once_max: int = ELECTIONS_AT_ONCE_MAX,
) -> Steps[bool]:
    records: list[VersionedRecord] = []
    for topic, number, partition in view.partitions(keys):
        yield
        if election is Election.UNCLEAN and not view.unclean_election_allowed(topic.name):
            continue
        if len(records) >= at_once_max:
            return Result(tuple(records), True)
        change = change_of(view, topic, number, partition, view.is_active)
        change.election = election
        record = change.plan()
        if record is not None:
            records.append(view.versioned(record))
    return Result(tuple(records), False)


def _elect_one(
    view: ClusterView,
    name: str,
    number: int,
    election: Election,
    records: list[VersionedRecord],
) -> PartitionResult:
    try:
        record = _plan_election(view, name, number, election)
    except ApiError as error:  # one bad partition must not fail its neighbours
        message = error.message or None
        return PartitionResult(partition_id=number, error_code=error.code, error_message=message)
    records.append(view.versioned(record))
    return PartitionResult(partition_id=number, error_code=0, error_message=None)


def _plan_election(
    view: ClusterView, name: str, number: int, election: Election
) -> PartitionChangeRecord:
    topic = view.image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        problem = f"No such partition as {name}-{number}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, problem)
    if election is Election.PREFERRED:
        needed = partition.leader != partition.preferred_leader
        refusal = ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available."
        )
    else:
        needed = partition.leader == NO_LEADER
        refusal = ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            "Eligible topic partition leaders are not available.",
        )
    if not needed:
        problem = "Leader election not needed for topic partition."
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, problem)
    change = change_of(view, topic, number, partition, view.is_active)
    change.election = election
    record = change.plan()
    if record is None:
        raise refusal
    return record
