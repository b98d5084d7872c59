"""UpdateFeatures, the first records of a cluster, producer ids."""

import pytest

from odradek.controller import PRODUCER_IDS_PER_BLOCK, bootstrap_records, format_records
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import CLUSTER_DEFAULTS, default_features
from odradek.protocol.generated.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.generated.metadata_records import ConfigRecord, ProducerIdsRecord
from odradek.protocol.generated.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.unit.controller.cluster import Cluster

UPGRADE, SAFE, UNSAFE = 1, 2, 3
ELR = "eligible.leader.replicas.version"


def update(cluster: Cluster, *updates: tuple[str, int, int], validate_only: bool = False) -> int:
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level, kind in updates
        ],
        validate_only=validate_only,
    )
    reply = cluster.apply(cluster.controller.update_features(request))
    assert bool(reply.error_message) == bool(reply.error_code)
    return reply.error_code


def test_levels_of_new_clusters() -> None:
    assert default_features() == {
        "metadata.version": 30,
        ELR: 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert default_features(21) == {"metadata.version": 21}
    assert default_features(24) == {
        "metadata.version": 24,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_metadata_version_comes_first() -> None:
    assert format_records()[0].message.name == "metadata.version"  # type: ignore[attr-defined]


def test_old_clusters_begin_without_a_transaction() -> None:
    assert len(bootstrap_records(format_records({"metadata.version": 12}))) == 1


def test_down_and_up_again() -> None:
    cluster = Cluster(1)
    assert update(cluster, ("group.version", 0, UPGRADE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, ("group.version", 0, SAFE)) == ErrorCode.NONE
    assert "group.version" not in cluster.controller.image.features
    assert update(cluster, ("group.version", 1, SAFE)) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(cluster, ("group.version", 1, UPGRADE), validate_only=True) == ErrorCode.NONE
    assert "group.version" not in cluster.controller.image.features
    assert update(cluster, ("group.version", 1, UPGRADE)) == ErrorCode.NONE


@pytest.mark.parametrize(
    ("name", "level", "kind"),
    [
        ("nonsense", 1, UPGRADE),
        ("group.version", 2, UPGRADE),
        ("group.version", -1, SAFE),
        ("group.version", 0, 9),
        ("metadata.version", 31, UPGRADE),
        ("metadata.version", 29, SAFE),
        ("metadata.version", 29, UNSAFE),
    ],
)
def test_refused(name: str, level: int, kind: int) -> None:
    cluster = Cluster(1)
    found = update(cluster, ("transaction.version", 1, SAFE), (name, level, kind))
    assert found == ErrorCode.INVALID_UPDATE_VERSION
    assert cluster.controller.image.features["transaction.version"] == 2, "all or none"


def test_flag_of_version_0() -> None:
    cluster = Cluster(1)
    update_key = FeatureUpdateKey(feature="group.version", max_version_level=0)
    update_key.allow_downgrade = True
    request = UpdateFeaturesRequest(feature_updates=[update_key])
    assert cluster.apply(cluster.controller.update_features(request)).error_code == 0


def test_elr_brings_one_min_isr_for_all() -> None:
    cluster = Cluster(1)
    assert update(cluster, (ELR, 0, SAFE)) == ErrorCode.NONE
    for broker, value in (("", None), ("1", "2")):
        record = ConfigRecord(
            resource_type=4, resource_name=broker, name="min.insync.replicas", value=value
        )
        cluster.controller.replay(record)
    assert update(cluster, (ELR, 1, UPGRADE)) == ErrorCode.NONE
    configs = cluster.controller.image.configs
    assert configs == {CLUSTER_DEFAULTS: {"min.insync.replicas": "1"}}


def test_blocks_of_producer_ids() -> None:
    cluster = Cluster(2)
    starts = []
    for broker_id in (1, 2, 1):
        request = AllocateProducerIdsRequest(
            broker_id=broker_id, broker_epoch=cluster.epoch(broker_id)
        )
        reply = cluster.apply(cluster.controller.allocate_producer_ids(request))
        assert reply.producer_id_len == PRODUCER_IDS_PER_BLOCK == 1000
        starts.append(reply.producer_id_start)
    assert starts == [0, 1000, 2000]
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=0)
    with pytest.raises(ApiError) as error:
        cluster.controller.allocate_producer_ids(request)
    assert error.value.code == ErrorCode.STALE_BROKER_EPOCH


def test_no_producer_ids_left() -> None:
    cluster = Cluster(1)
    cluster.controller.replay(ProducerIdsRecord(next_producer_id=2**63 - 1))
    request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.epoch(1))
    with pytest.raises(ApiError) as error:
        cluster.controller.allocate_producer_ids(request)
    assert error.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
