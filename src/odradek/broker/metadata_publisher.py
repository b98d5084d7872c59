"""What a committed change of the metadata means here: logs, leaders, coordinators, configs.

Updates take effect one after the other, in the order of the metadata log. New logs are made
durable before anybody may use them, and the disk takes its time for that: threads wait for it while
the loop serves others, some logs at a time, because making their files takes the loop a moment.
What was committed later waits its turn, as do the replies to requests (``when_published``), and
``BrokerServer.image`` is what has taken effect: whoever sees a topic can use it.

Where nothing is ever waited for (memory, or a disk without syncs) a small update takes effect at
once. An update of thousands of partitions takes effect in slices: its partitions are led as they
come, and that image changes when all are.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from odradek.broker import node_events
from odradek.broker.partition_watch import PartitionWatch
from odradek.broker.replica_changes import ReplicaChanges, Role
from odradek.core.ids import TopicPartition
from odradek.core.slices import SLICE_US_MAX, Steps
from odradek.metadata.config_resource import ResourceType
from odradek.metadata.dynamic_config import is_for_broker
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.touched import TopicIdPartition
from odradek.storage.log_creation import LogCreation

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

LOGS_PER_TURN_MAX: Final = 16
"""New logs whose files are made before others have their turn."""


class MetadataPublisher:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._steps: deque[Callable[[], Steps[None] | None]] = deque()
        self._is_running = False
        self._is_scheduled = False
        self._is_stopped = False
        self._is_waiting = False
        """For the disk, or for a step that takes slices: the next one is taken when it is done."""
        self.unfinished = 0
        """Updates that have not taken effect yet, or not all of them."""
        self.published = ClusterImage()
        """The newest image that has taken effect; while nothing is unfinished there may be a newer
        one, which differs in nothing that has effects."""
        self._changes = ReplicaChanges(broker)
        self._watch = PartitionWatch(broker)

    def publish(self, update: MetadataUpdate) -> None:
        """Let an update take effect, now or after those before it."""
        self.unfinished += 1
        self._steps.append(partial(self._begin, update))
        self._run()

    def when_published(self, then: Callable[[], None]) -> None:
        """Call ``then`` when all updates so far have taken effect: now, if they have."""
        self._steps.append(then)
        self._run()

    def publish_all(self, image: ClusterImage) -> None:
        """Take on all that an image has: for a start, when no client waits for the image itself."""
        self.published = image
        self._take_on(lambda: _all_partitions(image))

    def take_missing(self) -> None:
        """Take on what could not be before: a directory that was full has space now."""
        self._take_on(lambda: self._changes.find_missing(self.published))

    def _take_on(self, keys: Callable[[], Iterator[TopicIdPartition]]) -> None:
        self.unfinished += 1
        self._steps.append(lambda: self._begin_taking_on(keys()))
        self._run()

    def report_directory(self, at: TopicPartition) -> None:
        """Have the controller know where the log of a partition lies now: it has moved."""
        topic = self.published.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        if topic is not None and partition is not None:
            self._changes.report_directory(Role(at, topic.topic_id, partition, is_new=False))

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
        if slices is None:
            return
        self._is_waiting = True
        try:
            self._broker.slices.run(slices, self._on_step_taken, self._on_failed)
        except Exception as error:  # in the first slice
            self._on_failed(error)

    def _on_step_taken(self, _outcome: None) -> None:
        self._is_waiting = False
        self._run()

    def _on_failed(self, error: Exception) -> None:
        """Give up: a part of an update is missing, and all that comes later rests on it."""
        self.stop()
        self._broker.fail("a change of the metadata could not take effect", error)

    def _run_later(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_on)

    def _run_on(self) -> None:
        self._is_scheduled = False
        self._run()

    # The steps of an update.

    def _begin(self, update: MetadataUpdate) -> Steps[None]:
        changes, delta, image = self._changes, update.delta, update.image
        yield from node_events.topics_changed(update)
        yield from self._broker.metrics.partition_changes.count_in_steps(update)
        yield from changes.stop_deleted(delta)
        keys = yield from delta.partitions_in_steps()
        yield from changes.give_up(image, keys)
        roles = yield from changes.find_roles(image, keys, self.published)
        yield from self._create_then(roles, partial(self._finish, update, keys, roles))

    def _begin_taking_on(self, keys: Iterator[TopicIdPartition]) -> Steps[None]:
        roles = yield from self._changes.find_roles(self.published, keys, None)
        yield from self._create_then(roles, partial(self._finish_taking_on, roles))

    def _create_then(self, roles: Sequence[Role], then: Callable[[], Steps[None]]) -> Steps[None]:
        """Have logs made that are missing, some at a time, and go on with ``then``."""
        new = yield from self._changes.without_log(roles)
        starts = range(0, len(new), LOGS_PER_TURN_MAX)
        creations = [partial(self._create, new[at : at + LOGS_PER_TURN_MAX]) for at in starts]
        self._steps.extendleft(reversed([*creations, then]))

    def _create(self, roles: Sequence[Role]) -> None:
        creation = self._changes.create_logs(roles)
        if creation.is_waiting:
            self._is_waiting = True
            self._broker.threads.run(creation.run, partial(self._on_created, creation))
        else:
            creation.finish()

    def _on_created(self, creation: LogCreation, error: BaseException | None) -> None:
        self._is_waiting = False
        creation.done(error)
        self._broker.look_at_directories()
        self._run()

    def _finish_taking_on(self, roles: Sequence[Role]) -> Steps[None]:
        image = self.published
        yield from self._changes.add_topics(image, image.topics_by_id)
        yield from self._take(image, roles)
        self.unfinished -= 1

    def _finish(
        self, update: MetadataUpdate, keys: Sequence[TopicIdPartition], roles: Sequence[Role]
    ) -> Steps[None]:
        broker, delta, image = self._broker, update.delta, update.image
        touched = dict.fromkeys(topic_id for topic_id, _ in keys)
        yield from self._changes.add_topics(image, touched)
        before = self.published
        yield from self._take(image, roles)
        self.unfinished -= 1
        yield from self._watch.on_update(before, update, roles)
        changes_broker = any(is_for_broker(each, broker.node_id) for each in delta.configs_changed)
        if changes_broker:
            broker.take_dynamic_configs(image)
        elif delta.features_changed:
            broker.cordon()  # metadata.version may know of it now
        broker.throttles.on_topics(image, delta.configs_changed)
        for coordinator in broker.coordinators.values():
            coordinator.on_update(update)  # with the configs as they are now
        yield from self._update_settings(update, image.topics if changes_broker else None)

    def _take(self, image: ClusterImage, roles: Sequence[Role]) -> Steps[None]:
        """Take on roles; those of coordinators last, whose shards look at the new image."""
        changes = self._changes
        yield from changes.take(roles, lambda role: not changes.is_of_coordinator(role))
        self.published = image
        yield from changes.take(roles, changes.is_of_coordinator)

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


def _all_partitions(image: ClusterImage) -> Iterator[TopicIdPartition]:
    for topic in image.topics.values():
        for number in topic.partitions:
            yield TopicIdPartition(topic.topic_id, number)
