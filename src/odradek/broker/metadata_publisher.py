"""What a committed change of the metadata means here: logs, leaders, coordinators, configs.

Updates take effect one after the other, in the order of the metadata log. New logs are made
durable before anybody may use them, and the disk takes its time for that: threads wait for it while
the loop serves others, some logs at a time, because making their files takes the loop a moment.
What was committed later waits its turn, as do the replies to requests (``when_published``), and
``image`` is what has taken effect: whoever sees a topic can use it.

Where nothing is ever waited for (memory, or a disk without syncs) a small update takes effect at
once. An update of thousands of partitions takes effect in slices: its partitions are led as they
come, and ``image`` changes when all are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.broker.partition import Partition
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.core.slices import SLICE_US_MAX, Steps
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.dynamic_config import is_for_broker
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.partition import PartitionImage
from odradek.metadata.topics import TopicImage
from odradek.replication.leadership import Registration
from odradek.storage.log_creation import LogCreation

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

LOGS_PER_TURN_MAX: Final = 16
"""New logs whose files are made before others have their turn."""

NewLog = tuple[TopicPartition, Uuid]


class MetadataPublisher:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._steps: deque[Callable[[], Steps[None] | None]] = deque()
        self._is_running = False
        self._is_scheduled = False
        self._is_stopped = False
        self._is_waiting = False
        """For the disk, or for a step that takes slices: the next one is taken when it is done."""
        self._unfinished = 0
        self._published = ClusterImage()

    @property
    def image(self) -> ClusterImage:
        """The newest image all of which has taken effect."""
        return self._published if self._unfinished else self._broker.metadata.image

    def publish(self, update: MetadataUpdate) -> None:
        """Let an update take effect, now or after those before it."""
        self._unfinished += 1
        self._steps.append(partial(self._begin, update))
        self._run()

    def when_published(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all updates so far have taken effect: now, if they have."""
        self._steps.append(then)
        self._run()

    def publish_all(self, image: ClusterImage) -> None:
        """Take on all that an image has, here and now: for the start, when nobody waits."""
        self._published = image
        with self._broker.store.creating():
            for topic in image.topics.values():
                self._take_roles(topic, topic.partitions)

    def lead_missing(self) -> None:
        """Take on what could not be before: a directory that was full has space now."""
        replicas = self._broker.replicas
        with self._broker.store.creating():
            for topic in self.image.topics.values():
                numbers = [
                    number
                    for number in topic.partitions
                    if replicas.find(TopicPartition(topic.name, number)) is None
                ]
                if numbers:
                    self._take_roles(topic, numbers)

    def stop(self) -> None:
        """Take no more steps; what is committed takes effect at the next start."""
        self._is_stopped = True

    def _run(self) -> None:
        if self._is_running or self._is_stopped:
            return  # further up: a step that leads to another must end before it
        self._is_running = True
        now_us = self._broker.clock.monotonic_us
        end_us = now_us() + SLICE_US_MAX
        try:
            while self._steps and not self._is_waiting:
                if now_us() >= end_us:
                    self._run_later()
                    return
                self._take_step(self._steps.popleft())
        finally:
            self._is_running = False

    def _take_step(self, step: Callable[[], Steps[None] | None]) -> None:
        slices = step()
        if slices is not None:
            self._is_waiting = True
            self._broker.slices.run(slices, self._on_step_taken)

    def _on_step_taken(self, _outcome: None) -> None:
        self._is_waiting = False
        self._run()

    def _run_later(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_on)

    def _run_on(self) -> None:
        self._is_scheduled = False
        self._run()

    # The steps of an update.

    def _begin(self, update: MetadataUpdate) -> Steps[None]:
        broker = self._broker
        yield from node_events.topics_changed(update)
        broker.metrics.partition_changes.on_update(update)
        for gone in update.delta.topics_deleted:
            yield
            broker.replicas.remove_topic(gone.name, gone.topic_id)
            for number in gone.partitions:
                self._remove(TopicPartition(gone.name, number))
                yield
        yield from self._give_up(update)
        new = yield from self._new_logs(update)
        starts = range(0, len(new), LOGS_PER_TURN_MAX)
        creations = [partial(self._create, new[at : at + LOGS_PER_TURN_MAX]) for at in starts]
        self._steps.extendleft(reversed([*creations, partial(self._finish, update)]))

    def _give_up(self, update: MetadataUpdate) -> Steps[None]:
        """Stop leading what others lead now, before anything waits for the disk."""
        broker = self._broker
        for topic_id, number in sorted(update.delta.partitions_changed):
            topic = update.image.topics_by_id[topic_id]
            at, now = TopicPartition(topic.name, number), topic.partitions[number]
            found = broker.replicas.find(at)
            if found is None or now.leader == broker.node_id:
                continue
            if broker.node_id in now.replicas:
                self._resign(at, now.leader_epoch, found)
            else:
                self._remove(at)
            yield

    def _resign(self, at: TopicPartition, leader_epoch: int, partition: Partition) -> None:
        if at.topic in self._broker.coordinators:
            self._broker.coordinators[at.topic].on_resigned(at.partition)
        partition.resign(leader_epoch)

    def _remove(self, at: TopicPartition) -> None:
        self._broker.fetchers.remove(at)
        if at.topic in self._broker.coordinators:
            self._broker.coordinators[at.topic].on_resigned(at.partition)
        self._broker.replicas.remove(at)

    def _new_logs(self, update: MetadataUpdate) -> Steps[list[NewLog]]:
        new = []
        for topic_id, number in sorted(update.delta.partitions_changed):
            yield
            topic = update.image.topics_by_id[topic_id]
            partition = TopicPartition(topic.name, number)
            if self._broker.node_id in topic.partitions[number].replicas:
                with suppress(ApiError):  # its disk is to blame, as who asks for it will hear
                    if self._broker.store.get(partition) is None:
                        new.append((partition, topic_id))
        return new

    def _create(self, new: Sequence[NewLog]) -> None:
        broker = self._broker
        with broker.store.plan_creation() as creation:
            for partition, topic_id in new:
                with suppress(ApiError):  # tried again when it is to be led, and told then
                    broker.store.create(partition, topic_id, now_ms=broker.clock.now_ms())
        if creation.is_waiting:
            self._is_waiting = True
            broker.threads.run(creation.run, partial(self._on_created, creation))
        else:
            creation.finish()

    def _on_created(self, creation: LogCreation, error: BaseException | None) -> None:
        self._is_waiting = False
        creation.done(error)
        self._broker.look_at_directories()
        self._run()

    def _finish(self, update: MetadataUpdate) -> Steps[None]:
        broker, delta, image = self._broker, update.delta, update.image
        for topic_id, number in delta.partitions_changed:
            topic = image.topics_by_id[topic_id]
            if topic.name not in broker.coordinators:
                self._take_roles(topic, [number])
                yield
        self._published = image
        self._unfinished -= 1
        for name in broker.coordinators:  # whose shards look at the new image
            if name in image.topics:
                topic = image.topics[name]
                changed = delta.partitions_changed
                numbers = [n for n in topic.partitions if (topic.topic_id, n) in changed]
                self._take_roles(topic, numbers)
        changes_broker = any(is_for_broker(each, broker.node_id) for each in delta.configs_changed)
        if changes_broker:
            broker.take_dynamic_configs(image)
        for coordinator in broker.coordinators.values():
            coordinator.on_update(update)  # with the configs as they are now
        yield from self._update_settings(update, image.topics if changes_broker else None)

    def _update_settings(self, update: MetadataUpdate, names: Iterable[str] | None) -> Steps[None]:
        """Give logs their new settings: those of all topics, or of those whose configs changed."""
        if names is None:
            changed = update.delta.configs_changed
            names = [each.name for each in changed if each.type is ResourceType.TOPIC]
        for name in names:
            topic = update.image.topics.get(name)
            if topic is not None:
                yield
                self._broker.store.update_settings(name, topic.partitions)
                self._broker.replicas.update_settings(name, topic.partitions)

    def _take_roles(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        """Lead the partitions whose leader this node is; of others have a copy, if it should."""
        broker = self._broker
        broker.replicas.add_topic(topic.name, topic.topic_id, len(topic.partitions))
        for number in numbers:
            partition = topic.partitions[number]
            if broker.node_id not in partition.replicas:
                continue
            at = TopicPartition(topic.name, number)
            is_leader = partition.leader == broker.node_id
            try:
                self._take_role(at, topic.topic_id, partition)
            except ApiError as error:  # one bad partition must not fail its neighbours
                node_events.partition_offline(at, error)
                continue
            if is_leader and topic.name in broker.coordinators:
                broker.coordinators[topic.name].on_elected(number, partition.leader_epoch)

    def _take_role(self, at: TopicPartition, topic_id: Uuid, partition: PartitionImage) -> None:
        broker, now_ms = self._broker, self._broker.clock.now_ms()
        if partition.leader == broker.node_id:
            broker.fetchers.remove(at)  # before anything is appended here
            registration = Registration(
                partition.leader_epoch,
                partition.partition_epoch,
                partition.replicas,
                partition.isr,
                partition.leader_recovery_state,
            )
            broker.replicas.lead(at, topic_id, registration, now_ms)
        else:
            leader, epoch = partition.leader, partition.leader_epoch
            broker.fetchers.follow(broker.replicas.follow(at, topic_id, leader, epoch, now_ms))
