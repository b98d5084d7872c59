"""Which partitions a broker has and leads: so that a heartbeat does not look at all partitions.

Derived from the image, and kept up with it. Dictionaries instead of sets: their order is the same
in every process, and with it the order of the records that plans make.
"""

from collections.abc import Generator

from odradek.metadata import NO_LEADER, ClusterImage, MetadataDelta, PartitionImage
from odradek.metadata.touched import TopicIdPartition

Keys = dict[TopicIdPartition, None]


class PartitionIndex:
    def __init__(self) -> None:
        self._by_replica: dict[int, Keys] = {}
        self._by_leader: dict[int, Keys] = {}
        self._not_preferred: Keys = {}
        self._reassigning: Keys = {}

    def with_replica(self, broker_id: int) -> list[TopicIdPartition]:
        """Return the partitions that have a replica on a broker, in its ISR or not."""
        return list(self._by_replica.get(broker_id, ()))

    def leads(self, broker_id: int) -> bool:
        return bool(self._by_leader.get(broker_id))

    def without_leader(self) -> list[TopicIdPartition]:
        return list(self._by_leader.get(NO_LEADER, ()))

    def not_led_by_preferred(self) -> list[TopicIdPartition]:
        """Return the partitions whose leader is not their first replica; leaderless ones too."""
        return list(self._not_preferred)

    def reassigning(self) -> list[TopicIdPartition]:
        """Return the partitions whose replicas are on the move."""
        return list(self._reassigning)

    def build_in_steps(self, image: ClusterImage) -> Generator[None, None, None]:
        """Take on all of an image, a topic in each step."""
        for topic_id, topic in image.topics_by_id.items():
            for number, partition in topic.partitions.items():
                self._add(TopicIdPartition(topic_id, number), partition)
            yield

    def follow(
        self, old: ClusterImage, new: ClusterImage, delta: MetadataDelta
    ) -> Generator[None, None, None]:
        """Take on what changed from one image to the next, a partition in each step."""
        for topic in delta.topics_deleted:
            for number, partition in topic.partitions.items():
                self._remove(TopicIdPartition(topic.topic_id, number), partition)
            yield
        for key in (yield from delta.partitions_in_steps()):
            before = old.topics_by_id.get(key.topic_id)
            was = None if before is None else before.partitions.get(key.partition)
            if was is not None:
                self._remove(key, was)
            self._add(key, new.topics_by_id[key.topic_id].partitions[key.partition])
            yield

    def check_invariants(self, image: ClusterImage) -> None:
        fresh = PartitionIndex()
        for _ in fresh.build_in_steps(image):
            pass
        assert _filled(fresh._by_replica) == _filled(self._by_replica)
        assert _filled(fresh._by_leader) == _filled(self._by_leader)
        assert fresh._not_preferred == self._not_preferred
        assert fresh._reassigning == self._reassigning

    def _add(self, key: TopicIdPartition, partition: PartitionImage) -> None:
        for broker_id in partition.replicas:
            self._by_replica.setdefault(broker_id, {})[key] = None
        self._by_leader.setdefault(partition.leader, {})[key] = None
        if partition.leader != partition.preferred_leader:
            self._not_preferred[key] = None
        if partition.adding or partition.removing:
            self._reassigning[key] = None

    def _remove(self, key: TopicIdPartition, partition: PartitionImage) -> None:
        for broker_id in partition.replicas:
            del self._by_replica[broker_id][key]
        del self._by_leader[partition.leader][key]
        self._not_preferred.pop(key, None)
        self._reassigning.pop(key, None)


def _filled(by_broker: dict[int, Keys]) -> dict[int, set[TopicIdPartition]]:
    return {broker_id: set(keys) for broker_id, keys in by_broker.items() if keys}
