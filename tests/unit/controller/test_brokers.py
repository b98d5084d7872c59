"""Registration, heartbeats, sessions, and what they mean for leaders and ISRs."""

import pytest

from odradek.controller import Controller
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import NO_LEADER, ControllerImage, Endpoint, LeaderRecoveryState
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.broker_registration import Listener
from odradek.protocol.generated.metadata_records import (
    BeginTransactionRecord,
    FeatureLevelRecord,
    TopicRecord,
)
from tests.unit.controller.cluster import (
    CLUSTER_ID,
    Cluster,
    directory,
    new_topic,
    registration,
    settings,
)


def refused(cluster: Cluster, **changes: object) -> ErrorCode:
    request = registration(9)
    for name, value in changes.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as error:
        cluster.controller.register_broker(request, cluster.now_ms, len(cluster.log))
    return error.value.code


def test_registration_is_fenced_until_the_broker_has_caught_up() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    assert epoch == len(cluster.log) - 1
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch - 1
    )
    reply = cluster.apply(cluster.controller.broker_heartbeat(request, 0, len(cluster.log)))
    assert (reply.is_fenced, reply.is_caught_up) == (True, False)
    request.current_metadata_offset = epoch
    reply = cluster.apply(cluster.controller.broker_heartbeat(request, 0, len(cluster.log)))
    assert (reply.is_fenced, reply.is_caught_up) == (False, True)


def test_refused_registrations() -> None:
    cluster = Cluster(1)
    assert refused(cluster, cluster_id="other") == ErrorCode.INCONSISTENT_CLUSTER_ID
    for log_dirs in ([], [Uuid(bytes(16))], [directory(9)] * 2, [directory(1)]):
        assert refused(cluster, log_dirs=log_dirs) == ErrorCode.INVALID_REGISTRATION
    assert refused(cluster, features=[]) == ErrorCode.INVALID_REGISTRATION
    listener = Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=4)
    assert refused(cluster, listeners=[listener]) == ErrorCode.INVALID_REGISTRATION
    features = registration(9).features
    only_metadata_version = [each for each in features if each.name == "metadata.version"]
    assert refused(cluster, features=only_metadata_version) == ErrorCode.UNSUPPORTED_VERSION
    small = Cluster(1, config=settings(brokers_max=1))
    assert refused(small) == ErrorCode.POLICY_VIOLATION


def test_a_second_incarnation_waits_for_the_session_of_the_first() -> None:
    cluster = Cluster(1)
    with pytest.raises(ApiError) as error:
        cluster.register(1, incarnation=2)
    assert error.value.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 9_000
    cluster.register(1, incarnation=2)


def test_the_same_incarnation_keeps_its_epoch_and_state() -> None:
    cluster = Cluster(1)
    epoch = cluster.epoch(1)
    assert cluster.register(1) == epoch
    assert not cluster.controller.image.brokers[1].fenced


def test_old_epochs_are_refused() -> None:
    cluster = Cluster(1)
    for broker_id, epoch in ((1, cluster.epoch(1) - 1), (2, 0)):
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        with pytest.raises(ApiError) as error:
            cluster.controller.broker_heartbeat(request, 0, len(cluster.log))
        assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_silent_broker_is_fenced_and_its_leaders_move() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}))
    assert cluster.controller.next_deadline_ms() == 9_000
    cluster.now_ms = 5_000
    cluster.heartbeat(2)
    cluster.heartbeat(3)
    assert cluster.apply(cluster.controller.fence_stale_broker(8_999)) is None
    assert cluster.apply(cluster.controller.fence_stale_broker(9_000)) == 1
    assert cluster.apply(cluster.controller.fence_stale_broker(9_000)) is None
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    assert cluster.controller.image.brokers[1].fenced


def test_a_new_controller_gives_brokers_time() -> None:
    cluster = Cluster(2)
    successor = Controller(settings(), image=cluster.controller.image)
    assert successor.fence_stale_broker(1 << 40).reply is None
    assert successor.activate(1_000).records == ()
    assert successor.next_deadline_ms() == 10_000
    assert successor.fence_stale_broker(10_000).reply in (1, 2)


def test_last_replica_stays_eligible_and_comes_back() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t"))
    assert not cluster.heartbeat(1, want_shut_down=True).should_shut_down
    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (NO_LEADER, (), (1,))
    cluster.now_ms += 9_000
    cluster.start_broker(1, incarnation=2)
    partition = cluster.partition("t")
    assert (partition.leader, partition.isr, partition.elr) == (1, (1,), ())
    assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERED
    assert partition.leader_epoch == 2


def test_after_a_crash_the_last_leader_recovers() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t"))
    cluster.now_ms += 9_000
    cluster.register(1, incarnation=2)  # does not know its previous epoch
    assert cluster.partition("t").elr == ()
    assert cluster.partition("t").last_known_elr == (1,)
    cluster.heartbeat(1)
    partition = cluster.partition("t")
    assert partition.leader == 1
    assert partition.leader_recovery_state == LeaderRecoveryState.RECOVERING


def test_shutdown_without_leaders_is_at_once() -> None:
    cluster = Cluster(2)
    assert cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert cluster.controller.image.brokers[2].fenced


def test_a_broker_that_shuts_down_cannot_change_its_mind() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t"))
    cluster.heartbeat(1, want_shut_down=True)
    cluster.apply(cluster.controller.fence_broker(1))
    assert cluster.heartbeat(1).is_fenced
    assert cluster.partition("t").leader == NO_LEADER


def test_offline_directory_moves_its_partitions() -> None:
    cluster = Cluster(2)
    request = registration(3)
    request.log_dirs = [directory(30), directory(31)]
    cluster.apply(cluster.controller.register_broker(request, 0, len(cluster.log)))
    cluster.heartbeat(3)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    beat = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=cluster.epoch(1),
        current_metadata_offset=len(cluster.log),
        offline_log_dirs=[directory(1)],
    )
    cluster.apply(cluster.controller.broker_heartbeat(beat, 0, len(cluster.log)))
    assert cluster.partition("t").leader == 2
    beat = BrokerHeartbeatRequest(
        broker_id=3,
        broker_epoch=cluster.epoch(3),
        current_metadata_offset=len(cluster.log),
        offline_log_dirs=[directory(30)],
    )
    cluster.apply(cluster.controller.broker_heartbeat(beat, 0, len(cluster.log)))
    assert cluster.controller.image.brokers[3].log_dirs == (directory(31),)


def test_cordoned_broker_gets_no_replicas() -> None:
    cluster = Cluster(2)
    beat = BrokerHeartbeatRequest(
        broker_id=2,
        broker_epoch=cluster.epoch(2),
        current_metadata_offset=len(cluster.log),
        cordoned_log_dirs=[directory(2)],
    )
    cluster.apply(cluster.controller.broker_heartbeat(beat, 0, len(cluster.log)))
    assert cluster.create(new_topic("t", 1, 2))["t"].error_code == 38
    cluster.create(new_topic("u", 4))
    partitions = cluster.controller.image.topics["u"].partitions
    assert {each.leader for each in partitions.values()} == {1}


def test_unregister() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [2, 1]}))
    cluster.apply(cluster.controller.unregister_broker(2))
    assert set(cluster.controller.image.brokers) == {1}
    assert cluster.partition("t").leader == 1
    with pytest.raises(ApiError) as error:
        cluster.controller.unregister_broker(2)
    assert error.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_fence_and_unfence_by_hand() -> None:
    cluster = Cluster(1)
    cluster.apply(cluster.controller.fence_broker(1))
    fenced = cluster.controller.image.brokers[1]
    cluster.apply(cluster.controller.unfence_broker(1))
    unfenced = cluster.controller.image.brokers[1]
    assert (fenced.fenced, unfenced.fenced) == (True, False)
    assert cluster.controller.unfence_broker(1).records == ()


def test_controller_registers_itself() -> None:
    cluster = Cluster()
    cluster.apply(cluster.controller.register_controller(ControllerImage(controller_id=1)))
    assert set(cluster.controller.image.controllers) == {1}
    endpoints = {"CONTROLLER": Endpoint("CONTROLLER", "h", 9093, security_protocol=-1)}
    odd = ControllerImage(controller_id=2, endpoints=endpoints)
    with pytest.raises(ApiError, match="there is no security protocol -1"):
        cluster.controller.register_controller(odd)


def test_half_a_bootstrap_is_aborted_and_done_again() -> None:
    controller = Controller(settings())
    controller.replay(BeginTransactionRecord(name="Bootstrap records"))
    controller.replay(FeatureLevelRecord(name="metadata.version", feature_level=29))
    for record in controller.activate(0).records:
        controller.replay(record.message)
    assert controller.image == Cluster().controller.image
    assert controller.image.metadata_version == 30


def test_a_predecessors_open_transaction_is_aborted() -> None:
    cluster = Cluster(1)
    cluster.controller.replay(BeginTransactionRecord(name="x"))
    cluster.controller.replay(TopicRecord(name="half", topic_id=Uuid(b"0123456789abcdef")))
    assert "half" in cluster.controller.image.topics
    cluster.apply(cluster.controller.activate(0))
    assert "half" not in cluster.controller.image.topics
    assert CLUSTER_ID == cluster.controller.settings.cluster_id
