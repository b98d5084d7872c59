"""A broker's way in and out of a cluster: registration, fencing, controlled shutdown."""

import pytest

from odradek.controller import Controller
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import NO_LEADER
from odradek.metadata.image import MetadataProvenance
from odradek.metadata.nodes import ControllerImage
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.controller.cluster import (
    Cluster,
    new_topic,
    settings,
)


def beat(
    cluster: Cluster, broker_id: int, offset: int, *, want_shut_down: bool = False
) -> BrokerHeartbeatResponse:
    """Send the heartbeat of a broker that has applied the log up to an offset."""
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=cluster.epoch(broker_id),
        current_metadata_offset=offset,
        want_shut_down=want_shut_down,
    )
    end = len(cluster.log)
    return cluster.apply(cluster.controller.broker_heartbeat(request, cluster.now_ms, end))


def test_a_new_incarnation_is_unfenced_at_its_own_record_not_at_its_epoch() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3], 1: [1, 2, 3]}))
    cluster.now_ms += 9_000
    begin = len(cluster.log)
    epoch = cluster.register(1, incarnation=2)
    record_offset = len(cluster.log) - 1
    assert (epoch, record_offset) == (begin, begin + 2), "two partitions move before it"
    assert not beat(cluster, 1, epoch).is_caught_up
    assert cluster.controller.image.brokers[1].fenced
    assert beat(cluster, 1, record_offset).is_caught_up
    assert not cluster.controller.image.brokers[1].fenced


def test_a_new_controller_unfences_no_broker_before_what_it_began_with() -> None:
    cluster = Cluster()
    epoch = cluster.register(1)
    image = cluster.controller.image.apply([], MetadataProvenance(last_offset=epoch + 5))
    successor = Controller(settings(), image=image)
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=epoch, current_metadata_offset=epoch + 4
    )
    assert successor.broker_heartbeat(request, 0, epoch + 6).reply.is_fenced
    request.current_metadata_offset = epoch + 5
    assert not successor.broker_heartbeat(request, 0, epoch + 6).reply.is_fenced


def test_a_shutdown_waits_until_all_active_brokers_know_of_the_new_leaders() -> None:
    cluster = Cluster(4)
    cluster.heartbeat(4, want_fence=True)
    cluster.create(new_topic("t", assignment={0: [1, 2, 3]}))
    reply = beat(cluster, 1, len(cluster.log), want_shut_down=True)
    assert not reply.should_shut_down
    moved_at = len(cluster.log) - 1
    assert cluster.partition("t").leader == 2
    beat(cluster, 2, moved_at)
    assert not beat(cluster, 1, moved_at, want_shut_down=True).should_shut_down
    beat(cluster, 3, moved_at - 1)
    assert not beat(cluster, 1, moved_at, want_shut_down=True).should_shut_down
    beat(cluster, 3, moved_at)
    reply = beat(cluster, 1, moved_at, want_shut_down=True)  # broker 4 is fenced and not asked
    assert (reply.should_shut_down, reply.is_fenced) == (True, True)


def test_partitions_without_another_replica_do_not_block_a_shutdown() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("alone", assignment={0: [1]}))
    assert not beat(cluster, 1, len(cluster.log), want_shut_down=True).should_shut_down
    assert cluster.partition("alone").leader == NO_LEADER
    beat(cluster, 2, len(cluster.log))
    assert beat(cluster, 1, len(cluster.log), want_shut_down=True).should_shut_down


def test_a_shutdown_goes_on_under_a_new_controller() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1, 2]}))
    beat(cluster, 1, len(cluster.log), want_shut_down=True)
    end = len(cluster.log)
    cluster.controller = Controller(settings(), image=cluster.controller.image)
    cluster.apply(cluster.controller.activate(0))
    assert not beat(cluster, 1, end, want_shut_down=True).should_shut_down, "nothing reported yet"
    beat(cluster, 2, end)
    assert beat(cluster, 1, end, want_shut_down=True).should_shut_down


def test_a_broker_that_may_stop_can_come_back_at_once() -> None:
    cluster = Cluster(1)
    assert beat(cluster, 1, len(cluster.log), want_shut_down=True).should_shut_down
    cluster.register(1, incarnation=2)  # the session would have lasted nine seconds more


def test_a_silent_broker_stays_due_until_it_is_fenced() -> None:
    cluster = Cluster(1)
    assert cluster.controller.fence_stale_broker(9_000).reply == 1  # and nothing is applied
    assert cluster.apply(cluster.controller.fence_stale_broker(9_000)) == 1
    assert cluster.apply(cluster.controller.fence_stale_broker(9_000)) is None
    assert cluster.controller.next_deadline_ms() is None


def test_a_heartbeat_counts_when_it_arrives() -> None:
    cluster = Cluster(1)
    epoch = cluster.epoch(1)
    cluster.controller.touch_session(1, epoch, 5_000)
    assert cluster.controller.fence_stale_broker(9_000).reply is None
    for broker_id, other in ((1, epoch - 1), (2, 0)):
        cluster.controller.touch_session(broker_id, other, 9_000)
    assert cluster.controller.next_deadline_ms() == 14_000


def test_an_unregistered_broker_is_eligible_nowhere() -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", assignment={0: [1]}))
    beat(cluster, 1, len(cluster.log), want_shut_down=True)
    assert cluster.partition("t").elr == (1,)
    cluster.apply(cluster.controller.unregister_broker(1))
    partition = cluster.partition("t")
    assert (partition.isr, partition.elr) == ((), ())
    assert 1 not in cluster.controller.image.brokers
    with pytest.raises(ApiError) as error:
        cluster.controller.unregister_broker(1)
    assert error.value.code == ErrorCode.BROKER_ID_NOT_REGISTERED


def test_features_wait_until_every_voter_has_registered() -> None:
    cluster = Cluster(1)
    update = FeatureUpdateKey(feature="group.version", max_version_level=0, upgrade_type=2)
    request = UpdateFeaturesRequest(feature_updates=[update])
    refused = cluster.controller.update_features(request, voter_ids=(1, 2)).reply
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "controller 2 has not registered" in (refused.error_message or "")
    features = cluster.controller.settings.supported_features
    other = ControllerImage(controller_id=2, features=features)
    cluster.apply(cluster.controller.register_controller(other))
    assert cluster.controller.update_features(request, voter_ids=(1, 2)).reply.error_code == 0
