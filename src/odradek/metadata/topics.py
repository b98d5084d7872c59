"""Topics by name and by id, and the draft into which their records are replayed."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.metadata.draft import Draft
from odradek.metadata.partition import PartitionImage
from odradek.metadata.record_versions import VersionedRecord, versioned
from odradek.metadata.touched import TopicIdPartition, Touched
from odradek.protocol.generated.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionImage]

    def to_records(self, metadata_version: int) -> Iterator[VersionedRecord]:
        yield VersionedRecord(TopicRecord(name=self.name, topic_id=self.topic_id), 0)
        for number, partition in sorted(self.partitions.items()):
            record = partition.to_record(self.topic_id, number, metadata_version)
            yield versioned(record, metadata_version)

    def check_invariants(self) -> None:
        assert sorted(self.partitions) == list(range(len(self.partitions)))
        for partition in self.partitions.values():
            partition.check_invariants()


TopicsRecord = (
    TopicRecord | PartitionRecord | PartitionChangeRecord | RemoveTopicRecord | ClearElrRecord
)


class TopicsDraft:
    def __init__(
        self,
        by_name: Mapping[str, TopicImage],
        by_id: Mapping[Uuid, TopicImage],
        touched: Touched,
    ) -> None:
        self.by_name = Draft(by_name, set())
        self.by_id = Draft(by_id, touched.topics)
        self._touched_partitions = touched.partitions
        self._open: dict[Uuid, Draft[int, PartitionImage]] = {}

    def replay(self, record: TopicsRecord) -> TopicImage | None:
        """Apply one record; return the topic that it removed."""
        match record:
            case TopicRecord():
                self._create(record)
            case PartitionRecord():
                self._put(record.topic_id, record.partition_id, PartitionImage.from_record(record))
            case PartitionChangeRecord():
                self._change(record)
            case RemoveTopicRecord():
                return self._remove(record.topic_id)
            case ClearElrRecord():
                self._clear_elr(record.topic_name)
        return None

    def freeze(self) -> tuple[Mapping[str, TopicImage], Mapping[Uuid, TopicImage]]:
        for _ in self.close_topics():
            pass
        return self.by_name.freeze(), self.by_id.freeze()

    def close_topics(self) -> Iterator[None]:
        """Give topics their changed partitions, a step for each: most of what a freeze costs."""
        while self._open:
            topic_id, partitions = self._open.popitem()
            topic = self._topic(topic_id)
            self._keep(TopicImage(topic.name, topic_id, partitions.freeze()))
            yield

    def _create(self, record: TopicRecord) -> None:
        if self.by_name.get(record.name) is not None or self.by_id.get(record.topic_id) is not None:
            raise CorruptionError(f"metadata log: a second topic {record.name} {record.topic_id}")
        self._keep(TopicImage(record.name, record.topic_id, {}))

    def _keep(self, topic: TopicImage) -> None:
        self.by_name.put(topic.name, topic)
        self.by_id.put(topic.topic_id, topic)

    def _remove(self, topic_id: Uuid) -> TopicImage:
        topic = self._topic(topic_id)
        self.by_name.remove(topic.name)
        self.by_id.remove(topic_id)
        self._open.pop(topic_id, None)
        return topic

    def _change(self, record: PartitionChangeRecord) -> None:
        partition = self._partitions(record.topic_id).get(record.partition_id)
        if partition is None:
            where = f"{record.topic_id}-{record.partition_id}"
            raise CorruptionError(f"metadata log: change of unknown partition {where}")
        self._put(record.topic_id, record.partition_id, partition.changed_by(record))

    def _put(self, topic_id: Uuid, number: int, partition: PartitionImage) -> None:
        self._partitions(topic_id).put(number, partition)
        self._touched_partitions.add(TopicIdPartition(topic_id, number))

    def _clear_elr(self, topic_name: str) -> None:
        """Forget eligible leaders of one topic, or with an empty name of all topics."""
        topic = self.by_name.get(topic_name)
        if topic_name and topic is None:
            raise CorruptionError(f"metadata log: ELR of unknown topic {topic_name}")
        topics = [each for _, each in self.by_name.items()] if topic is None else [topic]
        cleared = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
        for topic in topics:
            for number, partition in self._partitions(topic.topic_id).items():
                if partition.elr or partition.last_known_elr:
                    self._put(topic.topic_id, number, partition.changed_by(cleared))

    def _partitions(self, topic_id: Uuid) -> Draft[int, PartitionImage]:
        draft = self._open.get(topic_id)
        if draft is None:
            draft = self._open[topic_id] = Draft(self._topic(topic_id).partitions, set())
        return draft

    def _topic(self, topic_id: Uuid) -> TopicImage:
        topic = self.by_id.get(topic_id)
        if topic is None:
            raise CorruptionError(f"metadata log: record of unknown topic {topic_id}")
        return topic
