"""What a change of the metadata means for the replicas of this node, in Kafka's order.

1. Replicas of deleted topics, and those that this node has no longer, are stopped and deleted. That
   comes first: a topic of the same name may be created in the same change.
2. Coordinators give up what others lead now, before anything waits for a disk.
3. Logs are made that are missing.
4. What is led here is taken on: a partition without a leader serves no client. Its fetcher is
   stopped before anything is appended.
5. What is followed here is taken on, also if there is no leader now: the log must be there.
6. Coordinators take on what this node leads, when the new image is the one that requests see.

A replica is one of a topic *id*. A log of another topic of the same name, which was deleted while
this node was down for example, is set aside. A replica that this node was to have before may have
its log in a directory that is offline: it gets no new one, which would be empty, until the
directory is back.

Methods are steps for ``core.slices``: thousands of partitions change at once when a broker fails.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from odradek.broker import node_events
from odradek.broker.lifecycle_events import BrokerState
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import Steps
from odradek.metadata import ClusterImage, MetadataDelta
from odradek.metadata.partition import NO_LEADER, PartitionImage
from odradek.metadata.touched import TopicIdPartition
from odradek.replication.leadership import Registration

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.storage.log_creation import LogCreation


class Role(NamedTuple):
    """What this node is to be for a partition of which it has a replica."""

    at: TopicPartition
    topic_id: Uuid
    partition: PartitionImage
    is_new: bool
    """Whether the replica is this node's by this very change: else there may be a log of it."""


class ReplicaChanges:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    # Stopping.

    def stop_deleted(self, delta: MetadataDelta) -> Steps[None]:
        """Forget topics that are gone, with their logs."""
        node_id = self._broker.node_id
        for gone in delta.topics_deleted:
            yield
            self._broker.replicas.remove_topic(gone.name, gone.topic_id)
            for number, partition in gone.partitions.items():
                if node_id in partition.replicas:
                    self._remove(TopicPartition(gone.name, number))
                    yield

    def give_up(self, image: ClusterImage, keys: Iterable[TopicIdPartition]) -> Steps[None]:
        """Stop leading what others lead now; delete what this node has no longer."""
        broker = self._broker
        for topic_id, number in keys:
            topic = image.topics_by_id[topic_id]
            at, now = TopicPartition(topic.name, number), topic.partitions[number]
            found = broker.replicas.find(at)
            if broker.node_id not in now.replicas:
                if found is not None or self._has_log(at, topic_id):
                    self._remove(at)
                    yield
            elif found is not None and now.leader != broker.node_id:
                self._resign_coordinator(at)
                found.resign(now.leader_epoch)
                yield

    def _has_log(self, at: TopicPartition, topic_id: Uuid) -> bool:
        """Whether there is a log of a replica that could not be taken on: its disk was full."""
        store = self._broker.store
        with suppress(ApiError):
            return store.get(at) is not None and store.topic_id(at) == topic_id
        return False

    def _resign_coordinator(self, at: TopicPartition) -> None:
        coordinator = self._broker.coordinators.get(at.topic)
        if coordinator is not None:
            coordinator.on_resigned(at.partition)

    def _remove(self, at: TopicPartition, *, is_stray: bool = False) -> None:
        """Stop a replica and take its log out of use, if there is one."""
        broker = self._broker
        broker.fetchers.remove(at)
        self._resign_coordinator(at)
        broker.replicas.remove(at)
        # It was not taken on if its directory was full or offline, but the log may be there.
        with suppress(ApiError):  # or in a directory that is still offline: a stray when it is back
            broker.store.delete(at, is_stray=is_stray)

    # Which.

    def find_roles(
        self, image: ClusterImage, keys: Iterable[TopicIdPartition], before: ClusterImage | None
    ) -> Steps[list[Role]]:
        """Return the roles of this node among the partitions of ``keys``, what it leads first.

        ``before`` is the image that was in effect; None if this is the first, at a start.
        """
        node_id = self._broker.node_id
        led: list[Role] = []
        followed: list[Role] = []
        for topic_id, number in keys:
            yield
            topic = image.topics_by_id[topic_id]
            partition = topic.partitions[number]
            if node_id not in partition.replicas:
                continue
            is_new = before is not None and not _has(before, topic_id, number, node_id)
            role = Role(TopicPartition(topic.name, number), topic_id, partition, is_new)
            (led if partition.leader == node_id else followed).append(role)
        return led + followed

    def find_missing(self, image: ClusterImage) -> Iterator[TopicIdPartition]:
        """Yield the partitions that this node should have and could not take on."""
        broker = self._broker
        for topic in image.topics.values():
            for number, partition in topic.partitions.items():
                if broker.node_id in partition.replicas:
                    found = broker.replicas.find(TopicPartition(topic.name, number))
                    if found is None:
                        yield TopicIdPartition(topic.topic_id, number)

    # Logs.

    def without_log(self, roles: Iterable[Role]) -> Steps[list[Role]]:
        """Return those that need a new log; logs of other topics of these names are set aside."""
        broker = self._broker
        missing = []
        for role in roles:
            yield
            found = broker.replicas.find(role.at)
            if found is not None and found.topic_id == role.topic_id:
                continue
            with suppress(ApiError):  # its disk is to blame, as clients that ask for it will hear
                if broker.store.get(role.at) is not None:
                    stored_id = broker.store.topic_id(role.at)
                    if stored_id is None or stored_id == role.topic_id:
                        continue
                    node_events.log_of_another_topic(role.at, stored_id, role.topic_id)
                    self._remove(role.at, is_stray=True)
                missing.append(role)
        return missing

    def create_logs(self, roles: Sequence[Role]) -> "LogCreation":
        """Make logs; nobody may use them before the creation that is returned is done."""
        store, now_ms = self._broker.store, self._broker.clock.now_ms()
        known = {each.directory_id for each in store.directories}
        with store.plan_creation() as creation:
            for role in roles:
                directory = role.partition.directory_of(self._broker.node_id)
                with suppress(ApiError):  # tried again when it is to be led, and reported then
                    store.create(
                        role.at,
                        role.topic_id,
                        now_ms=now_ms,
                        directory_id=directory if directory in known else None,
                        is_new=role.is_new,
                    )
        return creation

    # Taking on.

    def add_topics(self, image: ClusterImage, topic_ids: Iterable[Uuid]) -> Steps[None]:
        """Know topics, and how many partitions they have; wherever they are led."""
        for topic_id in topic_ids:
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                self._broker.replicas.add_topic(topic.name, topic_id, len(topic.partitions))
                yield

    def take(self, roles: Iterable[Role], wanted: Callable[[Role], bool]) -> Steps[None]:
        """Lead or follow the partitions that are wanted."""
        for role in roles:
            if wanted(role):
                yield
                self._take(role)

    def is_of_coordinator(self, role: Role) -> bool:
        return role.at.topic in self._broker.coordinators

    def _take(self, role: Role) -> None:
        broker = self._broker
        try:
            if role.partition.leader == broker.node_id:
                self._lead(role)
            else:
                self._follow(role)
        except ApiError as error:  # one bad partition must not fail its neighbours
            broker.fetchers.remove(role.at)
            node_events.partition_offline(role.at, error)
            return
        self.report_directory(role)
        if role.partition.leader == broker.node_id and self.is_of_coordinator(role):
            coordinator = broker.coordinators[role.at.topic]
            coordinator.on_elected(role.at.partition, role.partition.leader_epoch)

    def report_directory(self, role: Role) -> None:
        """Have the controller know where the log is, if the metadata has it elsewhere."""
        directory_id = self._broker.store.directory_of(role.at).directory_id
        known = role.partition.directory_of(self._broker.node_id)
        target = self._broker.store.moves.target_of(role.at)
        if target is not None and target.directory_id == known:
            self._broker.on_directory_known(role.at)  # that is where it is going to be
            return
        if directory_id is not None and directory_id != known:
            at = TopicIdPartition(role.topic_id, role.at.partition)
            self._broker.directory_assignments.assign(at, directory_id)

    def _lead(self, role: Role) -> None:
        broker, partition = self._broker, role.partition
        broker.fetchers.remove(role.at)  # before anything is appended here
        if self.is_of_coordinator(role):  # nor is anything answered from another epoch's state
            broker.coordinators[role.at.topic].on_epoch(role.at.partition, partition.leader_epoch)
        registration = Registration(
            partition.leader_epoch,
            partition.partition_epoch,
            partition.replicas,
            partition.isr,
            partition.leader_recovery_state,
        )
        broker.replicas.lead(role.at, role.topic_id, registration, broker.clock.now_ms())

    def _follow(self, role: Role) -> None:
        broker, partition = self._broker, role.partition
        found = broker.replicas.follow(
            role.at,
            role.topic_id,
            partition.leader,
            partition.leader_epoch,
            broker.clock.now_ms(),
        )
        is_leaving = broker.lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        is_out = partition.leader == NO_LEADER or broker.node_id not in partition.isr
        if is_leaving and is_out:
            # It would only join the ISR that it has just left (KAFKA-13858).
            broker.fetchers.remove(role.at)
        else:
            broker.fetchers.follow(found)


def _has(image: ClusterImage, topic_id: Uuid, number: int, node_id: int) -> bool:
    topic = image.topics_by_id.get(topic_id)
    partition = None if topic is None else topic.partitions.get(number)
    return partition is not None and node_id in partition.replicas
