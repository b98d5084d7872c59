"""Offsets that a group has committed: asking for them, and committing."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final

from odradek.client.cluster import Cluster
from odradek.client.consumer.errors import (
    CommitFailedError,
    FencedError,
    RebalanceInProgressError,
)
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.records import (
    NO_EPOCH,
    NO_GENERATION,
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    Offsets,
)
from odradek.client.consumer.settings import is_read_committed
from odradek.client.errors import (
    BrokerError,
    ConnectionLostError,
    KafkaError,
    KafkaTimeoutError,
    check,
)
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, TopicPartition
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
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

_COMMIT_BY_ID: Final = 10
_FETCH_BY_GROUPS: Final = 8
_FETCH_BY_ID: Final = 10
_NO_OFFSET: Final = -1

MOVED: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
"""The coordinator is another one, or somewhere else soon."""
_LEFT_BEHIND: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class GroupOffsets:
    def __init__(self, cluster: Cluster, group_id: str, standing: Callable[[], Standing]) -> None:
        """``standing`` says who asks: it changes with every generation."""
        self._cluster = cluster
        self._group_id = group_id
        self.standing = standing

    # Asking.

    async def fetch(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        """Return what is committed, asking once; partitions without an offset are left out.

        Raises:
            KafkaError: As the coordinator said.
        """
        node_id = await self._cluster.coordinator(self._group_id)
        try:
            response = await self._cluster.ask(
                node_id,
                self._fetch_request(partitions),
                OffsetFetchResponse,
                version_max=self._version_max(partitions, _FETCH_BY_ID),
            )
            return self._fetched(response)
        except KafkaError as error:
            self._on_trouble(error)
            raise

    def _fetch_request(
        self, partitions: Collection[TopicPartition]
    ) -> Callable[[int], OffsetFetchRequest]:
        numbers: dict[str, list[int]] = {}
        for partition in partitions:
            numbers.setdefault(partition.topic, []).append(partition.partition)
        require_stable = is_read_committed(self._cluster.settings)

        def build(version: int) -> OffsetFetchRequest:
            if version < _FETCH_BY_GROUPS:
                topics = [
                    OffsetFetchRequestTopic(name=name, partition_indexes=each)
                    for name, each in numbers.items()
                ]
                request = OffsetFetchRequest(group_id=self._group_id, topics=topics)
            else:
                request = OffsetFetchRequest(groups=[self._asked_group(numbers, version)])
            if version >= 7:
                request.require_stable = require_stable
            return request

        return build

    def _asked_group(
        self, numbers: Mapping[str, list[int]], version: int
    ) -> OffsetFetchRequestGroup:
        metadata = self._cluster.metadata
        group = OffsetFetchRequestGroup(
            group_id=self._group_id,
            topics=[
                OffsetFetchRequestTopics(topic_id=metadata.topic_id(name), partition_indexes=each)
                if version >= _FETCH_BY_ID
                else OffsetFetchRequestTopics(name=name, partition_indexes=each)
                for name, each in numbers.items()
            ],
        )
        me, _, problem = self.standing()
        is_member = bool(me.member_id) and problem is None
        if version >= 9 and is_member and self._is_consumer_protocol:
            group.member_id = me.member_id
            group.member_epoch = me.generation_id
        return group

    @property
    def _is_consumer_protocol(self) -> bool:
        return self._cluster.settings.text("group.protocol") == "consumer"

    def _fetched(
        self, response: OffsetFetchResponse
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        about = f"group {self._group_id}"
        check(response.error_code, about=about)
        found: dict[TopicPartition, OffsetAndMetadata | KafkaError] = {}
        for group in response.groups:
            check(group.error_code, about=about)
            for topic in group.topics:
                name = topic.name or self._cluster.metadata.topic_name(topic.topic_id)
                found.update(_offsets(name or "", topic.partitions))
        for old_topic in response.topics:
            found.update(_offsets(old_topic.name, old_topic.partitions))
        return found

    # Committing.

    async def commit(self, offsets: Offsets, since: Standing) -> None:
        """Commit, once, what an application wanted committed in a standing it had.

        Raises:
            CommitFailedError: This member is not one any more.
            RebalanceInProgressError: Poll first.
            KafkaError: As the coordinator said.
        """
        if not offsets:
            return
        node_id = await self._cluster.coordinator(self._group_id)
        standing = self.standing()
        standing.check_commit(since)
        try:
            response = await self._cluster.ask(
                node_id,
                self._commit_request(offsets, standing.metadata),
                OffsetCommitResponse,
                version_max=self._version_max(offsets, _COMMIT_BY_ID),
            )
        except KafkaError as error:
            self._on_trouble(error)
            raise
        failures = [
            self._failure(each.error_code, topic.name)
            for topic in response.topics
            for each in topic.partitions
            if each.error_code
        ]
        for failure in failures:
            self._on_trouble(failure)
        if failures:
            raise sorted(failures, key=lambda each: each.retriable)[0]

    def _commit_request(
        self, offsets: Offsets, me: ConsumerGroupMetadata
    ) -> Callable[[int], OffsetCommitRequest]:
        def build(version: int) -> OffsetCommitRequest:
            request = OffsetCommitRequest(
                group_id=self._group_id,
                generation_id_or_member_epoch=me.generation_id,
                member_id=me.member_id,
                topics=self._committed_topics(offsets, by_id=version >= _COMMIT_BY_ID),
            )
            if version >= 7 and me.generation_id != NO_GENERATION:
                request.group_instance_id = me.group_instance_id
            return request

        return build

    def _committed_topics(self, offsets: Offsets, *, by_id: bool) -> list[OffsetCommitRequestTopic]:
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for partition, each in offsets.items():
            name = partition.topic
            if name not in topics:
                topics[name] = (
                    OffsetCommitRequestTopic(topic_id=self._cluster.metadata.topic_id(name))
                    if by_id
                    else OffsetCommitRequestTopic(name=name)
                )
            topics[name].partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition,
                    committed_offset=each.offset,
                    committed_leader_epoch=max(each.leader_epoch, NO_EPOCH),
                    committed_metadata=each.metadata,
                )
            )
        return list(topics.values())

    def _failure(self, code: int, topic: str) -> KafkaError:
        about = f"commit of {self._group_id}" + (f" for {topic}" if topic else "")
        if code in _LEFT_BEHIND:
            return CommitFailedError(
                f"{about}: the group has moved on; its partitions may be others' by now (process "
                "faster than max.poll.interval.ms, or poll fewer records)"
            )
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            return RebalanceInProgressError(f"{about}: poll, then commit again")
        if code == ErrorCode.FENCED_INSTANCE_ID:
            return FencedError(f"{about}: another consumer has this group.instance.id")
        if code == ErrorCode.STALE_MEMBER_EPOCH:
            return StaleEpochError(f"{about}: the group has just moved on")
        return BrokerError(code, about=about)

    def _version_max(self, partitions: Iterable[TopicPartition], by_id: int) -> int | None:
        metadata = self._cluster.metadata
        has_ids = all(metadata.topic_id(each.topic) != ZERO_UUID for each in partitions)
        return None if has_ids else by_id - 1

    def _on_trouble(self, error: KafkaError) -> None:
        is_moved = isinstance(error, BrokerError) and error.code in MOVED
        if is_moved or isinstance(error, ConnectionLostError | KafkaTimeoutError):
            self._cluster.forget_coordinator(self._group_id)


def _offsets(
    topic: str,
    partitions: Iterable[OffsetFetchResponsePartition | OffsetFetchResponsePartitions],
) -> Iterator[tuple[TopicPartition, OffsetAndMetadata | KafkaError]]:
    for each in partitions:
        partition = TopicPartition(topic, each.partition_index)
        if each.error_code:
            yield partition, BrokerError(each.error_code, about=str(partition))
        elif each.committed_offset != _NO_OFFSET:
            yield (
                partition,
                OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                ),
            )


class StaleEpochError(KafkaError):
    """The member has a newer epoch by now: with that it may work."""

    retriable = True
