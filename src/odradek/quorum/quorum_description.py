"""DescribeQuorum (key 55), versions 0-2, as the leader answers it: how far each replica has come.

v1  when a replica last fetched and was caught up.  v2  directory ids, error messages, where the
voters listen.

A leader counts time from its own start. What is answered is the wall clock's, as Kafka does: the
leader itself is caught up now; a replica that has not fetched in this epoch has -1.
"""

from collections.abc import Iterable

from odradek.core.clock import Instant
from odradek.core.errors import ErrorCode, short_message
from odradek.core.ids import ZERO_UUID, TopicPartition
from odradek.protocol.generated.control_records import VotersRecord
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    ReplicaState,
    ResponsePartitionData,
    ResponseTopicData,
)
from odradek.quorum.metadata_log import METADATA_PARTITION
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.raft.config import OBSERVER_SESSION_TIMEOUT_MS
from odradek.raft.leader import Leader, Progress
from odradek.raft.messages import ReplicaKey


class QuorumView:
    """A quorum as its leader sees it at one moment; ``leader`` is None on any other node."""

    def __init__(
        self,
        leader: Leader | None,
        *,
        epoch: int,
        log_end_offset: int,
        nodes: list[Node],
        now: Instant,
    ) -> None:
        self._leader = leader
        self._epoch = epoch
        self._log_end_offset = log_end_offset
        self._nodes = nodes
        self._now = now

    def describe(self, request: DescribeQuorumRequest, version: int) -> DescribeQuorumResponse:
        topics = [
            ResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    self._partition(TopicPartition(topic.topic_name, each.partition_index), version)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return DescribeQuorumResponse(
            error_message=None, topics=topics, nodes=self._nodes if version >= 2 else []
        )

    def _partition(self, partition: TopicPartition, version: int) -> ResponsePartitionData:
        leader = self._leader
        if partition != METADATA_PARTITION:
            code, problem = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} has no quorum"
        elif leader is None:
            code, problem = ErrorCode.NOT_LEADER_OR_FOLLOWER, "another controller leads the quorum"
        else:
            return self._describe(leader, version)
        return ResponsePartitionData(
            partition_index=partition.partition,
            error_code=code,
            error_message=short_message(problem),
        )

    def _describe(self, leader: Leader, version: int) -> ResponsePartitionData:
        since_ms = self._now.monotonic_ms - OBSERVER_SESSION_TIMEOUT_MS
        observers = [
            each
            for each in leader.observers.values()
            if each.last_fetch_ms is not None and each.last_fetch_ms > since_ms
        ]
        own = self._own_state(leader.key, version)
        is_voter = leader.voters.contains(leader.key)
        voters = [own] if is_voter else []
        voters += self._states(leader.progress.values(), version)
        high_watermark = leader.high_watermark
        return ResponsePartitionData(
            partition_index=METADATA_PARTITION.partition,
            error_message=None,
            leader_id=leader.key.id,
            leader_epoch=self._epoch,
            high_watermark=-1 if high_watermark is None else high_watermark,
            current_voters=sorted(voters, key=_replica_id),
            observers=sorted(
                [*([] if is_voter else [own]), *self._states(observers, version)], key=_replica_id
            ),
        )

    def _own_state(self, key: ReplicaKey, version: int) -> ReplicaState:
        return ReplicaState(
            replica_id=key.id,
            replica_directory_id=(key.directory_id or ZERO_UUID) if version >= 2 else ZERO_UUID,
            log_end_offset=self._log_end_offset,
            last_fetch_timestamp=self._now.wall_ms,
            last_caught_up_timestamp=self._now.wall_ms,
        )

    def _states(self, replicas: Iterable[Progress], version: int) -> list[ReplicaState]:
        return [
            ReplicaState(
                replica_id=each.key.id,
                replica_directory_id=(each.key.directory_id or ZERO_UUID)
                if version >= 2
                else ZERO_UUID,
                log_end_offset=-1 if each.end_offset is None else each.end_offset,
                last_fetch_timestamp=self._wall_ms(each.last_fetch_ms),
                last_caught_up_timestamp=self._wall_ms(each.last_caught_up_ms),
            )
            for each in replicas
        ]

    def _wall_ms(self, monotonic_ms: int | None) -> int:
        if monotonic_ms is None:
            return -1
        return self._now.wall_ms - (self._now.monotonic_ms - monotonic_ms)


def nodes_by_log(voters: VotersRecord) -> list[Node]:
    return [
        Node(
            node_id=voter.voter_id,
            listeners=[
                Listener(name=each.name, host=each.host, port=each.port) for each in voter.endpoints
            ],
        )
        for voter in voters.voters
    ]


def nodes_by_config(ids: Iterable[int], settings: QuorumSettings) -> list[Node]:
    """Return static voters, which are found on the listener that all controllers share."""
    known = settings.static_voters
    return [
        Node(
            node_id=each,
            listeners=[
                Listener(name=settings.listener, host=address.host, port=address.port)
                for address in [known[each]]
            ]
            if each in known
            else [],
        )
        for each in ids
    ]


def _replica_id(state: ReplicaState) -> int:
    return state.replica_id
