"""What is written and answered for commits, fetches and deletions of offsets.

Whether the caller may do it is the group's to say; here is only what it comes to.
"""

from collections.abc import Callable, Iterable
from typing import Final

from odradek.coordinator.group.offsets import (
    NO_EXPIRE_TIMESTAMP,
    CommittedOffset,
    OffsetStore,
)
from odradek.coordinator.record import CoordinatorRecord
from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from odradek.protocol.generated.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.generated.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from odradek.protocol.generated.offset_records import OffsetCommitKey, OffsetCommitValue
from odradek.protocol.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

NO_OFFSET: Final = -1
NO_RETENTION: Final = -1
_INT64_MAX: Final = (1 << 63) - 1
_VALUE_VERSION: Final = 4
_VALUE_VERSION_WITH_EXPIRY: Final = 1
_NO_TOPIC_ID: Final = ZERO_UUID


def commit_record(
    group_id: str, topic: str, partition: int, value: OffsetCommitValue
) -> CoordinatorRecord:
    has_expiry = value.expire_timestamp != NO_EXPIRE_TIMESTAMP
    version = _VALUE_VERSION_WITH_EXPIRY if has_expiry else _VALUE_VERSION
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, value, version)


def commit_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    key = OffsetCommitKey(group=group_id, topic=topic, partition=partition)
    return CoordinatorRecord(key, None)


def plan_commit(
    request: OffsetCommitRequest, now_ms: int, metadata_bytes_max: int
) -> tuple[list[CoordinatorRecord], OffsetCommitResponse]:
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse(topics=[])
    expire_ms = NO_EXPIRE_TIMESTAMP
    if request.retention_time_ms != NO_RETENTION:
        expire_ms = min(now_ms + request.retention_time_ms, _INT64_MAX)  # clients send the most
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for partition in topic.partitions:
            code = ErrorCode.NONE
            if len(partition.committed_metadata or "") > metadata_bytes_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = _value(partition, topic.topic_id, now_ms, expire_ms)
                number = partition.partition_index
                records.append(commit_record(request.group_id, topic.name, number, value))
            answered.partitions.append(
                OffsetCommitResponsePartition(
                    partition_index=partition.partition_index, error_code=code
                )
            )
    return records, response


def plan_commit_in_transaction(
    request: TxnOffsetCommitRequest, now_ms: int, metadata_bytes_max: int
) -> tuple[list[CoordinatorRecord], TxnOffsetCommitResponse]:
    records: list[CoordinatorRecord] = []
    response = TxnOffsetCommitResponse(topics=[])
    for topic in request.topics:
        answered = TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        for partition in topic.partitions:
            number, code = partition.partition_index, ErrorCode.NONE
            if len(partition.committed_metadata or "") > metadata_bytes_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = _value(partition, topic.topic_id, now_ms, NO_EXPIRE_TIMESTAMP)
                records.append(commit_record(request.group_id, topic.name, number, value))
            answered.partitions.append(
                TxnOffsetCommitResponsePartition(partition_index=number, error_code=code)
            )
    return records, response


def _value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    now_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=now_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def fetch_offsets(
    store: OffsetStore, request: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Answer for the partitions asked for, or for all if none are named."""
    group_id = request.group_id
    answer = OffsetFetchResponseGroup(group_id=group_id, topics=[])
    if request.topics is None:
        wanted = [
            (name, _NO_TOPIC_ID, list(parts)) for name, parts in store.of_group(group_id).items()
        ]
    else:
        wanted = [(each.name, each.topic_id, each.partition_indexes) for each in request.topics]
    for name, topic_id, numbers in wanted:
        committed = store.of_group(group_id).get(name, {})
        answered = OffsetFetchResponseTopics(name=name, topic_id=topic_id)
        for number in numbers:
            if require_stable and store.is_pending(group_id, name, number):
                partition = _no_offset(number, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            else:
                partition = _answer(number, committed.get(number), topic_id)
            answered.partitions.append(partition)
        answer.topics.append(answered)
    return answer


def _answer(
    number: int, committed: CommittedOffset | None, topic_id: Uuid
) -> OffsetFetchResponsePartitions:
    # A topic that was deleted and made anew has another id: what was committed is not about it.
    if committed is None or (
        _NO_TOPIC_ID not in (committed.topic_id, topic_id) and committed.topic_id != topic_id
    ):
        return _no_offset(number, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _no_offset(number: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=number,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def plan_delete(
    store: OffsetStore, request: OffsetDeleteRequest, is_subscribed: Callable[[str], bool]
) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
    """Delete offsets of topics that nobody in the group reads any more."""
    records: list[CoordinatorRecord] = []
    response = OffsetDeleteResponse(topics=[])
    group_id = request.group_id
    for topic in request.topics:
        is_refused = is_subscribed(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_refused else ErrorCode.NONE
        answered = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answered)
        for partition in topic.partitions:
            number = partition.partition_index
            answered.partitions.append(
                OffsetDeleteResponsePartition(partition_index=number, error_code=code)
            )
            is_kept = store.find(group_id, topic.name, number) is not None
            if not is_refused and (is_kept or store.is_pending(group_id, topic.name, number)):
                records.append(commit_tombstone(group_id, topic.name, number))
    return records, response


def plan_delete_all(store: OffsetStore, group_id: str) -> list[CoordinatorRecord]:
    """Forget all that a group committed, in transactions that are open too."""
    places = {
        (topic, number) for topic, parts in store.of_group(group_id).items() for number in parts
    }
    places.update(store.pending_of(group_id))
    return [commit_tombstone(group_id, topic, number) for topic, number in sorted(places)]


def plan_expiry(
    store: OffsetStore,
    group_id: str,
    is_subscribed: Callable[[str], bool],
    is_expired: Callable[[CommittedOffset], bool],
) -> tuple[list[CoordinatorRecord], bool]:
    """Forget offsets that nobody will come back for; also say whether none is left then."""
    records: list[CoordinatorRecord] = []
    is_all = not store.has_pending(group_id)
    for topic, partitions in store.of_group(group_id).items():
        for number, committed in partitions.items():
            if (
                not is_subscribed(topic)
                and is_expired(committed)
                and not store.is_pending(group_id, topic, number)
            ):
                records.append(commit_tombstone(group_id, topic, number))
            else:
                is_all = False
    return records, is_all


def plan_topics_deleted(
    store: OffsetStore, topics: Iterable[tuple[str, Uuid]]
) -> list[CoordinatorRecord]:
    """Forget what was committed for topics that are gone."""
    places = {
        place
        for name, topic_id in topics
        for place, committed in store.places_in(name)
        if committed.topic_id in (_NO_TOPIC_ID, topic_id)
    }
    return [commit_tombstone(*place) for place in sorted(places)]
