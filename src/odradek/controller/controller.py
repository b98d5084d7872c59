"""The controller: decides what the records of the metadata log shall be.

Every request method *plans*: it reads the image, changes nothing durable, and returns a ``Result``
of records and reply. The one who drives the controller then

1. replays the records at once, so that the next plan builds on this one,
2. appends them to the metadata log as one atomic batch,
3. sends the reply when the batch is committed.

If an append fails the controller is thrown away and a new one replays the log. ``replay`` is the
only mutator of durable state: a fresh controller that has replayed the same records has the same
image. Sessions of brokers are soft state and start anew with ``activate``.

A request that is refused as a whole raises ``ApiError``; what is wrong with one topic, partition
or resource is in the reply.
"""

from collections.abc import Iterable
from random import Random

from odradek.controller import (
    config_changes,
    feature_changes,
    heartbeats,
    isr_changes,
    leaders,
    producer_ids,
    registrations,
    topic_changes,
    topic_deletion,
)
from odradek.controller.result import Result
from odradek.controller.sessions import BrokerSessions
from odradek.controller.settings import AnyConfig, ConfigRules, ControllerSettings
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import (
    BrokerImage,
    ClusterImage,
    ControllerImage,
    ImageBuilder,
    VersionedRecord,
)
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from odradek.protocol.generated.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from odradek.protocol.generated.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from odradek.protocol.generated.create_topics import CreateTopicsRequest, CreateTopicsResponse
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from odradek.protocol.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.generated.metadata_records import (
    AbortTransactionRecord,
    UnregisterBrokerRecord,
)
from odradek.protocol.generated.unregister_broker import UnregisterBrokerResponse
from odradek.protocol.generated.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.message import Message


class Controller:
    def __init__(
        self,
        settings: ControllerSettings,
        rules: ConfigRules | None = None,
        image: ClusterImage | None = None,
    ) -> None:
        self.settings = settings
        self.rules: ConfigRules = AnyConfig() if rules is None else rules
        # Durable: what the records say.
        self._image = image or ClusterImage()
        self._builder = ImageBuilder(self._image)
        self._replayed = False
        # Soft: who was heard of when.
        self._sessions = BrokerSessions(settings.broker_session_timeout_ms)

    @property
    def image(self) -> ClusterImage:
        """The image after all that was replayed, committed or not."""
        if self._replayed:
            self._image = self._builder.build().image
            self._replayed = False
        return self._image

    def replay(self, record: Message) -> None:
        """Apply one committed or newly planned record to durable state."""
        self._builder.replay(record)
        self._replayed = True
        if isinstance(record, UnregisterBrokerRecord):
            self._sessions.forget(record.broker_id)

    def check_invariants(self) -> None:
        self.image.check_invariants()

    def activate(
        self, now_ms: int, formatted: Iterable[VersionedRecord] | None = None
    ) -> Result[None]:
        """Begin to lead: plan the first records of an empty log, or tidy up after a predecessor.

        Brokers that are unfenced get a fresh session: they may not have been told yet that there
        is a new controller. ``formatted`` are the records that ``storage format`` chose.
        """
        for broker in self.image.brokers.values():
            if not broker.fenced:
                self._sessions.renew(broker.broker_id, broker.epoch, now_ms)
        records: list[VersionedRecord] = []
        if self._builder.in_transaction:
            abort = AbortTransactionRecord(reason="Controller failover")
            records.append(VersionedRecord(abort, 0))
        if self._is_empty():
            minimum = self.settings.min_insync_replicas
            records += feature_changes.bootstrap_records(formatted, min_insync_replicas=minimum)
        return Result(tuple(records), None)

    def next_deadline_ms(self) -> int | None:
        """When :meth:`fence_stale_broker` has something to do next; None: not by itself."""
        return self._sessions.next_deadline_ms()

    def fence_stale_broker(self, now_ms: int) -> Result[int | None]:
        """Plan to fence one broker whose session is over; the reply is its id.

        One at a time, so that the next plan knows of the leaders that moved. Call again until
        the reply is None.
        """
        for broker_id in self._sessions.expired(now_ms):
            self._sessions.forget(broker_id)
            broker = self.image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                return Result(tuple(heartbeats.plan_fence(self._view, broker)), broker_id)
        return Result((), None)

    def register_broker(
        self, request: BrokerRegistrationRequest, now_ms: int, broker_epoch: int
    ) -> Result[BrokerRegistrationResponse]:
        """Plan a registration. ``broker_epoch`` is the offset at which its records will lie."""
        broker = self.image.brokers.get(request.broker_id)
        if broker is not None and broker.incarnation_id != request.incarnation_id:
            self._check_not_alive(broker, now_ms)
        return registrations.register_broker(self._view, request, broker_epoch)

    def register_controller(self, controller: ControllerImage) -> Result[None]:
        return registrations.register_controller(self._view, controller)

    def unregister_broker(self, broker_id: int) -> Result[UnregisterBrokerResponse]:
        return registrations.unregister_broker(self._view, broker_id)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int
    ) -> Result[BrokerHeartbeatResponse]:
        result = heartbeats.broker_heartbeat(self._view, request)
        self._sessions.renew(request.broker_id, request.broker_epoch, now_ms)
        return result

    def fence_broker(self, broker_id: int) -> Result[None]:
        """Plan to fence a broker that is known to be gone; its session ends with it."""
        broker = self._registered(broker_id)
        self._sessions.forget(broker_id)
        return Result(tuple(heartbeats.plan_fence(self._view, broker)), None)

    def unfence_broker(self, broker_id: int) -> Result[None]:
        broker = self._registered(broker_id)
        return Result(tuple(heartbeats.plan_unfence(self._view, broker)), None)

    def create_topics(
        self, request: CreateTopicsRequest, random: Random
    ) -> Result[CreateTopicsResponse]:
        return topic_changes.create_topics(self._view, request, random)

    def create_partitions(
        self, request: CreatePartitionsRequest, random: Random
    ) -> Result[CreatePartitionsResponse]:
        return topic_changes.create_partitions(self._view, request, random)

    def delete_topics(self, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
        return topic_deletion.delete_topics(self._view, request)

    def alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        return config_changes.alter_configs(self._view, request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        return config_changes.incremental_alter_configs(self._view, request)

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        return leaders.elect_leaders(self._view, request)

    def alter_partition(self, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
        return isr_changes.alter_partition(self._view, request)

    def update_features(
        self, request: UpdateFeaturesRequest, kraft_version: int = 0
    ) -> Result[UpdateFeaturesResponse]:
        return feature_changes.update_features(self._view, request, kraft_version)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Result[AllocateProducerIdsResponse]:
        return producer_ids.allocate_producer_ids(self._view, request)

    @property
    def _view(self) -> ClusterView:
        return ClusterView(self.image, self.settings, self.rules)

    def _is_empty(self) -> bool:
        """Whether the log holds no cluster yet, not counting a transaction that never ended."""
        image = self._builder.committed_image() if self._builder.in_transaction else self.image
        return image.metadata_version is None

    def _check_not_alive(self, broker: BrokerImage, now_ms: int) -> None:
        if self._sessions.is_valid(broker.broker_id, broker.epoch, now_ms):
            problem = f"a broker {broker.broker_id} is alive; if it died, its session ends soon"
            raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, problem)

    def _registered(self, broker_id: int) -> BrokerImage:
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            problem = f"broker {broker_id} is not registered"
            raise ApiError(ErrorCode.BROKER_ID_NOT_REGISTERED, problem)
        return broker
