"""Groups that change their protocol while their members work (KIP-848's online migration).

*Upgrade*: a consumer-protocol member joins a classic group. Its members become members of a
consumer group that speak the classic protocol; what they have becomes their assignment and target.
What they have is what they were assigned, and what they said they owned when they last joined: a
cooperative member keeps partitions that it was not assigned again until it hears of that, and
those must not count as free (in Kafka they do).

*Downgrade*: the last consumer-protocol member goes and classic ones stay. They become a classic
group again, with what they have as assignment, and are called to a rebalance. If it is a classic
static member that takes the place of the last consumer and everybody has its target, there is
nothing to rebalance. (Kafka writes the target in either case; should the group be upgraded again
before all have joined, partitions that a member has yet to give up would count as free.)
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import NamedTuple, Protocol

from odradek.coordinator.group.classic.classic_group import ClassicGroup
from odradek.coordinator.group.classic.member import Member as ClassicMember
from odradek.coordinator.group.consumer import records
from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.embedded import (
    CONSUMER_PROTOCOL_TYPE,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    owned_partitions,
)
from odradek.coordinator.group.consumer.group_state import GroupState
from odradek.coordinator.group.consumer.member import (
    NOTHING,
    ClassicMetadata,
    Member,
    Partitions,
    with_epoch,
)
from odradek.coordinator.group.topic_view import TopicView, metadata_hash
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Reply, Result
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, CorruptionError, ErrorCode


class _ClassicMember(Protocol):
    @property
    def member_id(self) -> str: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def rebalance_timeout_ms(self) -> int: ...
    @property
    def session_timeout_ms(self) -> int: ...
    @property
    def protocols(self) -> tuple[tuple[str, bytes], ...]: ...
    @property
    def assignment(self) -> bytes: ...


class UpgradableGroup(Protocol):
    """What is asked of a classic group."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def protocol_type(self) -> str | None: ...
    @property
    def protocol_name(self) -> str | None: ...
    @property
    def members(self) -> Mapping[str, _ClassicMember]: ...


def plan_upgrade(
    classic: UpgradableGroup, topics: TopicView, config: ConsumerGroupConfig
) -> list[CoordinatorRecord]:
    """Return the records of the consumer group that a classic group with members becomes.

    They follow the classic group's tombstone and are replayed into a new group. Whoever waits in
    the classic group is refused with REBALANCE_IN_PROGRESS.

    Raises:
        ApiError: GROUP_ID_NOT_FOUND, as Kafka says when a group cannot be upgraded.
    """
    _check_upgrade(classic, config)
    try:
        upgraded = [_upgraded(classic, member, topics) for member in classic.members.values()]
    except CorruptionError as error:
        raise _not_upgradable(classic, f"the embedded protocol is malformed: {error}") from error
    _check_disjoint(classic, upgraded)
    upgraded = _with_owned(classic, upgraded, topics)
    group_id, epoch = classic.group_id, classic.generation_id
    names = {name for member, _ in upgraded for name in member.subscribed_topic_names}
    return [
        *(records.member_subscription(group_id, member) for member, _ in upgraded),
        records.group_epoch(group_id, epoch, metadata_hash(topics, names)),
        *(
            records.target_assignment(group_id, member.member_id, partitions)
            for member, partitions in upgraded
        ),
        records.target_assignment_epoch(group_id, epoch, 0),
        *(records.current_assignment(group_id, member) for member, _ in upgraded),
    ]


def _check_upgrade(classic: UpgradableGroup, config: ConsumerGroupConfig) -> None:
    if not config.migration_policy.allows_upgrade:
        raise _not_upgradable(classic, "online upgrade is disabled")
    if classic.protocol_type != CONSUMER_PROTOCOL_TYPE:
        raise _not_upgradable(classic, "it does not use the consumer embedded protocol")
    if len(classic.members) > config.group_size_max:
        raise _not_upgradable(classic, "its size exceeds the consumer group maximum size")


def _not_upgradable(classic: UpgradableGroup, reason: str) -> ApiError:
    problem = f"Cannot upgrade classic group {classic.group_id} to consumer group: {reason}."
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, problem)


def _upgraded(
    classic: UpgradableGroup, member: _ClassicMember, topics: TopicView
) -> tuple[Member, Partitions]:
    partitions: Partitions = NOTHING
    if member.assignment:  # else it has joined and never synced
        assignment = decode_assignment(member.assignment)
        if assignment.user_data:
            raise _not_upgradable(classic, "user data of a custom assignor would be lost")
        partitions = {
            topic.topic_id: frozenset(assigned.partitions)
            for assigned in assignment.assigned_partitions
            if assigned.partitions and (topic := topics.find(assigned.topic)) is not None
        }
    subscription = decode_subscription(_chosen(member, classic.protocol_name))
    epoch = classic.generation_id
    upgraded = Member(
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=frozenset(subscription.topics),
        assigned=with_epoch(partitions, epoch),
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )
    return upgraded, partitions


def _chosen(member: _ClassicMember, protocol_name: str | None) -> bytes:
    # Before the first generation nothing is chosen; all of a consumer's protocols say the same.
    return next((data for name, data in member.protocols if name == protocol_name), b"") or (
        member.protocols[0][1] if member.protocols else b""
    )


def _check_disjoint(
    classic: UpgradableGroup, upgraded: Iterable[tuple[Member, Partitions]]
) -> None:
    """Refuse a group whose leader gave a partition to two: ours never has it held twice."""
    seen = set()
    for _, partitions in upgraded:
        for topic_id, numbers in partitions.items():
            for number in numbers:
                if (topic_id, number) in seen:
                    raise _not_upgradable(classic, "a partition is assigned to two members")
                seen.add((topic_id, number))


def _with_owned(
    classic: UpgradableGroup, upgraded: Iterable[tuple[Member, Partitions]], topics: TopicView
) -> list[tuple[Member, Partitions]]:
    """Let members hold what they said they own, as far as nobody was assigned it."""
    taken = {
        (topic_id, number)
        for _, partitions in upgraded
        for topic_id, numbers in partitions.items()
        for number in numbers
    }
    result = []
    for member, target in upgraded:
        held = {topic_id: dict(epochs) for topic_id, epochs in member.assigned.items()}
        subscription = _chosen(classic.members[member.member_id], classic.protocol_name)
        for topic_id, numbers in owned_partitions(
            decode_subscription(subscription), topics
        ).items():
            for number in numbers:
                if (topic_id, number) not in taken:
                    taken.add((topic_id, number))
                    held.setdefault(topic_id, {})[number] = member.member_epoch
        result.append((replace(member, assigned=held), target))
    return result


def may_downgrade(
    state: GroupState, leaving: Collection[Member], config: ConsumerGroupConfig, *, joining: int = 0
) -> bool:
    """Whether only classic members remain when some leave (and ``joining`` classic ones come)."""
    staying = len(state.members) - len(leaving)
    classic = state.classic_members - sum(each.classic is not None for each in leaving)
    return (
        staying == classic
        and 0 < staying + joining <= config.classic.group_max_size
        and config.migration_policy.allows_downgrade
        # A group needs a protocol; all who joined had one in common with those before them.
        and (not classic or state.classic_members in state.classic_protocols.values())
    )


class Downgrade(NamedTuple):
    successor: ClassicGroup
    records: tuple[CoordinatorRecord, ...]
    replies: tuple[Reply, ...]


def downgrade(
    state: GroupState,
    staying: Sequence[tuple[Member, Partitions]],
    topics: TopicView,
    config: ConsumerGroupConfig,
    random: Random,
    now: Instant,
    *,
    is_rebalance: bool,
) -> Downgrade:
    """Build the classic group of the members that stay, each with its assignment.

    The records are those of the new group; the old one's tombstones go before them.
    """
    members = [_downgraded(member) for member, _ in staying]
    group = ClassicGroup.from_members(
        state.group_id, members, state.group_epoch, config.classic, random, now
    )
    for member, (_, assigned) in zip(members, staying, strict=True):
        subscription = member.metadata(group.protocol_name or "")
        member.assignment = encode_assignment(assigned, topics, subscription)
    written = group.metadata_record()
    results = [group.on_loaded(now), group.rebalance(now) if is_rebalance else Result()]
    return Downgrade(
        group,
        (written, *(each for result in results for each in result.records)),
        tuple(each for result in results for each in result.replies),
    )


def _downgraded(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        member.classic.protocols,
    )
