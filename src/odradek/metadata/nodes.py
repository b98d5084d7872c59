"""Brokers and controllers as they registered themselves, and the draft for their records."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from odradek.core.errors import CorruptionError
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata.draft import Draft
from odradek.metadata.features import (
    CORDONED_LOG_DIRS_FROM,
    DIRECTORY_ASSIGNMENT_FROM,
    VersionRange,
)
from odradek.metadata.partition import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from odradek.metadata.touched import Touched
from odradek.protocol.generated.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    FenceBrokerRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)


class Endpoint(NamedTuple):
    """Where a node listens: ``name`` is the listener's, ``security_protocol`` Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerImage:
    broker_id: int
    epoch: int
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    cordoned_log_dirs: tuple[Uuid, ...] | None = None
    is_migrating_zk_broker: bool = False

    @property
    def active(self) -> bool:
        """Whether it may lead and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    @property
    def takes_replicas(self) -> bool:
        """Whether new replicas may be put there: not if every log directory is cordoned."""
        cordoned = set(self.cordoned_log_dirs or ())
        return not cordoned or any(each not in cordoned for each in self.log_dirs)

    @property
    def default_directory(self) -> Uuid:
        """The directory of a new replica: known only where there is no choice."""
        if not self.log_dirs:
            return DIRECTORY_MIGRATING
        return self.log_dirs[0] if len(self.log_dirs) == 1 else DIRECTORY_UNASSIGNED

    def has_online(self, directory: Uuid) -> bool:
        if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
            return True
        if directory == DIRECTORY_LOST:
            return False
        return not self.log_dirs or directory in self.log_dirs

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> "BrokerImage":
        cordoned = record.cordoned_log_dirs
        return cls(
            broker_id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None if cordoned is None else tuple(cordoned),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def to_record(self, metadata_version: int) -> RegisterBrokerRecord:
        record = RegisterBrokerRecord(
            broker_id=self.broker_id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                BrokerEndpoint(**each._asdict()) for _, each in sorted(self.endpoints.items())
            ],
            features=[
                BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self.features.items())
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
        )
        if metadata_version >= DIRECTORY_ASSIGNMENT_FROM:
            record.log_dirs = list(self.log_dirs)
        if metadata_version >= CORDONED_LOG_DIRS_FROM and self.cordoned_log_dirs is not None:
            record.cordoned_log_dirs = list(self.cordoned_log_dirs)
        return record

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> "BrokerImage":
        cordoned = record.cordoned_log_dirs
        return replace(
            self,
            fenced=record.fenced > 0 if record.fenced else self.fenced,
            in_controlled_shutdown=bool(record.in_controlled_shutdown)
            or self.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs) or self.log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs if cordoned is None else tuple(cordoned),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerImage:
    controller_id: int
    incarnation_id: Uuid = ZERO_UUID
    endpoints: Mapping[str, Endpoint] = field(default_factory=dict)
    features: Mapping[str, VersionRange] = field(default_factory=dict)
    zk_migration_ready: bool = False

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> "ControllerImage":
        return cls(
            controller_id=record.controller_id,
            incarnation_id=record.incarnation_id,
            endpoints=_endpoints(record.end_points),
            features=_features(record.features),
            zk_migration_ready=record.zk_migration_ready,
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.controller_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                ControllerEndpoint(**each._asdict()) for _, each in sorted(self.endpoints.items())
            ],
            features=[
                ControllerFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self.features.items())
            ],
        )


NodesRecord = (
    RegisterBrokerRecord
    | UnregisterBrokerRecord
    | FenceBrokerRecord
    | UnfenceBrokerRecord
    | BrokerRegistrationChangeRecord
    | RegisterControllerRecord
    | UnregisterControllerRecord
)


class NodesDraft:
    def __init__(
        self,
        brokers: Mapping[int, BrokerImage],
        controllers: Mapping[int, ControllerImage],
        touched: Touched,
    ) -> None:
        self.brokers = Draft(brokers, touched.brokers)
        self.controllers = Draft(controllers, touched.controllers)

    def replay(self, record: NodesRecord) -> None:
        match record:
            case RegisterBrokerRecord():
                self.brokers.put(record.broker_id, BrokerImage.from_record(record))
            case UnregisterBrokerRecord():
                self._broker(record.broker_id, record.broker_epoch)
                self.brokers.remove(record.broker_id)
            case FenceBrokerRecord() | UnfenceBrokerRecord():
                broker = self._broker(record.id, record.epoch)
                fenced = isinstance(record, FenceBrokerRecord)
                self.brokers.put(record.id, replace(broker, fenced=fenced))
            case BrokerRegistrationChangeRecord():
                broker = self._broker(record.broker_id, record.broker_epoch)
                self.brokers.put(record.broker_id, broker.changed_by(record))
            case RegisterControllerRecord():
                self.controllers.put(record.controller_id, ControllerImage.from_record(record))
            case UnregisterControllerRecord():
                self.controllers.remove(record.controller_id)

    def _broker(self, broker_id: int, epoch: int) -> BrokerImage:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise CorruptionError(f"metadata log: record of unregistered broker {broker_id}")
        if broker.epoch != epoch:
            raise CorruptionError(
                f"metadata log: broker {broker_id} has epoch {broker.epoch}, its record {epoch}"
            )
        return broker


def _endpoints(
    endpoints: list[BrokerEndpoint] | list[ControllerEndpoint],
) -> dict[str, Endpoint]:
    return {
        each.name: Endpoint(each.name, each.host, each.port, each.security_protocol)
        for each in endpoints
    }


def _features(features: list[BrokerFeature] | list[ControllerFeature]) -> dict[str, VersionRange]:
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version)
        for each in features
    }
