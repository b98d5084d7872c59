"""BrokerRegistration and UnregisterBroker; the registration of controllers."""

from collections.abc import Mapping

from odradek.controller.leaders import BrokerMove, Changes, plan_broker_move
from odradek.controller.result import Result, Steps
from odradek.controller.view import ClusterView
from odradek.core.config import SecurityProtocol
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata import ControllerImage, PartitionImage, VersionedRecord
from odradek.metadata.features import (
    CONTROLLER_REGISTRATION_FROM,
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    KRAFT_VERSION,
)
from odradek.metadata.features import METADATA_VERSION as METADATA_VERSION_FEATURE
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from odradek.protocol.generated.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from odradek.protocol.generated.unregister_broker import UnregisterBrokerResponse

_RESERVED_DIRECTORIES = 100
_SECURITY_PROTOCOLS = frozenset(each.number for each in SecurityProtocol)


def register_broker(
    view: ClusterView,
    request: BrokerRegistrationRequest,
    next_offset: int,
    kraft_version: int = 0,
) -> Steps[BrokerRegistrationResponse]:
    """Plan a registration, after the caller has made sure that no other incarnation is alive.

    ``next_offset`` is where the first record of the plan will lie. A new incarnation starts fenced,
    and that is its epoch; the same one that comes again only amends what it said. A broker that
    comes back without a clean shutdown may have lost what the disk had not got yet: it leaves every
    ISR and ELR. ``kraft_version`` is the level of the feature that is no metadata record.

    Raises:
        ApiError: INCONSISTENT_CLUSTER_ID, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    if request.cluster_id != view.settings.cluster_id:
        problem = f"this is cluster {view.settings.cluster_id}, not {request.cluster_id}"
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID, problem)
    if request.is_migrating_zk_broker:
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, "there is no ZooKeeper any more")
    _check_protocols({each.name: each.security_protocol for each in request.listeners})
    _check_log_dirs(view, request)
    _check_features(view, request, kraft_version)
    existing = view.image.brokers.get(request.broker_id)
    if existing is None and len(view.image.brokers) >= view.settings.brokers_max:
        problem = f"the cluster may have {view.settings.brokers_max} brokers"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)
    record = _registration(view, request)
    records: list[VersionedRecord] = []
    if existing is not None and existing.incarnation_id == request.incarnation_id:
        record.broker_epoch = existing.epoch
        record.fenced = existing.fenced
        record.in_controlled_shutdown = existing.in_controlled_shutdown
    else:
        clean = existing is not None and request.previous_broker_epoch == existing.epoch
        records += yield from _plan_departure(view, request.broker_id, clean=clean)
        record.broker_epoch = next_offset
    # Last: if only a part of these gets through a failover, the broker must try again.
    records.append(view.versioned(record))
    reply = BrokerRegistrationResponse(broker_epoch=record.broker_epoch)
    return Result(tuple(records), reply, may_split=True)


def _plan_departure(view: ClusterView, broker_id: int, *, clean: bool) -> Changes:
    """Plan that what a broker was until now leads nothing and is in sync with nothing."""

    def has_it(partition: PartitionImage) -> bool:
        return broker_id in partition.isr or broker_id in partition.elr

    if view.image.elr_enabled and not clean:
        return (yield from plan_broker_move(view, BrokerMove(lost=broker_id), has_it))
    move = BrokerMove(leaves=broker_id)
    return (yield from plan_broker_move(view, move, lambda each: broker_id in each.isr))


def _registration(view: ClusterView, request: BrokerRegistrationRequest) -> RegisterBrokerRecord:
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            BrokerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
        fenced=True,
    )
    if view.metadata_version >= DIRECTORY_ASSIGNMENT_FROM:
        record.log_dirs = list(request.log_dirs)
    if view.metadata_version < CORDONED_LOG_DIRS_FROM:
        record.cordoned_log_dirs = None
    return record


def _check_protocols(protocols: Mapping[str, int]) -> None:
    """Refuse what would stop every Kafka node that reads it in the log."""
    for name, number in protocols.items():
        if number not in _SECURITY_PROTOCOLS:
            problem = f"listener {name}: there is no security protocol {number}"
            raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def _check_log_dirs(view: ClusterView, request: BrokerRegistrationRequest) -> None:
    if view.metadata_version < DIRECTORY_ASSIGNMENT_FROM:
        return
    if not request.log_dirs:
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a broker needs a log directory")
    if any(_is_reserved(directory) for directory in request.log_dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a reserved directory id")
    if len(set(request.log_dirs)) != len(request.log_dirs):
        raise ApiError(ErrorCode.INVALID_REGISTRATION, "a directory id twice")
    for broker in view.image.brokers.values():
        shared = set(broker.log_dirs).intersection(request.log_dirs)
        if shared and broker.broker_id != request.broker_id:
            problem = f"broker {broker.broker_id} has directory {next(iter(shared))} too"
            raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)


def _is_reserved(directory: Uuid) -> bool:
    return int.from_bytes(directory, "big") < _RESERVED_DIRECTORIES


def _check_features(
    view: ClusterView, request: BrokerRegistrationRequest, kraft_version: int
) -> None:
    """The broker must be able to do all that is switched on; what it does not name it cannot."""
    offered = {
        each.name: (each.min_supported_version, each.max_supported_version)
        for each in request.features
    }
    if METADATA_VERSION_FEATURE not in offered:
        problem = f"the broker does not say which {METADATA_VERSION_FEATURE} it supports"
        raise ApiError(ErrorCode.INVALID_REGISTRATION, problem)
    finalized = {**view.image.features, KRAFT_VERSION: kraft_version}
    for name in sorted({*offered, *finalized}):
        low, high = offered.get(name, (0, 0))
        level = finalized.get(name, 0)
        if not low <= level <= high:
            problem = f"{name} is at {level}, the broker supports {low} to {high}"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)


def unregister_broker(view: ClusterView, broker_id: int) -> Steps[UnregisterBrokerResponse]:
    """Plan to forget a broker for good, alive or not: as if it had stopped uncleanly.

    Raises:
        ApiError: BROKER_ID_NOT_REGISTERED.
    """
    broker = view.image.brokers.get(broker_id)
    if broker is None:
        problem = f"broker {broker_id} is not registered"
        raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, problem)
    records = yield from _plan_departure(view, broker_id, clean=False)
    gone = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch)
    records.append(view.versioned(gone))
    return Result(tuple(records), UnregisterBrokerResponse(error_message=None), may_split=True)


def register_controller(view: ClusterView, controller: ControllerImage) -> Result[None]:
    """Plan what a controller says about itself when it has started.

    Raises:
        ApiError: UNSUPPORTED_VERSION: the metadata.version of the cluster has no such record;
            INVALID_REGISTRATION: a listener with a security protocol that does not exist.
    """
    _check_protocols({each.name: each.security_protocol for each in controller.endpoints.values()})
    if view.metadata_version < CONTROLLER_REGISTRATION_FROM:
        problem = (
            f"{METADATA_VERSION_FEATURE} {view.metadata_version} has no registered controllers"
        )
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
    return Result((view.versioned(controller.to_record()),), None)
