"""Offsets that groups have committed: read, set, delete.

Topics are named, not given by id (OffsetFetch and OffsetCommit up to version 9): a committed offset
is of a name, and a topic that is gone has no id any more.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.client.admin.driver import Driver, refusal
from odradek.client.admin.results import Result, Results
from odradek.client.admin.routing import ToCoordinators, by_topic
from odradek.client.errors import BrokerError, KafkaError, check
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

_NAMED_MAX: Final = 9
_MANY_GROUPS_FROM: Final = 8
_NO_OFFSET: Final = -1
_COORDINATOR_CODES: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class CommittedOffset(NamedTuple):
    """``offset`` is the next record to read; ``leader_epoch`` is -1 where it was not given."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


Offsets = dict[TopicPartition, CommittedOffset]


class GroupOffsetOperations:
    _driver: Driver

    async def list_group_offsets(
        self,
        groups: Mapping[str, Collection[TopicPartition] | None] | Iterable[str],
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> Results[str, dict[TopicPartition, CommittedOffset]]:
        """Return what groups have committed, all of it or for the partitions that are named.

        Partitions without an offset are left out. ``require_stable`` waits for open transactions.
        """
        driver = self._driver
        asked = groups if isinstance(groups, Mapping) else dict.fromkeys(groups)

        async def ask(node_id: int, ids: Sequence[str]) -> Mapping[str, Offsets | KafkaError]:
            versions = (await driver.cluster.connection(node_id)).versions
            version = versions.newest(api_for_key(OffsetFetchRequest.ID), _NAMED_MAX)
            at_once = [ids] if version >= _MANY_GROUPS_FROM else [[each] for each in ids]
            answers: dict[str, Offsets | KafkaError] = {}
            for some in at_once:
                part = {each: asked[each] for each in some}
                request = _fetch_request(part, version, require_stable=require_stable)
                response = await driver.cluster.ask(
                    node_id, request, OffsetFetchResponse, version_max=_NAMED_MAX
                )
                answers.update(_fetched(response, some))
            return answers

        return await driver.bulk(asked, ToCoordinators(driver), ask, timeout_ms=timeout_ms)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, CommittedOffset | int],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group that has no members; one that is not there comes to be."""
        driver = self._driver
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    _commit(each, offsets[TopicPartition(topic, each)]) for each in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]

        async def ask(node_id: int) -> Results[TopicPartition, None]:
            request = OffsetCommitRequest(group_id=group_id, topics=topics)
            response = await driver.cluster.ask(
                node_id, request, OffsetCommitResponse, version_max=_NAMED_MAX
            )
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            return _by_partition(codes)

        return await driver.single(
            ask, route=ToCoordinators(driver), timeout_ms=timeout_ms, about=group_id
        )

    async def delete_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition],
        *,
        timeout_ms: float | None = None,
    ) -> Results[TopicPartition, None]:
        """Forget offsets; GROUP_SUBSCRIBED_TO_TOPIC for topics that the group still reads."""
        driver = self._driver
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in indexes],
            )
            for topic, indexes in by_topic(partitions).items()
        ]

        async def ask(node_id: int) -> Results[TopicPartition, None]:
            request = OffsetDeleteRequest(group_id=group_id, topics=topics)
            response = await driver.cluster.ask(node_id, request, OffsetDeleteResponse)
            check(response.error_code, about=group_id)
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            return _by_partition(codes)

        return await driver.single(
            ask, route=ToCoordinators(driver), timeout_ms=timeout_ms, about=group_id
        )


def _fetch_request(
    groups: Mapping[str, Collection[TopicPartition] | None],
    version: int,
    *,
    require_stable: bool,
) -> OffsetFetchRequest:
    if version >= _MANY_GROUPS_FROM:
        return OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(group_id=group_id, topics=_fetch_topics(partitions))
                for group_id, partitions in groups.items()
            ],
            require_stable=require_stable,
        )
    ((group_id, partitions),) = groups.items()
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=indexes)
            for topic, indexes in by_topic(partitions).items()
        ]
    return OffsetFetchRequest(group_id=group_id, topics=topics, require_stable=require_stable)


def _fetch_topics(
    partitions: Collection[TopicPartition] | None,
) -> list[OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [
        OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
        for topic, indexes in by_topic(partitions).items()
    ]


def _fetched(
    response: OffsetFetchResponse, ids: Sequence[str]
) -> Iterable[tuple[str, Offsets | KafkaError]]:
    if response.groups:
        for group in response.groups:
            error = refusal(group.error_code, about=group.group_id)
            found = ((topic.name, each) for topic in group.topics for each in topic.partitions)
            yield group.group_id, error or _offsets(found)
        return
    error = refusal(response.error_code, about=ids[0])
    older = ((topic.name, each) for topic in response.topics for each in topic.partitions)
    yield ids[0], error or _offsets(older)


def _offsets(
    found: Iterable[tuple[str, OffsetFetchResponsePartition | OffsetFetchResponsePartitions]],
) -> Offsets | KafkaError:
    """Return the offsets of a group; an error in one partition is the group's: ask again."""
    offsets: Offsets = {}
    for topic, each in found:
        key = TopicPartition(topic, each.partition_index)
        if each.error_code:
            return BrokerError(each.error_code, about=str(key))
        if each.committed_offset != _NO_OFFSET:
            offsets[key] = CommittedOffset(
                each.committed_offset, each.metadata or "", each.committed_leader_epoch
            )
    return offsets


def _commit(partition: int, committed: CommittedOffset | int) -> OffsetCommitRequestPartition:
    chosen = CommittedOffset(committed) if isinstance(committed, int) else committed
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=chosen.offset,
        committed_leader_epoch=chosen.leader_epoch,
        committed_metadata=chosen.metadata,
    )


def _by_partition(codes: Mapping[TopicPartition, int]) -> Results[TopicPartition, None]:
    """Return a result for each partition.

    Raises:
        BrokerError: A code that is about the coordinator is the same for all: ask again.
    """
    for key, code in codes.items():
        error = refusal(code, about=key)
        if error is not None and error.code in _COORDINATOR_CODES:
            raise error
    return Results((key, Result(error=refusal(code, about=key))) for key, code in codes.items())
