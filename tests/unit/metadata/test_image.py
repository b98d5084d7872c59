"""ClusterImage: replay of each record, sharing, deltas, transactions, snapshots."""

from typing import Any

import pytest

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata import (
    SUPPORTED_FEATURES,
    ClusterImage,
    ConfigResource,
    MetadataDelta,
    MetadataLoader,
    MetadataProvenance,
    TopicIdPartition,
    versioned,
)
from odradek.metadata.features import UnsupportedLevelError
from odradek.protocol.generated import metadata_records as r
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata

A, B = Uuid(b"topic-aaaaaaaaaa"), Uuid(b"topic-bbbbbbbbbb")
DIRECTORY = Uuid(b"directory-000001")


def partition(topic_id: Uuid, number: int = 0, **fields: object) -> r.PartitionRecord:
    record = r.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY, DIRECTORY],
    )
    for name, value in fields.items():
        setattr(record, name, value)
    return record


def config(topic: str, name: str, value: str | None) -> r.ConfigRecord:
    return r.ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value)


TWO_TOPICS: list[Message] = [
    r.FeatureLevelRecord(name="metadata.version", feature_level=30),
    r.TopicRecord(name="a", topic_id=A),
    config("a", "x", "1"),
    partition(A),
    partition(A, 1),
    r.TopicRecord(name="b", topic_id=B),
    partition(B),
]


def where(offset: int) -> MetadataProvenance:
    return MetadataProvenance(offset, 1, 1000 + offset)


def test_older_image_stays_and_untouched_sections_are_shared() -> None:
    old = ClusterImage().apply(TWO_TOPICS)
    new = old.apply([r.PartitionChangeRecord(topic_id=A, partition_id=1, leader=2)])
    assert old.topics["a"].partitions[1].leader == 1
    assert new.topics["a"].partitions[1].leader == 2
    assert new.topics["a"].partitions[0] is old.topics["a"].partitions[0]
    assert new.topics["b"] is old.topics["b"]
    assert new.configs is old.configs
    assert new.topics_by_id[A] is new.topics["a"]


def test_epochs_rise_with_each_change() -> None:
    image = ClusterImage().apply(TWO_TOPICS)
    image = image.apply([r.PartitionChangeRecord(topic_id=A, partition_id=0, isr=[1])])
    found = image.topics["a"].partitions[0]
    assert (found.isr, found.leader_epoch, found.partition_epoch) == ((1,), 0, 1)
    image = image.apply([r.PartitionChangeRecord(topic_id=A, partition_id=0, leader=1)])
    found = image.topics["a"].partitions[0]
    assert (found.leader_epoch, found.partition_epoch) == (1, 2)


def test_delta_names_what_changed() -> None:
    old = ClusterImage().apply(TWO_TOPICS)
    records = [
        r.RemoveTopicRecord(topic_id=A),
        r.TopicRecord(name="a", topic_id=ZERO_UUID),
        partition(ZERO_UUID),
        r.PartitionChangeRecord(topic_id=B, partition_id=0, isr=[1]),
        r.ProducerIdsRecord(next_producer_id=1000),
        config("b", "x", "1"),
    ]
    image, delta = old.advance(records, where(9))
    assert delta == MetadataDelta(
        topics_created=frozenset({ZERO_UUID}),
        topics_deleted=(old.topics["a"],),
        partitions_changed=frozenset({TopicIdPartition(ZERO_UUID, 0), TopicIdPartition(B, 0)}),
        configs_changed=frozenset({ConfigResource.topic("a"), ConfigResource.topic("b")}),
        producer_ids_changed=True,
    )
    assert delta
    assert image.changes_since(old) == delta
    assert image.provenance == where(9)
    assert image.config_of(ConfigResource.topic("a")) == {}


def test_created_and_deleted_in_one_step_is_no_change() -> None:
    delta = ClusterImage().advance([*TWO_TOPICS[5:], r.RemoveTopicRecord(topic_id=B)]).delta
    assert not delta.topics_created
    assert not delta.topics_deleted
    assert not delta.partitions_changed


def test_config_that_repeats_its_value_is_in_the_delta() -> None:
    image = ClusterImage().apply(TWO_TOPICS)
    delta = image.advance([config("a", "x", "1")]).delta
    assert delta.configs_changed == {ConfigResource.topic("a")}


def test_nothing_is_no_delta() -> None:
    image = ClusterImage().apply(TWO_TOPICS, where(8))
    update = image.advance([r.NoOpRecord()], where(9))
    assert not update.delta
    assert update.image == image
    assert update.image.provenance == where(9)
    assert update.image.topics is image.topics


def test_transaction_over_batches_shows_at_its_end() -> None:
    loader = MetadataLoader()
    assert loader.load([*TWO_TOPICS, r.BeginTransactionRecord()], where(1)) is None
    assert loader.load([r.RemoveTopicRecord(topic_id=A)], where(2)) is None
    assert loader.image == ClusterImage()
    assert loader.in_transaction
    update = loader.load([r.EndTransactionRecord()], where(3))
    assert update is not None
    assert update.image is loader.image
    assert set(update.image.topics) == {"b"}
    assert update.delta.topics_created == {B}
    assert update.image.provenance == where(3)


def test_aborted_transaction_leaves_no_trace_but_what_came_before_it() -> None:
    loader = MetadataLoader()
    loader.load([*TWO_TOPICS, r.BeginTransactionRecord()], where(1))
    loader.load([r.RemoveTopicRecord(topic_id=A), config("b", "x", "1")], where(2))
    update = loader.load([r.AbortTransactionRecord()], where(3))
    assert update is not None
    assert update.image == ClusterImage().apply(TWO_TOPICS)
    assert update.delta.topics_created == {A, B}


def test_snapshot_replaces_the_image() -> None:
    loader = MetadataLoader()
    loader.load(TWO_TOPICS, where(1))
    update = loader.load_snapshot(TWO_TOPICS[:5], where(9))
    assert [topic.name for topic in update.delta.topics_deleted] == ["b"]
    assert set(loader.image.topics) == {"a"}


@pytest.mark.parametrize(
    "record",
    [
        r.TopicRecord(name="a", topic_id=ZERO_UUID),
        r.TopicRecord(name="c", topic_id=A),
        partition(ZERO_UUID),
        r.PartitionChangeRecord(topic_id=A, partition_id=7),
        r.PartitionChangeRecord(topic_id=ZERO_UUID, partition_id=0),
        r.PartitionChangeRecord(topic_id=A, partition_id=0, directories=[DIRECTORY]),
        r.PartitionChangeRecord(topic_id=A, partition_id=0, leader_recovery_state=7),
        r.RemoveTopicRecord(topic_id=ZERO_UUID),
        r.ClearElrRecord(topic_name="c"),
        r.FenceBrokerRecord(id=1, epoch=0),
        r.UnregisterBrokerRecord(broker_id=1),
        r.ProducerIdsRecord(next_producer_id=0),
        r.EndTransactionRecord(),
        r.AbortTransactionRecord(),
    ],
    ids=repr,
)
def test_record_that_does_not_fit_is_corruption(record: Message) -> None:
    with pytest.raises(CorruptionError):
        ClusterImage().apply(TWO_TOPICS).apply([record])


def test_transaction_inside_another_is_corruption() -> None:
    loader = MetadataLoader()
    loader.load([r.BeginTransactionRecord()], where(1))
    with pytest.raises(CorruptionError):
        loader.load([r.BeginTransactionRecord()], where(2))


def test_stale_broker_record_is_corruption() -> None:
    image = ClusterImage().apply([r.RegisterBrokerRecord(broker_id=1, broker_epoch=5)])
    with pytest.raises(CorruptionError):
        image.apply([r.UnfenceBrokerRecord(id=1, epoch=4)])


def test_old_records_fence_too() -> None:
    image = ClusterImage().apply([r.RegisterBrokerRecord(broker_id=1, broker_epoch=5)])
    image = image.apply([r.UnfenceBrokerRecord(id=1, epoch=5)])
    assert image.brokers[1].active
    assert image.apply([r.FenceBrokerRecord(id=1, epoch=5)]).brokers[1].fenced


def test_clearing_elr_of_one_topic_and_of_all() -> None:
    elr: dict[str, Any] = {"isr": [1], "eligible_leader_replicas": [2], "last_known_elr": [2]}
    image = ClusterImage().apply(
        [
            r.TopicRecord(name="a", topic_id=A),
            partition(A, **elr),
            r.TopicRecord(name="b", topic_id=B),
            partition(B, **elr),
        ]
    )
    one = image.apply([r.ClearElrRecord(topic_name="a")])
    assert [topic.partitions[0].elr for topic in one.topics.values()] == [(), (2,)]
    everything = image.apply([r.ClearElrRecord(topic_name="")])
    assert [topic.partitions[0].elr for topic in everything.topics.values()] == [(), ()]


def test_kraft_version_is_not_ours() -> None:
    records = [r.FeatureLevelRecord(name="kraft.version", feature_level=1)]
    assert ClusterImage().apply(records) == ClusterImage()


OTHERS: list[Message] = [
    r.AccessControlEntryRecord(id=A, resource_type=2, resource_name="t", principal="User:x"),
    r.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", iterations=4096),
    r.ClientQuotaRecord(
        entity=[
            r.EntityData(entity_type="user", entity_name=None),
            r.EntityData(entity_type="client-id", entity_name="c"),
        ],
        key="producer_byte_rate",
        value=5.0,
    ),
    r.DelegationTokenRecord(owner="o", token_id="t"),
    r.RegisterControllerRecord(
        controller_id=3,
        end_points=[r.ControllerEndpoint(name="CONTROLLER", host="h", port=9093)],
        features=[r.ControllerFeature(name="metadata.version", max_supported_version=30)],
    ),
    r.RegisterBrokerRecord(
        broker_id=1, broker_epoch=5, rack="r", log_dirs=[DIRECTORY], cordoned_log_dirs=[]
    ),
    r.ProducerIdsRecord(next_producer_id=7000),
    config("", "only", "x"),
]


@pytest.mark.parametrize("level", [7, 12, 15, 19, 25, 30])
def test_snapshot_of_every_metadata_version_can_be_read_back(level: int) -> None:
    topics = [
        r.TopicRecord(name="a", topic_id=A),
        partition(A, directories=[DIRECTORY] * 2 if level >= 17 else []),
    ]
    broker = r.RegisterBrokerRecord(broker_id=1, broker_epoch=5, rack=None)
    others = [each for each in OTHERS if not isinstance(each, r.RegisterBrokerRecord)]
    first = r.FeatureLevelRecord(name="metadata.version", feature_level=level)
    image = ClusterImage().apply([first, *topics, broker, *others])
    written = [record.to_bytes() for record in image.to_records()]
    assert ClusterImage().apply(map(decode_metadata, written)) == image


@pytest.mark.parametrize("name", ["metadata.version", "group.version", "transaction.version"])
def test_a_level_that_is_not_known_here_is_no_metadata_to_go_on_with(name: str) -> None:
    known = SUPPORTED_FEATURES[name]
    image = ClusterImage().apply([r.FeatureLevelRecord(name=name, feature_level=known.max)])
    beyond = r.FeatureLevelRecord(name=name, feature_level=known.max + 1)
    said = rf"the cluster has {name} {known.max + 1}, .* supports {known.min} to {known.max}: start"
    with pytest.raises(UnsupportedLevelError, match=said):
        image.apply([beyond])


def test_a_feature_of_another_software_is_kept() -> None:
    image = ClusterImage().apply([r.FeatureLevelRecord(name="new.version", feature_level=9)])
    assert image.features == {"new.version": 9}


def test_everything_else_is_kept_and_removed_again() -> None:
    image = ClusterImage().apply([*TWO_TOPICS, *OTHERS])
    snapshot = [decode_metadata(record.to_bytes()) for record in image.to_records()]
    assert ClusterImage().apply(snapshot) == image
    assert image.brokers[1].log_dirs == (DIRECTORY,)
    quota = r.ClientQuotaRecord(
        entity=[
            r.EntityData(entity_type="client-id", entity_name="c"),
            r.EntityData(entity_type="user", entity_name=None),
        ],
        key="producer_byte_rate",
        remove=True,
    )
    removed, delta = image.advance(
        [
            r.RemoveAccessControlEntryRecord(id=A),
            r.RemoveUserScramCredentialRecord(name="u", mechanism=1),
            quota,
            r.RemoveDelegationTokenRecord(token_id="t"),
            r.UnregisterControllerRecord(controller_id=3),
            r.UnregisterBrokerRecord(broker_id=1, broker_epoch=5),
        ]
    )
    assert not removed.acls
    assert not removed.scram_credentials
    assert not removed.client_quotas
    assert not removed.delegation_tokens
    assert not removed.controllers
    assert not removed.brokers
    assert removed.changes_since(image) == delta
    assert delta.acls_changed == {A}
    assert delta.controllers_changed == {3}


def test_versions_of_change_records_tell_what_they_carry() -> None:
    def version(record: r.BrokerRegistrationChangeRecord) -> int:
        return versioned(record, 30).version

    assert version(r.BrokerRegistrationChangeRecord(fenced=1)) == 0
    assert version(r.BrokerRegistrationChangeRecord(in_controlled_shutdown=1)) == 1
    assert version(r.BrokerRegistrationChangeRecord(log_dirs=[DIRECTORY])) == 2
    assert version(r.BrokerRegistrationChangeRecord(cordoned_log_dirs=[])) == 3
