"""The partitions this node holds, as requests see them. Hot path.

Every check that stands between a client and a log is made here, once, with Kafka's codes: does
the partition exist, is this node its leader, does the client know the right leader epoch, is the
disk under it well. Handlers just ask for the leader and use what they get.

Alone, a leader has everybody's copy: what is appended is committed at once.
"""

from typing import Any, Final

from odradek.broker.delayed import DelayedOperations
from odradek.broker.metrics.traffic import TopicTraffic, Traffic
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.storage.log import AppendResult, Isolation, Log
from odradek.storage.log_read import ReadResult
from odradek.storage.log_store import LogStore
from odradek.storage.producer_state import AppendOrigin
from odradek.storage.validation import WritableBuffer

NO_LEADER_EPOCH: Final = -1


class Replica:
    """A local copy of a partition."""

    __slots__ = ("is_leader", "leader_epoch", "log", "partition", "topic_id", "traffic")

    def __init__(
        self, partition: TopicPartition, topic_id: Uuid, log: Log, traffic: TopicTraffic
    ) -> None:
        self.partition = partition
        self.topic_id = topic_id
        self.log = log
        self.traffic = traffic
        self.leader_epoch = 0
        self.is_leader = False


class Replicas:
    def __init__(self, store: LogStore, delayed: DelayedOperations) -> None:
        self.store = store
        self._delayed = delayed
        self._replicas: dict[TopicPartition, Replica] = {}
        self._topics: set[str] = set()
        self._topic_names: dict[Uuid, str] = {}
        store.moves.on_moved = self._on_log_moved
        self.traffic = Traffic()

    # What the image says.

    def add_topic(self, name: str, topic_id: Uuid) -> None:
        self._topics.add(name)
        self._topic_names[topic_id] = name

    def remove_topic(self, name: str, topic_id: Uuid, now_ms: int) -> None:
        self._topics.discard(name)
        self._topic_names.pop(topic_id, None)
        self.traffic.remove(name)
        for partition in [p for p in self._replicas if p.topic == name]:
            del self._replicas[partition]
            self.store.delete(partition, now_ms)
            self._delayed.notify(partition)  # whoever waits here shall learn that it is gone

    def become_leader(
        self, partition: TopicPartition, topic_id: Uuid, leader_epoch: int, now_ms: int
    ) -> None:
        """Take on a partition whose leader this node is, with a log of its own if it has none."""
        replica = self._replicas.get(partition)
        if replica is None:
            log = self.store.get(partition)
            if log is None:
                log = self.store.create(partition, topic_id, now_ms=now_ms)
            traffic = self.traffic.of(partition.topic)
            replica = self._replicas[partition] = Replica(partition, topic_id, log, traffic)
        replica.leader_epoch = leader_epoch
        replica.is_leader = True
        replica.log.update_high_watermark(replica.log.log_end_offset)
        self.store.moves.resume(partition, now_ms)

    def _on_log_moved(self, partition: TopicPartition, log: Log) -> None:
        """Go on with the log in another directory, which took the place of the old one."""
        replica = self._replicas.get(partition)
        if replica is not None:
            replica.log = log

    # What requests ask.

    def topic_name(self, topic_id: Uuid) -> str:
        """Return the name behind an id.

        Raises:
            ApiError: UNKNOWN_TOPIC_ID.
        """
        name = self._topic_names.get(topic_id)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, str(topic_id))
        return name

    def find(self, partition: TopicPartition) -> Replica | None:
        """Return the replica of a partition if this node has one."""
        return self._replicas.get(partition)

    def leader(
        self, partition: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> Replica:
        """Return the replica that may serve reads and writes of a partition.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, or,
                if the client says which epoch it knows, FENCED_LEADER_EPOCH and
                UNKNOWN_LEADER_EPOCH.
        """
        replica = self._replicas.get(partition)
        if replica is None:
            if self.store.get(partition) is None:  # refuses by itself if the disk is to blame
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition))
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(partition))
        if not replica.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(partition))
        if current_leader_epoch not in (NO_LEADER_EPOCH, replica.leader_epoch):
            self._refuse_epoch(replica, current_leader_epoch)
        return replica

    def _refuse_epoch(self, replica: Replica, claimed: int) -> None:
        known = f"{replica.partition}: epoch {claimed}, the leader's is {replica.leader_epoch}"
        if claimed < replica.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, known)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, known)

    def has_transaction(
        self, partition: TopicPartition, producer_id: int, producer_epoch: int
    ) -> bool:
        """Whether a transaction of this producer is open in a partition of ours.

        Raises:
            ApiError: As ``leader``.
        """
        producers = self.leader(partition).log.producer_states.active_producers
        state = producers.get(producer_id)
        return (
            state is not None
            and state.current_txn_first_offset is not None
            and state.producer_epoch == producer_epoch
        )

    def append(
        self,
        replica: Replica,
        records: WritableBuffer,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append as the leader and wake whoever waits for records here."""
        log, traffic = replica.log, replica.traffic
        traffic.total_produce_requests += 1
        try:
            with self.store.guard(replica.partition):
                result = log.append_as_leader(
                    records,
                    leader_epoch=replica.leader_epoch,
                    now_ms=now_ms,
                    origin=origin,
                    transaction_version=transaction_version,
                )
        except ApiError as error:
            traffic.on_append_refused(error.code, len(records))
            raise
        traffic.messages_in += result.last_offset - result.base_offset + 1
        traffic.bytes_in += len(records)
        log.update_high_watermark(log.log_end_offset)
        self._delayed.notify(replica.partition)
        return result

    def read(
        self, replica: Replica, offset: int, bytes_max: int, isolation: Isolation, *, first: bool
    ) -> ReadResult:
        """Read as the leader; only the ``first`` partition of a fetch may overrun its limit."""
        replica.traffic.total_fetch_requests += 1
        try:
            with self.store.guard(replica.partition):
                return replica.log.read(
                    offset, bytes_max=bytes_max, isolation=isolation, at_least_one_batch=first
                )
        except Exception as error:
            replica.traffic.on_read_failed(error)
            raise

    def on_fetched(self, response: Any) -> None:
        """Count what a FetchResponse takes out."""
        self.traffic.on_fetched(response, self._topic_names.get)

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._replicas)
