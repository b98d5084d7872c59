"""The life of a registered broker: fenced, unfenced, shutting down; as its heartbeats report it.

A broker has caught up when it has applied the log up to the record of its own registration
(KAFKA-13959: not up to the end of the log, which a busy cluster moves on for ever).
"""

from collections.abc import Generator
from enum import Enum
from typing import NamedTuple

from odradek.controller.leaders import BrokerMove, Changes, plan_broker_move
from odradek.controller.metadata_offsets import MetadataOffsets
from odradek.controller.result import Result
from odradek.controller.view import ClusterView
from odradek.core.ids import Uuid
from odradek.metadata import BrokerImage, PartitionImage, VersionedRecord
from odradek.metadata.features import CORDONED_LOG_DIRS_FROM, DIRECTORY_ASSIGNMENT_FROM
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.metadata_records import BrokerRegistrationChangeRecord

_FENCE = 1
_UNFENCE = -1


class Beat(NamedTuple):
    """What a heartbeat comes to: the plan, and how its broker stands with it."""

    result: Result[BrokerHeartbeatResponse]
    before: "BrokerState"
    after: "BrokerState"


class BrokerState(Enum):
    FENCED = "has no leaders and is in no ISR; clients are not told of it"
    UNFENCED = "at work"
    CONTROLLED_SHUTDOWN = "gives its leaders away"
    SHUTDOWN_NOW = "fenced, and may stop"


def state_of(broker: BrokerImage) -> BrokerState:
    if broker.fenced:
        return BrokerState.FENCED
    if broker.in_controlled_shutdown:
        return BrokerState.CONTROLLED_SHUTDOWN
    return BrokerState.UNFENCED


def next_state(
    current: BrokerState,
    request: BrokerHeartbeatRequest,
    *,
    may_unfence: bool,
    leads: bool,
    may_stop: bool,
) -> BrokerState:
    """Return what a heartbeat makes of a broker.

    ``may_stop``: every other active broker knows that it has no leaders any more.
    """
    match current:
        case BrokerState.FENCED:
            if request.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if not request.want_fence and may_unfence else current
        case BrokerState.UNFENCED:
            if request.want_shut_down:
                wait = leads and not request.want_fence
                return BrokerState.CONTROLLED_SHUTDOWN if wait else BrokerState.SHUTDOWN_NOW
            return BrokerState.FENCED if request.want_fence else current
        case BrokerState.CONTROLLED_SHUTDOWN:
            return BrokerState.SHUTDOWN_NOW if may_stop and not leads else current
        case BrokerState.SHUTDOWN_NOW:
            return current


def broker_heartbeat(
    view: ClusterView, request: BrokerHeartbeatRequest, offsets: MetadataOffsets
) -> Generator[None, None, Beat]:
    """Plan what a heartbeat changes; without a yield if that is little, as nearly always.

    Raises:
        ApiError: STALE_BROKER_EPOCH.
    """
    broker = view.check_broker_epoch(request.broker_id, request.broker_epoch)
    caught_up = request.current_metadata_offset >= offsets.registered_at(broker.broker_id)
    current = state_of(broker)
    # No record ends a controlled shutdown: only a new incarnation can come back from it.
    may_unfence = caught_up and not broker.in_controlled_shutdown
    is_leaving = current is BrokerState.CONTROLLED_SHUTDOWN
    state = next_state(
        current,
        request,
        may_unfence=may_unfence,
        leads=view.partition_index.leads(broker.broker_id),
        may_stop=is_leaving and offsets.may_stop(broker.broker_id, view.active_brokers()),
    )
    records: list[VersionedRecord] = []
    if state != current:
        match state:
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                records += yield from plan_fence(view, broker)
            case BrokerState.UNFENCED:
                records += yield from plan_unfence(view, broker)
            case BrokerState.CONTROLLED_SHUTDOWN:
                records += yield from _plan_controlled_shutdown(view, broker)
    records += yield from _plan_offline_dirs(view, broker, request.offline_log_dirs)
    records += _plan_cordoned_dirs(view, broker, request.cordoned_log_dirs)
    fenced = state in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW)
    reply = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=fenced,
        should_shut_down=state is BrokerState.SHUTDOWN_NOW,
    )
    return Beat(Result(tuple(records), reply, may_split=True), current, state)


def plan_fence(view: ClusterView, broker: BrokerImage) -> Changes:
    if broker.fenced:
        return []
    records = yield from _plan_leave(view, broker)
    records.append(_change(view, broker, fenced=_FENCE))
    return records


def plan_unfence(view: ClusterView, broker: BrokerImage) -> Changes:
    """Unfence, and give the broker the partitions without a leader that it may lead."""
    if not broker.fenced or broker.in_controlled_shutdown:
        return []
    records = [_change(view, broker, fenced=_UNFENCE)]
    move = BrokerMove(joins=broker.broker_id)
    return records + (yield from plan_broker_move(view, move))


def _plan_controlled_shutdown(view: ClusterView, broker: BrokerImage) -> Changes:
    moves = yield from _plan_leave(view, broker)
    return [_change(view, broker, in_controlled_shutdown=1), *moves]


def _plan_leave(view: ClusterView, broker: BrokerImage) -> Changes:
    move = BrokerMove(leaves=broker.broker_id)
    return (yield from plan_broker_move(view, move, lambda each: broker.broker_id in each.isr))


def _plan_offline_dirs(view: ClusterView, broker: BrokerImage, offline: list[Uuid]) -> Changes:
    newly = set(broker.log_dirs).intersection(offline)
    if not newly or view.metadata_version < DIRECTORY_ASSIGNMENT_FROM:
        return []

    def lies_there(partition: PartitionImage) -> bool:
        return (
            broker.broker_id in partition.isr and partition.directory_of(broker.broker_id) in newly
        )

    move = BrokerMove(leaves=broker.broker_id)
    records = yield from plan_broker_move(view, move, lies_there)
    online = [each for each in broker.log_dirs if each not in newly]
    records.append(_change(view, broker, log_dirs=online))
    return records


def _plan_cordoned_dirs(
    view: ClusterView, broker: BrokerImage, cordoned: list[Uuid] | None
) -> list[VersionedRecord]:
    if cordoned is None or view.metadata_version < CORDONED_LOG_DIRS_FROM:
        return []
    if broker.cordoned_log_dirs is not None and set(broker.cordoned_log_dirs) == set(cordoned):
        return []
    return [_change(view, broker, cordoned_log_dirs=cordoned)]


def _change(
    view: ClusterView,
    broker: BrokerImage,
    *,
    fenced: int = 0,
    in_controlled_shutdown: int = 0,
    log_dirs: list[Uuid] | None = None,
    cordoned_log_dirs: list[Uuid] | None = None,
) -> VersionedRecord:
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
        log_dirs=log_dirs,
        cordoned_log_dirs=cordoned_log_dirs,
    )
    return view.versioned(record)
