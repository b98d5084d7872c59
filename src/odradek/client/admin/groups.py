"""Groups: list, describe, delete, send members away.

A group is asked about as one of the consumer protocol first (KIP-848) and, if it is none, as a
classic one: who looks after a cluster need not know which is which.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Result, Results
from odradek.client.admin.routing import ToCoordinators
from odradek.client.errors import KafkaError, check
from odradek.core.errors import ApiError, CorruptionError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
)
from odradek.protocol.generated.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from odradek.protocol.generated.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from odradek.protocol.generated.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from odradek.protocol.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from odradek.protocol.message import Message

M = TypeVar("M", bound=Message)

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_MEMBER_IS_CLASSIC: Final = 0
_NOT_A_CONSUMER_GROUP: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)


class GroupListing(NamedTuple):
    """``state`` and ``type`` are empty where the broker is too old to tell."""

    group_id: str
    type: str
    state: str
    protocol_type: str


class GroupMember(NamedTuple):
    """A member. What only the consumer protocol has is None in classic groups."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    assignment: tuple[TopicPartition, ...]
    subscribed_topics: tuple[str, ...] = ()
    subscribed_regex: str | None = None
    rack_id: str | None = None
    member_epoch: int | None = None
    target_assignment: tuple[TopicPartition, ...] | None = None
    is_classic: bool | None = None


class GroupDescription(NamedTuple):
    """A group; ``assignor`` is the protocol that the members of a classic one agreed on."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: int
    members: tuple[GroupMember, ...]
    group_epoch: int | None = None
    assignment_epoch: int | None = None


class GroupOperations:
    _driver: Driver

    async def list_groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        timeout_ms: float | None = None,
    ) -> list[GroupListing]:
        """Return the groups of all brokers, of some states ("Empty") or types ("classic").

        Raises:
            KafkaError: A broker did not answer, so the list would not be whole.
        """
        driver = self._driver
        wanted_states, wanted_types = list(states), list(types)

        async def ask(node_id: int) -> list[GroupListing]:
            request = ListGroupsRequest(states_filter=wanted_states, types_filter=wanted_types)
            response = await driver.cluster.ask(node_id, request, ListGroupsResponse)
            check(response.error_code, about="ListGroups")
            return [
                GroupListing(
                    each.group_id, each.group_type.lower(), each.group_state, each.protocol_type
                )
                for each in response.groups
            ]

        by_broker = (await driver.every_broker(ask, timeout_ms=timeout_ms)).unwrap()
        # While a coordinator moves, two brokers may name the same group.
        return sorted(
            {each.group_id: each for found in by_broker.values() for each in found}.values()
        )

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, GroupDescription]:
        """Describe groups of either protocol; GROUP_ID_NOT_FOUND where there is none."""
        driver = self._driver

        async def ask(
            node_id: int, ids: Sequence[str]
        ) -> Mapping[str, GroupDescription | KafkaError]:
            answers = dict(await _describe_consumer_groups(driver, node_id, ids))
            rest = [each for each in ids if _is_not_consumer_group(answers.get(each))]
            if rest:
                found = await _describe_classic_groups(driver, node_id, rest)
                # Where there is no group at all, the first answer says it best.
                answers = {**found, **answers, **_described(found)}
            return answers

        return await driver.bulk(group_ids, ToCoordinators(driver), ask, timeout_ms=timeout_ms)

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> Results[str, None]:
        """Delete groups that have no members, and the offsets they committed."""
        driver = self._driver

        async def ask(node_id: int, ids: Sequence[str]) -> Mapping[str, KafkaError | None]:
            request = DeleteGroupsRequest(groups_names=list(ids))
            response = await driver.cluster.ask(node_id, request, DeleteGroupsResponse)
            return {
                each.group_id: refusal(each.error_code, each.error_message, about=each.group_id)
                for each in response.results
            }

        return await driver.bulk(group_ids, ToCoordinators(driver), ask, timeout_ms=timeout_ms)

    async def remove_members(
        self,
        group_id: str,
        instance_ids: Iterable[str] | None = None,
        *,
        reason: str | None = None,
        timeout_ms: float | None = None,
    ) -> Results[str, None]:
        """Send static members away by ``group.instance.id``, or with None all members.

        Results are by instance id, of members that have none by member id.
        """
        driver = self._driver
        if instance_ids is None:
            described = await self.describe_groups([group_id], timeout_ms=timeout_ms)
            leaving = [
                MemberIdentity(
                    member_id=each.member_id, group_instance_id=each.instance_id, reason=reason
                )
                for each in described[group_id].unwrap().members
            ]
        else:
            leaving = [
                MemberIdentity(group_instance_id=each, reason=reason) for each in instance_ids
            ]
        if not leaving:
            return Results()

        async def ask(node_id: int) -> Results[str, None]:
            request = LeaveGroupRequest(group_id=group_id, members=leaving)
            response = await driver.cluster.ask(node_id, request, LeaveGroupResponse)
            check(response.error_code, about=group_id)
            results: Results[str, None] = Results()
            for each in response.members:
                key = each.group_instance_id or each.member_id
                results[key] = Result(error=refusal(each.error_code, about=key))
            return results

        return await driver.single(
            ask, route=ToCoordinators(driver), timeout_ms=timeout_ms, about=group_id
        )


def _is_not_consumer_group(answer: GroupDescription | KafkaError | None) -> bool:
    return answer is None or getattr(answer, "code", None) in _NOT_A_CONSUMER_GROUP


def _described(
    answers: Mapping[str, GroupDescription | KafkaError],
) -> dict[str, GroupDescription | KafkaError]:
    return {group_id: each for group_id, each in answers.items() if not _is_missing(each)}


def _is_missing(answer: GroupDescription | KafkaError) -> bool:
    return getattr(answer, "code", None) is ErrorCode.GROUP_ID_NOT_FOUND


async def _describe_consumer_groups(
    driver: Driver, node_id: int, ids: Sequence[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    """Describe those of the consumer protocol; nothing from brokers that do not know it."""
    versions = (await driver.cluster.connection(node_id)).versions
    if not versions.knows(ConsumerGroupDescribeRequest.ID):
        return {}
    request = ConsumerGroupDescribeRequest(group_ids=list(ids))
    response = await driver.cluster.ask(node_id, request, ConsumerGroupDescribeResponse)
    return {each.group_id: _consumer_group(each, node_id) for each in response.groups}


def _consumer_group(group: DescribedConsumerGroup, node_id: int) -> GroupDescription | KafkaError:
    error = refusal(group.error_code, group.error_message, about=group.group_id)
    return error or GroupDescription(
        group.group_id,
        "consumer",
        group.group_state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        node_id,
        tuple(map(_consumer_member, group.members)),
        group.group_epoch,
        group.assignment_epoch,
    )


def _consumer_member(member: Member) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        tuple(member.subscribed_topic_names),
        member.subscribed_topic_regex,
        member.rack_id,
        member.member_epoch,
        _partitions(member.target_assignment),
        None if member.member_type < 0 else member.member_type == _MEMBER_IS_CLASSIC,
    )


def _partitions(
    assignment: Assignment | ConsumerProtocolAssignment,
) -> tuple[TopicPartition, ...]:
    if isinstance(assignment, Assignment):
        pairs = ((each.topic_name, each.partitions) for each in assignment.topic_partitions)
    else:
        pairs = ((each.topic, each.partitions) for each in assignment.assigned_partitions)
    return tuple(sorted(TopicPartition(topic, each) for topic, found in pairs for each in found))


async def _describe_classic_groups(
    driver: Driver, node_id: int, ids: Sequence[str]
) -> Mapping[str, GroupDescription | KafkaError]:
    request = DescribeGroupsRequest(groups=list(ids))
    response = await driver.cluster.ask(node_id, request, DescribeGroupsResponse)
    return {each.group_id: _classic_group(each, node_id) for each in response.groups}


def _classic_group(group: DescribedGroup, node_id: int) -> GroupDescription | KafkaError:
    error = refusal(group.error_code, group.error_message, about=group.group_id)
    # A group that only commits offsets has no protocol.
    is_consumer = group.protocol_type in ("", CONSUMER_PROTOCOL_TYPE)
    return error or GroupDescription(
        group.group_id,
        "classic",
        group.group_state,
        group.protocol_type,
        group.protocol_data,
        node_id,
        tuple(_classic_member(each, is_consumer=is_consumer) for each in group.members),
    )


def _classic_member(member: DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    assignment: tuple[TopicPartition, ...] = ()
    topics: tuple[str, ...] = ()
    if is_consumer:
        assignment, topics = _decoded(member.member_assignment, member.member_metadata)
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        topics,
    )


def _decoded(
    assignment: bytes, subscription: bytes
) -> tuple[tuple[TopicPartition, ...], tuple[str, ...]]:
    """Read what members wrote for each other, as far as it can be read: it may be anything."""
    try:
        partitions = _partitions(_embedded(ConsumerProtocolAssignment, assignment))
        topics = tuple(_embedded(ConsumerProtocolSubscription, subscription).topics)
    except (CorruptionError, ApiError):
        return (), ()
    return partitions, topics


def _embedded(kind: type[M], data: bytes) -> M:
    if not data:  # before the first rebalance is over
        return kind()
    version = int.from_bytes(data[:2], "big", signed=True)
    return kind.decode(memoryview(data)[2:], max(0, min(version, kind.VERSION_MAX)))
