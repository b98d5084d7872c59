"""What a broker asks of its controller while it works: Kafka's answers, and ours to the same.

Two things make Kafka's active controller resign, and are asked of ours alone: a listener with a
security protocol that does not exist, and a leader recovery state that does not exist.
"""

import pytest

from odradek.core.errors import ErrorCode
from odradek.metadata import PartitionImage, TopicImage
from odradek.metadata.partition import DIRECTORY_UNASSIGNED
from odradek.protocol.generated.broker_registration import BrokerRegistrationResponse, Listener
from tests.interop.cluster.observer import Observer
from tests.interop.cluster.registrations import Asked, new_uuid, registration
from tests.interop.cluster.working_broker import allocate, alter, assign, create_topic, unfenced

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

BLOCK = 1000


def partition_now(controller: Asked, topic: TopicImage) -> PartitionImage:
    return controller.catch_up().topics_by_id[topic.topic_id].partitions[0]


def test_a_partition_on_a_broker_with_one_directory_lies_in_it(controller: Asked) -> None:
    broker = unfenced(controller)
    partition = create_topic(controller, broker).partitions[0]
    assert partition.directories == tuple(broker.request.log_dirs)
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (
        broker.request.broker_id,
        0,
        0,
    )


def test_where_it_lies_is_open_if_there_are_several(controller: Asked) -> None:
    broker = unfenced(controller, new_uuid(), new_uuid())
    assert create_topic(controller, broker).partitions[0].directories == (DIRECTORY_UNASSIGNED,)


# AlterPartition.


def test_proposals_of_an_isr(controller: Asked) -> None:
    broker, other = unfenced(controller), unfenced(controller)
    topic = create_topic(controller, broker)
    own = [broker.request.broker_id]
    assert alter(broker, topic, own) == "NONE"
    assert alter(broker, topic, own, version=2) == "NONE"
    assert alter(broker, topic, own, member_epoch=broker.epoch) == "NONE"
    assert alter(broker, topic, own, member_epoch=broker.epoch - 1) == "INELIGIBLE_REPLICA"
    assert alter(broker, topic, own, leader_epoch=1) == "NOT_CONTROLLER"
    assert alter(broker, topic, own, partition_epoch=1) == "NOT_CONTROLLER"
    assert alter(broker, topic, own, leader_epoch=-1) == "FENCED_LEADER_EPOCH"
    assert alter(broker, topic, own, partition_epoch=-1) == "INVALID_UPDATE_VERSION"
    assert alter(broker, topic, own, broker_epoch=broker.epoch - 1) == "STALE_BROKER_EPOCH"
    assert alter(broker, topic, own, topic_id=new_uuid()) == "UNKNOWN_TOPIC_ID"
    assert alter(broker, topic, own, partition_index=1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert alter(broker, topic, own, leader_recovery_state=1) == "INVALID_REQUEST"
    assert alter(other, topic, own) == "INVALID_REQUEST"
    for isr in ([], own * 2, [*own, other.request.broker_id]):
        assert alter(broker, topic, isr) == "INVALID_REQUEST"


def test_a_smaller_isr_and_its_way_back(planner: Asked) -> None:
    broker, other = unfenced(planner), unfenced(planner)
    topic = create_topic(planner, broker, other)
    both = [broker.request.broker_id, other.request.broker_id]
    assert alter(broker, topic, both[:1]) == "NONE"
    smaller = partition_now(planner, topic)
    # The leader's epoch stays (KAFKA-15021).
    assert (smaller.isr, smaller.leader_epoch, smaller.partition_epoch) == ((both[0],), 0, 1)
    assert alter(broker, topic, both) == "INVALID_UPDATE_VERSION"
    assert alter(broker, topic, both, partition_epoch=1) == "NONE"
    assert partition_now(planner, topic).isr == tuple(both)
    assert other.beat(other.epoch, fence=True) == ["caught up", "fenced"]
    assert partition_now(planner, topic).isr == (both[0],)
    assert alter(broker, topic, both, partition_epoch=3) == "INELIGIBLE_REPLICA"


# Eligible leader replicas (KIP-966).


def test_members_that_leave_below_the_minimum_stay_eligible(planner: Asked) -> None:
    broker, other = unfenced(planner), unfenced(planner)
    topic = create_topic(planner, broker, other, min_insync_replicas="2")
    first, second = broker.request.broker_id, other.request.broker_id
    assert alter(broker, topic, [first]) == "NONE"
    partition = partition_now(planner, topic)
    assert (partition.isr, partition.elr, partition.leader_epoch) == ((first,), (second,), 0)
    assert broker.beat(broker.epoch, fence=True) == ["caught up", "fenced"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr, set(partition.elr)) == (second, (second,), {first})
    assert other.beat(other.epoch, fence=True) == ["caught up", "fenced"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr, set(partition.elr)) == (-1, (), {first, second})
    assert partition.last_known_elr == (second,)
    assert broker.beat(broker.epoch) == ["caught up"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr, partition.elr) == (first, (first,), (second,))
    assert (partition.last_known_elr, partition.leader_recovery_state) == ((), 0)


def test_one_replica_in_sync_is_enough_where_that_is_the_minimum(planner: Asked) -> None:
    broker, other = unfenced(planner), unfenced(planner)
    topic = create_topic(planner, broker, other, min_insync_replicas="1")
    first, second = broker.request.broker_id, other.request.broker_id
    assert alter(broker, topic, [first]) == "NONE"
    assert partition_now(planner, topic).elr == ()
    assert broker.beat(broker.epoch, fence=True) == ["caught up", "fenced"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr, partition.elr) == (-1, (), (first,))
    assert other.beat(other.epoch) == ["caught up"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.elr) == (-1, (first,)), "it may lack what was committed"
    assert second not in partition.isr


def test_a_topic_that_allows_it_takes_any_replica_that_lives(planner: Asked) -> None:
    broker, other = unfenced(planner), unfenced(planner)
    allowed = {"unclean_leader_election_enable": "true"}
    topic = create_topic(planner, broker, other, min_insync_replicas="1", **allowed)
    first, second = broker.request.broker_id, other.request.broker_id
    assert alter(broker, topic, [first]) == "NONE"
    assert broker.beat(broker.epoch, fence=True) == ["caught up", "fenced"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr, partition.elr) == (second, (second,), ())
    assert partition.leader_recovery_state == 1
    epochs = {"leader_epoch": 1, "partition_epoch": 2}
    assert alter(other, topic, [second, first], leader_recovery_state=1, **epochs) == (
        "INVALID_REQUEST"
    )
    assert alter(other, topic, [second], leader_recovery_state=0, **epochs) == "NONE"
    assert partition_now(planner, topic).leader_recovery_state == 0


# AssignReplicasToDirs.


def test_a_broker_says_in_which_directory_a_replica_lies(controller: Asked) -> None:
    directories = (new_uuid(), new_uuid())
    broker, other = unfenced(controller, *directories), unfenced(controller)
    topic_id = (topic := create_topic(controller, broker)).topic_id
    assert assign(broker, topic_id, directories[1]) == "NONE"
    assert assign(broker, topic_id, directories[1]) == "NONE"
    partition = partition_now(controller, topic)
    assert partition.directories == (directories[1],)
    assert (partition.isr, partition.partition_epoch) == ((broker.request.broker_id,), 1)
    assert assign(broker, topic_id, directories[0], epoch=broker.epoch - 1) == "STALE_BROKER_EPOCH"
    assert assign(broker, new_uuid(), directories[0]) == "UNKNOWN_TOPIC_ID"
    assert assign(broker, topic_id, directories[0], number=1) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert assign(other, topic_id, other.request.log_dirs[0]) == "NOT_LEADER_OR_FOLLOWER"


def test_a_replica_in_a_directory_that_has_failed_leaves_the_isr(planner: Asked) -> None:
    broker, other = unfenced(planner), unfenced(planner)
    topic = create_topic(planner, broker, other)
    gone = new_uuid()
    assert assign(broker, topic.topic_id, gone) == "NONE"
    partition = partition_now(planner, topic)
    assert partition.directories == (gone, other.request.log_dirs[0])
    assert (partition.leader, partition.isr) == (
        other.request.broker_id,
        (other.request.broker_id,),
    )
    assert (partition.leader_epoch, partition.partition_epoch) == (1, 2)


def test_a_broker_whose_directory_fails_says_so_in_its_heartbeat(planner: Asked) -> None:
    directories = (new_uuid(), new_uuid())
    broker, other = unfenced(planner, *directories), unfenced(planner)
    topic = create_topic(planner, broker, other)
    assert assign(broker, topic.topic_id, directories[0]) == "NONE"
    assert broker.beat(broker.epoch, offline_log_dirs=[directories[0]]) == ["caught up"]
    partition = partition_now(planner, topic)
    assert (partition.leader, partition.isr) == (
        other.request.broker_id,
        (other.request.broker_id,),
    )
    left = planner.catch_up().brokers[broker.request.broker_id].log_dirs
    assert tuple(left) == directories[1:]


# AllocateProducerIds.


def test_producer_ids_come_in_blocks(controller: Asked) -> None:
    broker = unfenced(controller)
    first, second = (allocate(broker, broker.epoch) for _ in range(2))
    assert (first.error_code, first.producer_id_len) == (0, BLOCK)
    assert second.producer_id_start == first.producer_id_start + BLOCK
    assert controller.catch_up().next_producer_id == second.producer_id_start + BLOCK
    stale = allocate(broker, broker.epoch - 1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert (stale.producer_id_start, stale.producer_id_len) == (0, 0)


# What makes Kafka's active controller resign.


def test_ours_refuses_what_does_not_exist(our_observer: Observer) -> None:
    listener = Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=99)
    answer = our_observer.ask(registration(listeners=[listener]), BrokerRegistrationResponse)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION
    broker = unfenced(our_observer)
    topic = create_topic(our_observer, broker)
    own = [broker.request.broker_id]
    assert alter(broker, topic, own, leader_recovery_state=7) == "INVALID_REQUEST"
    assert alter(broker, topic, own) == "NONE"
