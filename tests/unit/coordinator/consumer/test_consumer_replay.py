"""Reading logs that others wrote, or that compaction has been over."""

from random import Random

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from odradek.coordinator.record import CoordinatorRecord
from odradek.protocol.generated import consumer_group_records as wire
from tests.unit.coordinator.consumer.group_driver import FakeTopics, GroupDriver


def busy_log() -> GroupDriver:
    group = GroupDriver(FakeTopics(orders=6, payments=3))
    members = {name: group.told(group.join(name, ["orders"])) or {} for name in "abc"}
    group.settle(members)
    group.heartbeat("a", -1)
    del members["a"]
    members["d"] = group.told(group.join("d", regex="p.*")) or {}
    group.settle(members)
    group.join("e", ["payments"], instance_id="i")
    group.heartbeat("e", -2, instance_id="i")
    group.join("f", ["payments"], instance_id="i")
    return group


def compacted(log: list[CoordinatorRecord], clean_to: int) -> list[CoordinatorRecord]:
    """Keep of the records before ``clean_to`` the last of each key, and no tombstones."""
    last = {record.key_bytes(): position for position, record in enumerate(log[:clean_to])}
    kept = [
        record
        for position, record in enumerate(log[:clean_to])
        if last[record.key_bytes()] == position and record.value is not None
    ]
    return kept + log[clean_to:]


def test_a_compacted_log_gives_the_same_group_wherever_the_cleaner_stopped() -> None:
    group = busy_log()
    for clean_to in range(len(group.log) + 1):
        loaded = ConsumerGroup("g", ConsumerGroupConfig(), Random(1))
        for record in compacted(group.log, clean_to):
            loaded.replay(record)
        loaded.check_invariants()
        assert loaded.state == group.state, clean_to


def test_tombstones_of_the_unknown_are_nothing() -> None:
    fresh = ConsumerGroup("g", ConsumerGroupConfig(), Random(1))
    before = ConsumerGroup("g", ConsumerGroupConfig(), Random(1)).state
    for record in (
        CoordinatorRecord(wire.ConsumerGroupMemberMetadataKey(group_id="g", member_id="x"), None),
        CoordinatorRecord(
            wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="x"), None
        ),
        CoordinatorRecord(
            wire.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="x"), None
        ),
        CoordinatorRecord(
            wire.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="x"), None
        ),
        CoordinatorRecord(wire.ConsumerGroupPartitionMetadataKey(group_id="g"), None),
    ):
        fresh.replay(record)
    assert fresh.state == before


def test_records_without_assignment_epochs_count_from_the_members_epoch() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    value = group.log[-1].value
    assert isinstance(value, wire.ConsumerGroupCurrentMemberAssignmentValue)
    value.assigned_partitions[0].assignment_epochs = None
    orders = group.topics.id_of("orders")
    assert group.load().state.members["a"].assigned == {orders: {0: 2, 1: 2}}
    value.member_epoch = -2  # an old static member that was away
    assert group.load().state.members["a"].assigned == {orders: {0: 0, 1: 0}}


def test_partition_metadata_of_older_coordinators_is_removed() -> None:
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    key = wire.ConsumerGroupPartitionMetadataKey(group_id="g")
    group.log.append(CoordinatorRecord(key, wire.ConsumerGroupPartitionMetadataValue()))
    group.group = group.load()
    group.heartbeat("a", 2)
    assert [(record.key, record.value) for record in group.last.records] == [(key, None)]
    assert not group.state.has_partition_metadata


def test_a_metadata_hash_of_another_kind_costs_one_epoch() -> None:
    """Kafka hashes with XXH3; a group that comes from it is told once that topics changed."""
    group = GroupDriver(FakeTopics(orders=2))
    group.join("a", ["orders"])
    value = group.log[1].value
    assert isinstance(value, wire.ConsumerGroupMetadataValue)
    value.metadata_hash = 42
    group.group = group.load()
    assert group.heartbeat("a", 2).member_epoch == 3
    assert group.heartbeat("a", 3).member_epoch == 3


def test_of_two_records_that_claim_a_partition_the_later_counts() -> None:
    """No log of ours has that; should one have it, the loser must not free it for a third."""
    group = GroupDriver(FakeTopics(orders=1))
    group.join("a", ["orders"])
    orders = group.topics.id_of("orders")
    value = group.log[-1].value
    claim = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="b")
    release = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    group.group.replay(CoordinatorRecord(claim, value))
    assert group.state.holders == {orders: {0: "b"}}
    group.group.replay(CoordinatorRecord(release, None))
    assert group.state.holders == {orders: {0: "b"}}
