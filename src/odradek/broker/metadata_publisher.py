"""What a committed change of the metadata means here: logs, leaders, coordinators, configs.

Updates take effect one after the other, in the order of the metadata log. New logs are made
durable before anybody may use them, and the disk takes its time for that: threads wait for it while
the loop serves others, some logs at a time, because making their files takes the loop a moment.
What was committed later waits its turn, as do the replies to requests (``when_published``), and
``image`` is what has taken effect: whoever sees a topic can use it.

Where nothing is ever waited for (memory, or a disk without syncs) all of it happens at once.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.broker.dynamic_config import is_for_broker
from odradek.core.errors import ApiError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.topics import TopicImage
from odradek.storage.log_creation import LogCreation

if TYPE_CHECKING:
    from odradek.broker.node import Node

LOGS_PER_TURN_MAX: Final = 16
"""New logs whose files are made before others have their turn."""

NewLog = tuple[TopicPartition, Uuid]


class MetadataPublisher:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._steps: deque[Callable[[], None]] = deque()
        self._is_running = False
        self._is_stopped = False
        self._is_waiting = False
        """For the disk: the next step is taken when it is done."""
        self._unfinished = 0
        self._published = ClusterImage()

    @property
    def image(self) -> ClusterImage:
        """The newest image all of which has taken effect."""
        return self._published if self._unfinished else self._node.metadata.image

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
        with self._node.store.creating():
            for topic in image.topics.values():
                self._lead(topic, topic.partitions)

    def stop(self) -> None:
        """Take no more steps; what is committed takes effect at the next start."""
        self._is_stopped = True

    def _run(self) -> None:
        if self._is_running or self._is_stopped:
            return  # further up: a step that leads to another must end before it
        self._is_running = True
        try:
            while self._steps and not self._is_waiting:
                self._steps.popleft()()
        finally:
            self._is_running = False

    # The steps of an update.

    def _begin(self, update: MetadataUpdate) -> None:
        node = self._node
        node_events.topics_changed(update)
        node.metrics.partition_changes.on_update(update)
        for gone in update.delta.topics_deleted:
            node.replicas.remove_topic(gone.name, gone.topic_id, node.clock.now_ms())
            if gone.name in node.coordinators:
                for number in gone.partitions:
                    node.coordinators[gone.name].on_resigned(number)
        new = self._new_logs(update)
        starts = range(0, len(new), LOGS_PER_TURN_MAX)
        creations = [partial(self._create, new[at : at + LOGS_PER_TURN_MAX]) for at in starts]
        self._steps.extendleft(reversed([*creations, partial(self._finish, update)]))

    def _new_logs(self, update: MetadataUpdate) -> list[NewLog]:
        new = []
        for topic_id, number in sorted(update.delta.partitions_changed):
            topic = update.image.topics_by_id[topic_id]
            partition = TopicPartition(topic.name, number)
            if self._node.node_id in topic.partitions[number].replicas:
                with suppress(ApiError):  # its disk is to blame, as who asks for it will hear
                    if self._node.store.get(partition) is None:
                        new.append((partition, topic_id))
        return new

    def _create(self, new: Sequence[NewLog]) -> None:
        node = self._node
        with node.store.plan_creation() as creation:
            for partition, topic_id in new:
                with suppress(ApiError):  # tried again when it is to be led, and told then
                    node.store.create(partition, topic_id, now_ms=node.clock.now_ms())
        if creation.is_waiting:
            self._is_waiting = True
            node.threads.run(creation.run, partial(self._on_created, creation))
        else:
            creation.finish()

    def _on_created(self, creation: LogCreation, error: BaseException | None) -> None:
        self._is_waiting = False
        creation.done(error)
        self._node.look_at_directories()
        self._run()

    def _finish(self, update: MetadataUpdate) -> None:
        node, delta, image = self._node, update.delta, update.image
        self._published = image
        self._unfinished -= 1
        for topic_id, number in delta.partitions_changed:
            self._lead(image.topics_by_id[topic_id], [number])
        now_ms = node.clock.now_ms()
        if any(is_for_broker(resource, node.node_id) for resource in delta.configs_changed):
            node.take_dynamic_configs(image)
            for name in image.topics:
                node.store.update_settings(name, now_ms)
        for coordinator in node.coordinators.values():
            coordinator.on_update(update)  # with the configs as they are now
        for resource in delta.configs_changed:
            if resource.type is ResourceType.TOPIC and resource.name in image.topics:
                node.store.update_settings(resource.name, now_ms)

    def _lead(self, topic: TopicImage, numbers: Iterable[int]) -> None:
        node = self._node
        node.replicas.add_topic(topic.name, topic.topic_id)
        for number in numbers:
            if node.node_id not in topic.partitions[number].replicas:
                continue
            partition = TopicPartition(topic.name, number)
            leader_epoch, now_ms = topic.partitions[number].leader_epoch, node.clock.now_ms()
            try:
                node.replicas.become_leader(partition, topic.topic_id, leader_epoch, now_ms)
            except ApiError as error:  # one bad partition must not fail its neighbours
                node_events.partition_offline(partition, error)
                continue
            if topic.name in node.coordinators:
                node.coordinators[topic.name].on_elected(number, leader_epoch)
