"""Random requests: invariants hold, epochs never go back, and replay gives the same controller.

Records travel as bytes on the way, and a broker's loader follows along with its own image.
"""

from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from odradek.controller import Controller, Result
from odradek.core.errors import ApiError
from odradek.core.ids import ZERO_UUID
from odradek.metadata import ClusterImage, MetadataLoader, MetadataProvenance
from odradek.protocol.generated.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from odradek.protocol.versioned import decode_metadata
from tests.unit.controller.cluster import Cluster, new_topic, settings

R = TypeVar("R")
BROKERS = st.integers(1, 5)
TOPICS = st.sampled_from(["a", "b", "c"])


def check_follows(new: ClusterImage, old: ClusterImage) -> None:
    """Nothing that fences may ever go back."""
    assert new.next_producer_id >= old.next_producer_id
    for topic_id, topic in old.topics_by_id.items():
        later = new.topics_by_id.get(topic_id)
        if later is None:
            continue
        assert later.name == topic.name
        for number, partition in topic.partitions.items():
            after = later.partitions[number]
            assert after.leader_epoch >= partition.leader_epoch
            assert after.partition_epoch >= partition.partition_epoch
            if after.leader != partition.leader:
                assert after.leader_epoch > partition.leader_epoch
            if after != partition:
                assert after.partition_epoch > partition.partition_epoch
    for broker_id, broker in old.brokers.items():
        again = new.brokers.get(broker_id)
        assert again is None or again.epoch >= broker.epoch


class ObservedCluster(Cluster):
    def __init__(self, *, elr: bool) -> None:
        self.loader = MetadataLoader()
        super().__init__(3, racks=2)
        if not elr:
            update = FeatureUpdateKey(
                feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2
            )
            request = UpdateFeaturesRequest(feature_updates=[update])
            self.apply(self.controller.update_features(request))

    def apply(self, result: Result[R]) -> R:
        old, shown = self.controller.image, self.loader.image
        reply = super().apply(result)
        check_follows(self.controller.image, old)
        if result.records:
            records = [decode_metadata(record.to_bytes()) for record in result.records]
            update = self.loader.load(records, MetadataProvenance(len(self.log) - 1, 1, 0))
            assert update is not None
            assert update.image == self.controller.image
            compared = update.image.changes_since(shown)
            assert update.delta.topics_created == compared.topics_created
            assert update.delta.topics_deleted == compared.topics_deleted
            assert update.delta.partitions_changed == compared.partitions_changed
            assert update.delta.brokers_changed == compared.brokers_changed
            assert update.delta.configs_changed >= compared.configs_changed
        return reply


class ControllerMachine(RuleBasedStateMachine):
    cluster: ObservedCluster

    @initialize(elr=st.booleans())
    def start(self, elr: bool) -> None:
        self.cluster = ObservedCluster(elr=elr)
        self.incarnation = 1

    @rule(name=TOPICS, partitions=st.integers(-1, 6), replicas=st.integers(-1, 4))
    def create_topic(self, name: str, partitions: int, replicas: int) -> None:
        self.cluster.create(new_topic(name, partitions, replicas))

    @rule(name=TOPICS, assignment=st.lists(st.lists(BROKERS, max_size=3), max_size=3))
    def create_assigned(self, name: str, assignment: list[list[int]]) -> None:
        self.cluster.create(new_topic(name, assignment=dict(enumerate(assignment))))

    @rule(name=TOPICS)
    def delete_topic(self, name: str) -> None:
        topic = DeleteTopicState(name=name, topic_id=ZERO_UUID)
        request = DeleteTopicsRequest(topics=[topic])
        self.cluster.apply(self.cluster.controller.delete_topics(request))

    @rule(name=TOPICS, count=st.integers(1, 9))
    def add_partitions(self, name: str, count: int) -> None:
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic])
        self.cluster.apply(self.cluster.controller.create_partitions(request, Random(count)))

    @rule(broker_id=BROKERS, clean=st.booleans())
    def restart_broker(self, broker_id: int, clean: bool) -> None:
        self.incarnation += 1
        self.cluster.now_ms += 9_000
        known = self.cluster.controller.image.brokers.get(broker_id)
        previous = known.epoch if clean and known is not None else -1
        rack = f"r{broker_id % 2}"
        self.cluster.register(broker_id, self.incarnation, previous_epoch=previous, rack=rack)

    @rule(broker_id=BROKERS, want_fence=st.booleans(), want_shut_down=st.booleans())
    def beat(self, broker_id: int, want_fence: bool, want_shut_down: bool) -> None:
        if broker_id in self.cluster.controller.image.brokers:
            self.cluster.heartbeat(broker_id, want_fence=want_fence, want_shut_down=want_shut_down)

    @rule(broker_id=BROKERS)
    def unfence(self, broker_id: int) -> None:
        if broker_id in self.cluster.controller.image.brokers:
            self.cluster.heartbeat(broker_id)

    @rule(late_ms=st.integers(0, 20_000))
    def let_sessions_end(self, late_ms: int) -> None:
        self.cluster.now_ms += late_ms
        controller = self.cluster.controller
        while self.cluster.apply(controller.fence_stale_broker(self.cluster.now_ms)) is not None:
            pass

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        try:
            self.cluster.apply(self.cluster.controller.unregister_broker(broker_id))
        except ApiError:
            assert broker_id not in self.cluster.controller.image.brokers

    @rule(kind=st.sampled_from([0, 1]))
    def elect(self, kind: int) -> None:
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.cluster.apply(self.cluster.controller.elect_leaders(request))

    @rule(name=TOPICS, chosen=st.sets(BROKERS), recovery=st.sampled_from([0, 0, 1]))
    def change_isr(self, name: str, chosen: set[int], recovery: int) -> None:
        topic = self.cluster.controller.image.topics.get(name)
        if topic is None or topic.partitions[0].leader not in self.cluster.controller.image.brokers:
            return
        partition = topic.partitions[0]
        members = {partition.leader, *chosen.intersection(partition.replicas)}
        proposal = RequestPartitionData(
            partition_index=0,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each) for each in sorted(members)],
            leader_recovery_state=recovery,
        )
        request = AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=self.cluster.epoch(partition.leader),
            topics=[RequestTopicData(topic_id=topic.topic_id, partitions=[proposal])],
        )
        self.cluster.apply(self.cluster.controller.alter_partition(request))

    @rule(name=TOPICS, to=st.none() | st.lists(BROKERS, max_size=3))
    def reassign(self, name: str, to: list[int] | None) -> None:
        before = self.cluster.controller.image.topics.get(name)
        partition = ReassignablePartition(partition_index=0, replicas=to)
        topic = ReassignableTopic(name=name, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        reply = self.cluster.apply(self.cluster.controller.alter_partition_reassignments(request))
        refused = reply.responses[0].partitions[0].error_code
        after = self.cluster.controller.image.topics.get(name)
        if refused:
            assert after == before
            return
        assert before is not None
        assert after is not None
        moved, was = after.partitions[0], before.partitions[0]
        assert set(to or ()) <= set(moved.replicas)
        if not set(was.replicas) <= set(moved.replicas):
            assert moved.leader_epoch > was.leader_epoch

    @rule(
        resource=st.sampled_from([(2, "a"), (2, "b"), (4, ""), (4, "1")]),
        name=st.sampled_from(["min.insync.replicas", "unclean.leader.election.enable"]),
        value=st.sampled_from(["1", "2", "true", None]),
    )
    def configure(self, resource: tuple[int, str], name: str, value: str | None) -> None:
        if name == "min.insync.replicas" and value == "true":
            return
        config = AlterableConfig(name=name, config_operation=0 if value else 1, value=value)
        kind, resource_name = resource
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind, resource_name=resource_name, configs=[config]
                )
            ]
        )
        self.cluster.apply(self.cluster.controller.incremental_alter_configs(request))

    @rule(broker_id=BROKERS)
    def allocate_producer_ids(self, broker_id: int) -> None:
        broker = self.cluster.controller.image.brokers.get(broker_id)
        if broker is not None:
            request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker.epoch)
            self.cluster.apply(self.cluster.controller.allocate_producer_ids(request))

    @invariant()
    def leaders_are_alive(self) -> None:
        image = self.cluster.controller.image
        for topic in image.topics.values():
            for partition in topic.partitions.values():
                if partition.leader != -1:
                    assert image.brokers[partition.leader].active

    @invariant()
    def a_snapshot_says_the_same(self) -> None:
        image = self.cluster.controller.image
        records = [decode_metadata(record.to_bytes()) for record in image.to_records()]
        assert ClusterImage().apply(records) == image

    def teardown(self) -> None:
        if not hasattr(self, "cluster"):
            return
        successor = Controller(settings())
        for record in self.cluster.log:
            successor.replay(record.message)
        assert successor.image == self.cluster.controller.image


ControllerMachine.TestCase.settings = hypothesis_settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
TestController = pytest.mark.slow(ControllerMachine.TestCase)
