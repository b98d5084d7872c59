"""The partitions this node holds, as requests see them. Hot path.

Every check that stands between a client and a log is made here, once, with Kafka's codes: does
the partition exist, is this node its leader, does the client know the right leader epoch, is the
disk under it well. Handlers just ask for the leader and use what they get.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from odradek.broker.metrics.traffic import Traffic
from odradek.broker.partition import Partition, ReplicaPorts
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import Steps
from odradek.replication.leadership import LeaderSettings, Registration
from odradek.storage.log import Log
from odradek.storage.log_store import LogStore

NO_LEADER_EPOCH: Final = -1


class Replicas:
    def __init__(
        self,
        store: LogStore,
        ports: ReplicaPorts,
        leader_settings: Callable[[str], LeaderSettings],
    ) -> None:
        """``leader_settings`` gives the configs that rule the partitions of a topic now."""
        self.store = store
        self._ports = ports
        self._leader_settings = leader_settings
        self._partitions: dict[TopicPartition, Partition] = {}
        self._partition_counts: dict[str, int] = {}
        self._topic_names: dict[Uuid, str] = {}
        self._holds: dict[object, Callable[[TopicPartition], bool]] = {}
        self.traffic = Traffic()

    # What the image says.

    def add_topic(self, name: str, topic_id: Uuid, partition_count: int) -> None:
        """Know a topic, or that it has more partitions now; wherever they are led."""
        self._partition_counts[name] = partition_count
        self._topic_names[topic_id] = name

    def remove_topic(self, name: str, topic_id: Uuid) -> None:
        """Forget a topic; its partitions are removed one by one."""
        self._partition_counts.pop(name, None)
        self._topic_names.pop(topic_id, None)
        self.traffic.remove(name)

    def remove(self, key: TopicPartition) -> None:
        """Forget a partition that is gone, or not this node's any more, with its log."""
        partition = self._partitions.pop(key, None)
        if partition is not None:
            with suppress(ApiError):  # in a directory that is offline: a stray when it is back
                self.store.delete(key)
            is_known = key.partition < self._partition_counts.get(key.topic, 0)
            partition.resign(
                partition.leader_epoch,
                ErrorCode.NOT_LEADER_OR_FOLLOWER
                if is_known
                else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
            partition.on_changed()

    def lead(
        self, key: TopicPartition, topic_id: Uuid, registration: Registration, now_ms: int
    ) -> Partition:
        """Lead a partition as the metadata says, with a log of its own if it has none.

        Raises:
            ApiError: KAFKA_STORAGE_ERROR: there is no log, and none can be made.
        """
        partition = self._take_on(key, topic_id, now_ms)
        partition.lead(registration)
        return partition

    def follow(
        self, key: TopicPartition, topic_id: Uuid, leader_id: int, leader_epoch: int, now_ms: int
    ) -> Partition:
        """Have a replica of a partition that another node leads, or none (-1).

        Raises:
            ApiError: As ``lead``.
        """
        partition = self._take_on(key, topic_id, now_ms)
        partition.follow(leader_id, leader_epoch)
        return partition

    def _take_on(self, key: TopicPartition, topic_id: Uuid, now_ms: int) -> Partition:
        partition = self._partitions.get(key)
        if partition is None:
            log = self.store.get(key)
            if log is None:
                # Not new: the publisher makes new logs. One that should be here may be in a
                # directory that is offline.
                log = self.store.create(key, topic_id, now_ms=now_ms, is_new=False)
            traffic = self.traffic.of(key.topic)
            partition = Partition(
                key,
                topic_id,
                log,
                traffic,
                self.store,
                self._ports,
                self._leader_settings(key.topic),
            )
            partition.are_commits_held = any(holds(key) for holds in self._holds.values())
            self._partitions[key] = partition
        else:
            self._refuse_if_offline(key)
        self.store.moves.resume(key, now_ms)
        return partition

    def update_settings(self, topic: str, numbers: Iterable[int]) -> None:
        """Look again at what rules the partitions of a topic."""
        settings = self._leader_settings(topic)
        for number in numbers:
            partition = self._partitions.get(TopicPartition(topic, number))
            if partition is not None:
                partition.on_settings_changed(settings)

    def shrink_isrs(self) -> Steps[None]:
        """Propose to take followers that lag out of the ISRs, a few partitions at a time."""
        for partition in list(self._partitions.values()):
            if partition.has_followers:
                partition.shrink_isr()
                yield

    def refuse_waiters(self) -> None:
        """Answer all that wait for commits; for a node that stops."""
        for partition in self._partitions.values():
            partition.refuse_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def on_directories_failed(self) -> None:
        """Have all who read look again: some logs cannot be read any more."""
        for partition in self._partitions.values():
            partition.on_changed()

    def on_log_moved(self, key: TopicPartition, log: Log) -> None:
        """Go on with the log of a partition in another directory."""
        partition = self._partitions.get(key)
        if partition is not None:
            partition.on_log_moved(log)

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

    def find(self, key: TopicPartition) -> Partition | None:
        """Return a partition if this node has a replica of it."""
        return self._partitions.get(key)

    def leader(self, key: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH) -> Partition:
        """Return a partition that this node leads, and whose reads and writes it may serve.

        Raises:
            ApiError: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, or,
                if the client says which epoch it knows, FENCED_LEADER_EPOCH and
                UNKNOWN_LEADER_EPOCH.
        """
        partition = self._partitions.get(key)
        if (
            partition is not None
            and partition.leadership is not None
            and current_leader_epoch in (NO_LEADER_EPOCH, partition.leader_epoch)
        ):
            return partition
        partition = self.replica(key, current_leader_epoch)
        if not partition.is_leader:
            self._refuse_if_offline(key)
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(key))
        return partition

    def replica(
        self, key: TopicPartition, current_leader_epoch: int = NO_LEADER_EPOCH
    ) -> Partition:
        """Return a partition that this node has, whether it leads or follows (KIP-392).

        Raises:
            ApiError: As ``leader``.
        """
        partition = self._partitions.get(key)
        if partition is None:
            is_stored = self.store.get(key) is not None  # refuses if the disk is to blame
            if is_stored or 0 <= key.partition < self._partition_counts.get(key.topic, 0):
                raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(key))
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(key))
        if current_leader_epoch not in (NO_LEADER_EPOCH, partition.leader_epoch):
            self._refuse_epoch(partition, current_leader_epoch)
        return partition

    def _refuse_if_offline(self, key: TopicPartition) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log of a partition cannot be used.

        It comes before any other refusal, as in Kafka: the controller takes leadership from a
        failed directory, and a client gets the same answer before and after the broker learns it.
        """
        self.store.get(key)

    def _refuse_epoch(self, partition: Partition, claimed: int) -> None:
        self._refuse_if_offline(partition.key)
        known = f"{partition.key}: epoch {claimed}, the leader's is {partition.leader_epoch}"
        if claimed < partition.leader_epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH, known)
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, known)

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._partitions)

    # What tests want.

    def hold_commits(self, holds: Callable[[TopicPartition], bool]) -> Callable[[], None]:
        """Let the high watermark of partitions stand still until the returned function is called.

        Partitions that come later are held too if ``holds`` says so.
        """
        token = object()
        self._holds[token] = holds
        self._update_holds()

        def release() -> None:
            if self._holds.pop(token, None) is not None:
                self._update_holds()

        return release

    def _update_holds(self) -> None:
        for key, partition in list(self._partitions.items()):
            was_held = partition.are_commits_held
            partition.are_commits_held = any(holds(key) for holds in self._holds.values())
            if was_held and not partition.are_commits_held and partition.is_leader:
                partition.commit()
