"""UpdateFeatures, and the features with which a cluster begins.

What is refused is refused in Kafka's words.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

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
    CONTROLLER_REGISTRATION_FROM,
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    KRAFT_VERSION,
    KRAFT_VERSIONS,
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

_FAILED: Final = "The update failed for all features since the following feature had an error"


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
    view: ClusterView,
    request: UpdateFeaturesRequest,
    kraft_version: int = 0,
    voter_ids: Iterable[int] = (),
) -> Result[UpdateFeaturesResponse]:
    """Plan new levels: all of them or, if one is refused, none.

    ``kraft_version`` is the level that the metadata log itself has. Another one is checked here, by
    the same rules, and written by the owner of the log: it is no metadata record. A voter that has
    not registered may not support a level, so none is changed before all have.
    """
    wanted = dict(view.image.features)
    wanted |= {each.feature: each.max_version_level for each in request.feature_updates}
    records: list[VersionedRecord] = []
    response = UpdateFeaturesResponse(error_message=None)
    try:
        for update in request.feature_updates:
            _check_update(view, update, wanted, kraft_version)
            _check_voters_registered(view, update, voter_ids)
            if update.feature != KRAFT_VERSION:
                records.append(_level(update.feature, update.max_version_level))
    except ApiError as error:
        response.error_code = error.code
        response.error_message = f"{_FAILED}: {error.message}"
        return Result((), response)
    # Versions 0 and 1 have an answer for each; later ones leave it out by themselves.
    response.results = [
        UpdatableFeatureResult(feature=each.feature, error_message=None)
        for each in request.feature_updates
    ]
    if not view.image.elr_enabled and wanted.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
        records += _unify_min_isr(view)
    return Result(() if request.validate_only else tuple(records), response)


def _check_update(
    view: ClusterView, update: FeatureUpdateKey, wanted: Mapping[str, int], kraft_version: int
) -> None:
    name, level = update.feature, update.max_version_level
    current = kraft_version if name == KRAFT_VERSION else view.image.features.get(name, 0)
    # Version 0 has no upgrade type but this flag.
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else update.upgrade_type
    if kind not in tuple(UpgradeType):
        problem = "The controller does not support the given upgrade type."
        raise _refused(name, level, problem)
    if level < 0:
        raise _refused(name, level, "A feature version cannot be less than 0.")
    _check_supported(view, name, level)
    if level < current and kind == UpgradeType.UPGRADE:
        problem = "Can't downgrade the version of this feature without setting the upgrade type to"
        raise _refused(name, level, f"{problem} either safe or unsafe downgrade.")
    if level > current and kind != UpgradeType.UPGRADE:
        raise _refused(name, level, "Can't downgrade to a newer version.")
    if name == METADATA_VERSION:
        _check_metadata_version(current, level, kind)
    if name == KRAFT_VERSION and level < current:
        # The log names its voters from 1 on, and a static quorum could not know them.
        raise _refused(name, level, "Can't downgrade the version of this feature.")
    needed = REQUIRED_METADATA_VERSION.get(name, {}).get(level, 0)
    if wanted.get(METADATA_VERSION, 0) < needed:
        problem = f"{name} could not be set to {level} because it depends on {METADATA_VERSION}"
        raise _refused(name, level, f"{problem} level {needed}")


def _check_supported(view: ClusterView, name: str, level: int) -> None:
    none = VersionRange(0, 0)
    local = view.settings.supported_features.get(name, none)
    local = KRAFT_VERSIONS if name == KRAFT_VERSION else local
    _check_range(f"Local controller {view.settings.node_id}", local, name, level)
    if name == KRAFT_VERSION:
        return  # the voters' business, and this is the only one
    for broker in view.image.brokers.values():
        supported = broker.features.get(name, none)
        _check_range(f"Broker {broker.broker_id}", supported, name, level)
    for node_id, controller in view.image.controllers.items():
        if node_id != view.settings.node_id:
            supported = controller.features.get(name, none)
            _check_range(f"Controller {node_id}", supported, name, level)


def _check_voters_registered(
    view: ClusterView, update: FeatureUpdateKey, voter_ids: Iterable[int]
) -> None:
    if view.metadata_version < CONTROLLER_REGISTRATION_FROM or update.feature == KRAFT_VERSION:
        return
    for voter_id in sorted(voter_ids):
        if voter_id != view.settings.node_id and voter_id not in view.image.controllers:
            problem = f"controller {voter_id} has not registered, and may not support this feature"
            raise _refused(update.feature, update.max_version_level, problem)


def _check_range(who: str, supported: VersionRange, name: str, level: int) -> None:
    if level in supported:
        return
    if supported.max == 0:
        raise _refused(name, level, f"{who} does not support this feature.")
    raise _refused(name, level, f"{who} only supports versions {supported.min}-{supported.max}")


def _check_metadata_version(current: int, level: int, kind: int) -> None:
    lost = [each for each in METADATA_VERSIONS if level < each.level <= current]
    if not any(each.changes_records for each in lost):
        return
    problem = f"Unsupported {METADATA_VERSION} downgrade from {current} to {level}."
    if kind == UpgradeType.UNSAFE_DOWNGRADE:  # not even then (KAFKA-13896)
        problem += " Unsafe metadata downgrade is not supported in this version."
    else:
        problem += " Refusing to perform the requested downgrade because it might delete metadata"
        problem += " information."
    raise ApiError(ErrorCode.INVALID_UPDATE_VERSION, problem)


def _refused(name: str, level: int, problem: str) -> ApiError:
    what = f"Invalid update version {level} for feature {name}."
    return ApiError(ErrorCode.INVALID_UPDATE_VERSION, f"{what} {problem}")


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
