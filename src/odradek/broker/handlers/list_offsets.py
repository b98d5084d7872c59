"""ListOffsets (key 2), versions 1-11: translate a timestamp into an offset.

v2  isolation level: LATEST is then the last stable offset.  v4  leader epochs.  v5  the code
OFFSET_NOT_AVAILABLE.  v6  flexible.
v7  timestamp -3, the record with the largest timestamp.  v8  -4, the earliest local offset, which
is the earliest of all where nothing is tiered.  v9  -5, the latest tiered offset: there is none.
v10 timeout.  v11  -6, the earliest offset still to be uploaded: there is none.

Only the leader answers consumers and followers. Replica -2, which tools are, asks any replica.
"""

from collections.abc import Callable

from odradek.broker.context import RequestContext
from odradek.broker.partition import Partition
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.protocol.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.message import Message
from odradek.storage.log import Isolation
from odradek.storage.timestamps import FoundOffset, find_largest_timestamp, find_offset_at

VERSION_LEADER_EPOCHS = 4
VERSION_NOT_AVAILABLE = 5
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
CONSUMER = -1
DEBUGGER = -2
_OLDEST_VERSION = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}


def handle(context: RequestContext, request: ListOffsetsRequest) -> Steps[Message]:
    read_committed = request.isolation_level == 1
    isolation = Isolation.LAST_STABLE_OFFSET if read_committed else Isolation.HIGH_WATERMARK
    if request.replica_id != CONSUMER:
        isolation = Isolation.LOG_END  # a question of a follower, or of a tool
    replicas = context.broker.replicas
    find = replicas.replica if request.replica_id == DEBUGGER else replicas.leader
    response = ListOffsetsResponse()
    for topic in request.topics:
        result = ListOffsetsTopicResponse(name=topic.name)
        response.topics.append(result)
        for query in topic.partitions:
            yield
            result.partitions.append(_partition(context, topic.name, query, isolation, find))
    return response


def _partition(
    context: RequestContext,
    topic: str,
    query: ListOffsetsPartition,
    isolation: Isolation,
    find: Callable[[TopicPartition, int], Partition],
) -> ListOffsetsPartitionResponse:
    partition = TopicPartition(topic, query.partition_index)
    try:
        if context.version < _OLDEST_VERSION.get(query.timestamp, 0):
            problem = f"timestamp {query.timestamp} in version {context.version}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
        replica = find(partition, query.current_leader_epoch)
        with context.broker.replicas.store.guard(partition):
            found = _find(replica, query.timestamp, isolation)
    except ApiError as error:  # one bad partition must not fail its neighbours
        code = error.code
        if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < VERSION_NOT_AVAILABLE:
            code = ErrorCode.LEADER_NOT_AVAILABLE  # older clients do not know the other
        return ListOffsetsPartitionResponse(partition_index=query.partition_index, error_code=code)
    if found is None:
        return ListOffsetsPartitionResponse(partition_index=query.partition_index)
    return ListOffsetsPartitionResponse(
        partition_index=query.partition_index,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if context.version >= VERSION_LEADER_EPOCHS else -1,
    )


def _find(replica: Partition, timestamp: int, isolation: Isolation) -> FoundOffset | None:
    log = replica.log
    match timestamp:
        case -1:
            if isolation is not Isolation.LOG_END:
                _check_known(replica)
            return FoundOffset(log.end_offset(isolation), -1, replica.leader_epoch)
        case -2 | -4:
            epoch = log.leader_epochs.epoch_for_offset(log.log_start_offset)
            return FoundOffset(log.log_start_offset, -1, -1 if epoch is None else epoch)
        case -3:
            found = find_largest_timestamp(log)
        case -5 | -6:
            return None
        case _:
            found = find_offset_at(log, timestamp)
    if found is not None and found.offset >= log.end_offset(isolation):
        _check_known(replica)
        return None  # a record that no client may see yet is as good as none
    return found


def _check_known(replica: Partition) -> None:
    """Refuse while the high watermark is older than this leader (KIP-207).

    What the leader before showed to clients may be beyond it: to them, offsets would go back.
    """
    leadership = replica.leadership
    if leadership is not None and replica.log.high_watermark < leadership.epoch_start_offset:
        epoch = replica.leader_epoch
        problem = f"{replica.key}: the high watermark is from before leader epoch {epoch}"
        raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE, problem)
