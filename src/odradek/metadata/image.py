"""The state of the cluster as of some offset of the metadata log.

A ``ClusterImage`` never changes: a newer one shares with it every section that no record touched,
so anyone may keep the one they are working with. It is made by replaying records: into an
``ImageBuilder`` for a batch at a time, or through ``ClusterImage.apply`` where one call is enough.

Metadata transactions (KIP-868) make several batches take effect at once: between
``BeginTransactionRecord`` and ``EndTransactionRecord`` nothing may be published, and
``AbortTransactionRecord`` takes all of it back. The builder handles the records;
``odradek.metadata.loader`` holds back what must not be seen.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from odradek.core.errors import CorruptionError
from odradek.core.ids import TopicPartition, Uuid
from odradek.metadata.config_resource import ConfigResource
from odradek.metadata.configs import ConfigsDraft, config_records
from odradek.metadata.delta import NOTHING_CHANGED, MetadataDelta
from odradek.metadata.draft import Draft, K, V
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    METADATA_VERSION,
    METADATA_VERSION_MIN,
    check_known,
)
from odradek.metadata.kept_records import (
    Acls,
    ClientQuotas,
    DelegationTokens,
    KeptRecord,
    KeptRecordsDraft,
    ScramCredentials,
)
from odradek.metadata.nodes import BrokerImage, ControllerImage, NodesDraft, NodesRecord
from odradek.metadata.record_versions import VersionedRecord, versioned
from odradek.metadata.topics import TopicImage, TopicsDraft, TopicsRecord
from odradek.metadata.touched import TopicIdPartition, Touched
from odradek.protocol.generated.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    ZkMigrationStateRecord,
)
from odradek.protocol.message import Message

T = TypeVar("T")


class MetadataProvenance(NamedTuple):
    """The last record of the log that an image contains: its offset, epoch and append time."""

    last_offset: int = -1
    last_epoch: int = -1
    last_timestamp_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterImage:
    """Two images are equal when they say the same, wherever in the log they come from."""

    provenance: MetadataProvenance = field(default=MetadataProvenance(), compare=False)
    features: Mapping[str, int] = field(default_factory=dict)
    """Finalized levels; a feature at level 0 is absent."""
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    controllers: Mapping[int, ControllerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[Uuid, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: Acls = field(default_factory=dict)
    scram_credentials: ScramCredentials = field(default_factory=dict)
    client_quotas: ClientQuotas = field(default_factory=dict)
    delegation_tokens: DelegationTokens = field(default_factory=dict)

    @property
    def metadata_version(self) -> int | None:
        """The level of metadata.version; None before the bootstrap records."""
        return self.features.get(METADATA_VERSION)

    @property
    def elr_enabled(self) -> bool:
        return self.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    def is_adding(self, at: TopicPartition, broker_id: int) -> bool:
        """Whether a reassignment adds this broker's replica, which is not in sync yet."""
        topic = self.topics.get(at.topic)
        partition = None if topic is None else topic.partitions.get(at.partition)
        return partition is not None and broker_id in partition.adding

    def config_of(self, resource: ConfigResource) -> Mapping[str, str]:
        return self.configs.get(resource, {})

    def apply(
        self, records: Iterable[Message], provenance: MetadataProvenance | None = None
    ) -> "ClusterImage":
        """Return the image after ``records``. Transactions among them must be whole."""
        return self.advance(records, provenance).image

    def advance(
        self, records: Iterable[Message], provenance: MetadataProvenance | None = None
    ) -> "MetadataUpdate":
        """Like :meth:`apply`, and tell what changed."""
        builder = ImageBuilder(self)
        for record in records:
            builder.replay(record)
        assert not builder.in_transaction, "half a transaction needs a MetadataLoader"
        return builder.build(provenance)

    def changes_since(self, older: "ClusterImage") -> MetadataDelta:
        """Compare with any older image: for a broker that jumps ahead through a snapshot."""
        return finish(self.changes_since_in_steps(older))

    def changes_since_in_steps(self, older: "ClusterImage") -> Generator[None, None, MetadataDelta]:
        keys = yield from _all_keys(older, self)
        return (yield from _delta(older, self, keys))

    def to_records(self) -> Iterator[VersionedRecord]:
        """Return the records of a snapshot: replayed into an empty image they give this one."""
        level = self.metadata_version or METADATA_VERSION_MIN
        # metadata.version first: readers need it to make sense of what follows.
        for name in sorted(self.features, key=lambda name: (name != METADATA_VERSION, name)):
            record = FeatureLevelRecord(name=name, feature_level=self.features[name])
            yield VersionedRecord(record, 0)
        for _, broker in sorted(self.brokers.items()):
            yield versioned(broker.to_record(level), level)
        for _, controller in sorted(self.controllers.items()):
            yield VersionedRecord(controller.to_record(), 0)
        for _, topic in sorted(self.topics.items()):
            yield from topic.to_records(level)
        yield from config_records(self.configs)
        yield from (VersionedRecord(record, 0) for record in self.client_quotas.values())
        if self.next_producer_id:
            ids = ProducerIdsRecord(
                broker_id=-1, broker_epoch=-1, next_producer_id=self.next_producer_id
            )
            yield VersionedRecord(ids, 0)
        for section in (self.acls, self.scram_credentials, self.delegation_tokens):
            yield from (VersionedRecord(record, 0) for record in section.values())

    def check_invariants(self) -> None:
        assert len(self.topics) == len(self.topics_by_id)
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.topics_by_id[topic.topic_id] is topic
            topic.check_invariants()
        for broker_id, broker in self.brokers.items():
            assert broker.broker_id == broker_id
        assert all(self.features.values())
        assert all(self.configs.values())


class MetadataUpdate(NamedTuple):
    image: ClusterImage
    delta: MetadataDelta


class ImageBuilder:
    """Takes records one by one; :meth:`build` gives the image and what changed since the last."""

    def __init__(self, image: ClusterImage) -> None:
        self._built = image
        self._touched = Touched()
        self._has_news = False  # whether any record since the last image could have changed it
        self._next_producer_id = image.next_producer_id
        self._before_transaction: ClusterImage | None = None
        self._restore(image)

    @property
    def in_transaction(self) -> bool:
        return self._before_transaction is not None

    def committed_image(self) -> ClusterImage:
        """Return the image without what an open transaction has done so far."""
        return self._before_transaction or self._freeze(self._built.provenance)

    def replay(self, record: Message) -> None:
        """Apply one record.

        Raises:
            CorruptionError: It does not fit what came before it.
            UnsupportedLevelError: It raises a feature beyond what this software knows.
        """
        self._has_news = self._has_news or not isinstance(record, NoOpRecord)
        match record:
            case ConfigRecord():
                self._configs.replay(record)
            case FeatureLevelRecord():
                self._replay_feature(record)
            case ProducerIdsRecord():
                self._replay_producer_ids(record)
            case BeginTransactionRecord():
                self._begin()
            case EndTransactionRecord():
                self._end()
            case AbortTransactionRecord():
                self._restore(self._end())
            case NoOpRecord() | ZkMigrationStateRecord():
                pass  # the one keeps the log moving, the other is left from before Kafka 4
            case RemoveTopicRecord():
                removed = self._topics.replay(record)
                assert removed is not None
                self._configs.forget(ConfigResource.topic(removed.name))
            case _ if isinstance(record, TopicsRecord):
                self._topics.replay(record)
            case _ if isinstance(record, NodesRecord):
                self._nodes.replay(record)
            case _ if isinstance(record, KeptRecord):
                self._kept.replay(record)
            case _:
                raise CorruptionError(f"metadata log: {type(record).__name__} has no meaning here")

    def build(self, provenance: MetadataProvenance | None = None) -> MetadataUpdate:
        """Build at once what :meth:`build_in_steps` builds."""
        return finish(self.build_in_steps(provenance))

    def build_in_steps(
        self, provenance: MetadataProvenance | None = None
    ) -> Generator[None, None, MetadataUpdate]:
        """Build an image; no record may be replayed between the steps."""
        if not self._has_news:
            # Twice a second where nothing happens: the active controller writes no-op records.
            self._built = replace(self._built, provenance=provenance or self._built.provenance)
            return MetadataUpdate(self._built, NOTHING_CHANGED)
        yield from self._topics.close_topics()
        image = self._freeze(provenance or self._built.provenance)
        delta = yield from _delta(self._built, image, self._touched)
        self._built = image
        self._touched = Touched()
        self._has_news = False
        self._restore(image)
        return MetadataUpdate(image, delta)

    def _replay_feature(self, record: FeatureLevelRecord) -> None:
        # Kafka once wrote kraft.version here by mistake (KAFKA-18979); its place is the raft log.
        if record.name == KRAFT_VERSION:
            return
        check_known(record.name, record.feature_level)
        if record.feature_level:
            self._features.put(record.name, record.feature_level)
        else:
            self._features.remove(record.name)

    def _replay_producer_ids(self, record: ProducerIdsRecord) -> None:
        if record.next_producer_id <= self._next_producer_id:
            raise CorruptionError(
                f"metadata log: producer ids go back from {self._next_producer_id}"
                f" to {record.next_producer_id}"
            )
        self._next_producer_id = record.next_producer_id

    def _begin(self) -> None:
        if self._before_transaction is not None:
            raise CorruptionError("metadata log: a transaction begins inside another")
        self._before_transaction = self._freeze(self._built.provenance)

    def _end(self) -> ClusterImage:
        before = self._before_transaction
        if before is None:
            raise CorruptionError("metadata log: a transaction ends that did not begin")
        self._before_transaction = None
        return before

    def _restore(self, image: ClusterImage) -> None:
        touched = self._touched
        self._features = Draft(image.features, touched.features)
        self._nodes = NodesDraft(image.brokers, image.controllers, touched)
        self._topics = TopicsDraft(image.topics, image.topics_by_id, touched)
        self._configs = ConfigsDraft(image.configs, touched)
        self._kept = KeptRecordsDraft(
            image.acls,
            image.scram_credentials,
            image.client_quotas,
            image.delegation_tokens,
            touched,
        )
        self._next_producer_id = image.next_producer_id

    def _freeze(self, provenance: MetadataProvenance) -> ClusterImage:
        topics, topics_by_id = self._topics.freeze()
        return ClusterImage(
            provenance=provenance,
            features=self._features.freeze(),
            brokers=self._nodes.brokers.freeze(),
            controllers=self._nodes.controllers.freeze(),
            topics=topics,
            topics_by_id=topics_by_id,
            configs=self._configs.resources.freeze(),
            next_producer_id=self._next_producer_id,
            acls=self._kept.acls.freeze(),
            scram_credentials=self._kept.scram.freeze(),
            client_quotas=self._kept.quotas.freeze(),
            delegation_tokens=self._kept.tokens.freeze(),
        )


def finish(steps: Generator[None, None, T]) -> T:
    """Take all steps at once."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            outcome: T = ended.value
            return outcome


def _delta(
    old: ClusterImage, new: ClusterImage, touched: Touched
) -> Generator[None, None, MetadataDelta]:
    was, now = old.topics_by_id, new.topics_by_id
    gone = [was[each] for each in touched.topics if each in was and each not in now]
    partitions_changed = set()
    for each in touched.partitions:
        if _partition_changed(old, new, each):
            partitions_changed.add(each)
        yield
    return MetadataDelta(
        topics_created=frozenset(
            each for each in touched.topics if each in now and each not in was
        ),
        topics_deleted=tuple(sorted(gone, key=lambda topic: topic.name)),
        partitions_changed=frozenset(partitions_changed),
        brokers_changed=_changed(old.brokers, new.brokers, touched.brokers),
        controllers_changed=_changed(old.controllers, new.controllers, touched.controllers),
        configs_changed=frozenset(touched.configs),
        features_changed=_changed(old.features, new.features, touched.features),
        producer_ids_changed=old.next_producer_id != new.next_producer_id,
        acls_changed=_changed(old.acls, new.acls, touched.acls),
        scram_changed=_changed(old.scram_credentials, new.scram_credentials, touched.scram),
        quotas_changed=_changed(old.client_quotas, new.client_quotas, touched.quotas),
        tokens_changed=_changed(old.delegation_tokens, new.delegation_tokens, touched.tokens),
    )


def _changed(old: Mapping[K, V], new: Mapping[K, V], keys: Iterable[K]) -> frozenset[K]:
    return frozenset(key for key in keys if old.get(key) != new.get(key))


def _partition_changed(old: ClusterImage, new: ClusterImage, key: TopicIdPartition) -> bool:
    after = new.topics_by_id.get(key.topic_id)
    if after is None:
        return False
    before = old.topics_by_id.get(key.topic_id)
    was = None if before is None else before.partitions.get(key.partition)
    return was != after.partitions.get(key.partition)


def _all_keys(old: ClusterImage, new: ClusterImage) -> Generator[None, None, Touched]:
    """Return every key that could differ; a step for each topic."""
    partitions: set[TopicIdPartition] = set()
    for topic_id, topic in new.topics_by_id.items():
        if old.topics_by_id.get(topic_id) is not topic:
            partitions.update(TopicIdPartition(topic_id, number) for number in topic.partitions)
        yield
    return Touched(
        features={*old.features, *new.features},
        brokers={*old.brokers, *new.brokers},
        controllers={*old.controllers, *new.controllers},
        topics={*old.topics_by_id, *new.topics_by_id},
        partitions=partitions,
        configs={
            key
            for key in {*old.configs, *new.configs}
            if old.configs.get(key) != new.configs.get(key)
        },
        acls={*old.acls, *new.acls},
        scram={*old.scram_credentials, *new.scram_credentials},
        quotas={*old.client_quotas, *new.client_quotas},
        tokens={*old.delegation_tokens, *new.delegation_tokens},
    )
