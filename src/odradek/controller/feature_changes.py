"""UpdateFeatures, and the features with which a cluster begins."""

from collections.abc import Iterable, Mapping
from enum import IntEnum

from odradek.controller.result import Result
from odradek.controller.view import MIN_INSYNC_REPLICAS, ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import (
    CLUSTER_DEFAULTS,
    ResourceType,
    VersionedRecord,
    VersionRange,
    default_features,
)
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    METADATA_VERSION,
    METADATA_VERSIONS,
    REQUIRED_METADATA_VERSION,
    TRANSACTIONS_FROM,
)
from odradek.protocol.generated.metadata_records import (
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def format_records(features: Mapping[str, int] | None = None) -> list[VersionedRecord]:
    """Return what ``storage format`` leaves in ``bootstrap.checkpoint``: metadata.version first."""
    levels = default_features() if features is None else features
    names = sorted(levels, key=lambda name: (name != METADATA_VERSION, name))
    return [_level(name, levels[name]) for name in names if levels[name]]


def bootstrap_records(
    formatted: Iterable[VersionedRecord] | None = None, *, min_insync_replicas: int = 1
) -> list[VersionedRecord]:
    """Return the first records of a cluster, from those of :func:`format_records`.

    They are a metadata transaction, so that no broker sees half of them. With eligible leader
    replicas there must be a cluster-wide min.insync.replicas from the start.
    """
    records = list(format_records() if formatted is None else formatted)
    levels = {
        record.message.name: record.message.feature_level
        for record in records
        if isinstance(record.message, FeatureLevelRecord)
    }
    if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
        records.append(_min_isr("", str(min_insync_replicas)))
    if levels[METADATA_VERSION] < TRANSACTIONS_FROM:
        return records
    begin = VersionedRecord(BeginTransactionRecord(name="Bootstrap records"), 0)
    return [begin, *records, VersionedRecord(EndTransactionRecord(), 0)]


def update_features(
    view: ClusterView, request: UpdateFeaturesRequest
) -> Result[UpdateFeaturesResponse]:
    """Plan new levels: all of them or, if one is refused, none."""
    wanted = dict(view.image.features)
    wanted |= {each.feature: each.max_version_level for each in request.feature_updates}
    records: list[VersionedRecord] = []
    response = UpdateFeaturesResponse(error_message=None)
    try:
        for update in request.feature_updates:
            _check_update(view, update, wanted)
            records.append(_level(update.feature, update.max_version_level))
    except ApiError as error:
        response.error_code = error.code
        response.error_message = f"no feature was changed: {error.message}"
        return Result((), response)
    # Versions 0 and 1 have an answer for each; later ones leave it out by themselves.
    response.results = [
        UpdatableFeatureResult(feature=each.feature, error_message=None)
        for each in request.feature_updates
    ]
    if not view.image.elr_enabled and wanted.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records += _unify_min_isr(view)
    return Result(() if request.validate_only else tuple(records), response)


def _check_update(view: ClusterView, update: FeatureUpdateKey, wanted: Mapping[str, int]) -> None:
    name, level = update.feature, update.max_version_level
    current = view.image.features.get(name, 0)
    # Version 0 has no upgrade type but this flag.
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in tuple(UpgradeType):
        raise _refused(name, level, f"unknown upgrade type {kind}")
    if level < 0:
        raise _refused(name, level, "levels are not negative")
    _check_supported(view, name, level)
    if level < current and kind == UpgradeType.UPGRADE:
        raise _refused(name, level, f"it is at {current}: ask for a downgrade")
    if level > current and kind != UpgradeType.UPGRADE:
        raise _refused(name, level, f"it is at {current}: that is no downgrade")
    if name == METADATA_VERSION:
        _check_metadata_version(current, level)
    needed = REQUIRED_METADATA_VERSION.get(name, {}).get(level, 0)
    if wanted.get(METADATA_VERSION, 0) < needed:
        raise _refused(name, level, f"it needs {METADATA_VERSION} {needed}")


def _check_supported(view: ClusterView, name: str, level: int) -> None:
    none = VersionRange(0, 0)
    if level not in view.settings.supported_features.get(name, none):
        raise _refused(name, level, "this controller does not support it")
    for broker in view.image.brokers.values():
        if level not in broker.features.get(name, none):
            raise _refused(name, level, f"broker {broker.broker_id} does not support it")
    for node_id, controller in view.image.controllers.items():
        if node_id != view.settings.node_id and level not in controller.features.get(name, none):
            raise _refused(name, level, f"controller {node_id} does not support it")


def _check_metadata_version(current: int, level: int) -> None:
    lost = [each for each in METADATA_VERSIONS if level < each.level <= current]
    if any(each.changes_records for each in lost):
        # Kafka refuses the unsafe downgrade as well (KAFKA-13896).
        raise _refused(METADATA_VERSION, level, f"what came up to {current} would be lost")


def _refused(name: str, level: int, problem: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{name} cannot be {level}: {problem}")


def _unify_min_isr(view: ClusterView) -> list[VersionedRecord]:
    """With ELR all brokers have one min.insync.replicas, and it is set explicitly."""
    records = []
    if MIN_INSYNC_REPLICAS not in view.image.config_of(CLUSTER_DEFAULTS):
        records.append(_min_isr("", str(view.settings.min_insync_replicas)))
    for resource, configs in sorted(view.image.configs.items()):
        own = resource.type == ResourceType.BROKER and resource.name
        if own and MIN_INSYNC_REPLICAS in configs:
            records.append(_min_isr(resource.name, None))
    return records


def _level(name: str, level: int) -> VersionedRecord:
    return VersionedRecord(FeatureLevelRecord(name=name, feature_level=level), 0)


def _min_isr(broker: str, value: str | None) -> VersionedRecord:
    record = ConfigRecord(
        resource_type=ResourceType.BROKER,
        resource_name=broker,
        name=MIN_INSYNC_REPLICAS,
        value=value,
    )
    return VersionedRecord(record, 0)
