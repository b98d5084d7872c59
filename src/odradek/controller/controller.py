"""The controller: decides what the records of the metadata log shall be.

Every request method *plans*: it reads the image, changes nothing durable, and returns a ``Result``
of records and reply. The one who drives the controller then

1. replays the records at once, so that the next plan builds on this one,
2. appends them to the metadata log as one atomic batch,
3. sends the reply when the batch is committed.

Requests that may name thousands of topics have a twin ``…_in_steps``; whoever uses it lets the
controller plan and replay nothing else before the last step.

If an append fails the controller is thrown away and a new one replays the log. ``replay`` is the
only mutator of durable state: a fresh controller that has replayed the same records has the same
image. Sessions of brokers are soft state and start anew with ``activate``.

A request that is refused as a whole raises ``ApiError``; what is wrong with one topic, partition
or resource is in the reply.
"""

from collections.abc import Generator, Iterable
from random import Random

from odradek.controller import (
    config_changes,
    directory_changes,
    feature_changes,
    heartbeats,
    isr_changes,
    leaders,
    producer_ids,
    reassignment_changes,
    registrations,
    scram_changes,
    topic_changes,
    topic_deletion,
)
from odradek.controller.heartbeats import BrokerState
from odradek.controller.metadata_offsets import MetadataOffsets
from odradek.controller.partition_index import PartitionIndex
from odradek.controller.result import Result, Steps
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
from odradek.metadata.image import finish
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from odradek.protocol.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
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
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
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
        self._index: PartitionIndex | None = None
        # Soft: which broker sent a heartbeat when, and how far it had applied the log.
        self._sessions = BrokerSessions(settings.broker_session_timeout_ms)
        self._offsets = MetadataOffsets(self._image.provenance.last_offset)

    @property
    def image(self) -> ClusterImage:
        """The image after all that was replayed, committed or not."""
        if self._replayed:
            finish(self.settle_in_steps())
        return self._image

    def settle_in_steps(self) -> Generator[None, None, None]:
        """Build the image after what was replayed, which the next one to ask would wait for."""
        if not self._replayed:
            return  # most of what is looked for now and then finds nothing to do
        update = yield from self._builder.build_in_steps()
        old, self._image = self._image, update.image
        self._replayed = False
        if self._index is not None:
            yield from self._index.follow(old, update.image, update.delta)

    def prepare_in_steps(self) -> Generator[None, None, None]:
        """Build what plans look things up in, which the first of them would wait for."""
        yield from self.settle_in_steps()
        index = PartitionIndex()
        yield from index.build_in_steps(self._image)
        self._index = index

    def replay(self, record: Message) -> None:
        """Apply one committed or newly planned record to durable state."""
        self._builder.replay(record)
        self._replayed = True
        if isinstance(record, UnregisterBrokerRecord):
            self._forget(record.broker_id)

    def check_invariants(self) -> None:
        self.image.check_invariants()
        if self._index is not None:
            self._index.check_invariants(self._image)

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
        return finish(self.fence_stale_broker_in_steps(now_ms))

    def fence_stale_broker_in_steps(self, now_ms: int) -> Steps[int | None]:
        """Plan to fence one broker whose session is over; the reply is its id.

        One at a time, so that the next plan knows of the leaders that moved. Call again until
        the reply is None.
        """
        for broker_id in self._sessions.expired(now_ms):
            broker = self.image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                # The session stays until the broker is fenced: the records may find no space.
                records = yield from heartbeats.plan_fence(self._view, broker)
                return Result(tuple(records), broker_id, may_split=True)
            self._forget(broker_id)
        return Result((), None)

    def register_broker(
        self,
        request: BrokerRegistrationRequest,
        now_ms: int,
        next_offset: int,
        kraft_version: int = 0,
    ) -> Result[BrokerRegistrationResponse]:
        return finish(self.register_broker_in_steps(request, now_ms, next_offset, kraft_version))

    def register_broker_in_steps(
        self,
        request: BrokerRegistrationRequest,
        now_ms: int,
        next_offset: int,
        kraft_version: int = 0,
    ) -> Steps[BrokerRegistrationResponse]:
        """Plan a registration. ``next_offset`` is the offset at which its records will lie."""
        broker = self.image.brokers.get(request.broker_id)
        is_new = broker is None or broker.incarnation_id != request.incarnation_id
        is_own = request.incarnation_id == self.settings.own_incarnation_id
        if broker is not None and is_new and not is_own:
            self._check_not_alive(broker, now_ms)
        result = yield from registrations.register_broker(
            self._view, request, next_offset, kraft_version
        )
        if is_new:
            self._forget(request.broker_id)
        self._offsets.on_registered(request.broker_id, next_offset + len(result.records) - 1)
        return result

    def register_controller(self, controller: ControllerImage) -> Result[None]:
        return registrations.register_controller(self._view, controller)

    def unregister_broker(self, broker_id: int) -> Result[UnregisterBrokerResponse]:
        return finish(self.unregister_broker_in_steps(broker_id))

    def unregister_broker_in_steps(self, broker_id: int) -> Steps[UnregisterBrokerResponse]:
        return registrations.unregister_broker(self._view, broker_id)

    def touch_session(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """Count a heartbeat when it arrives, whatever work is before it (KAFKA-15019)."""
        self._sessions.touch(broker_id, broker_epoch, now_ms)

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
    ) -> Result[BrokerHeartbeatResponse]:
        return finish(self.broker_heartbeat_in_steps(request, now_ms, next_offset))

    def broker_heartbeat_in_steps(
        self, request: BrokerHeartbeatRequest, now_ms: int, next_offset: int
    ) -> Steps[BrokerHeartbeatResponse]:
        """Plan what a heartbeat changes. ``next_offset`` is where its records will lie.

        The session of a broker that may stop ends with the reply, unlike Kafka's: its next
        incarnation need not wait until the session times out.
        """
        broker_id = request.broker_id
        result, before, after = yield from heartbeats.broker_heartbeat(
            self._view, request, self._offsets
        )
        if after is BrokerState.SHUTDOWN_NOW:
            self._forget(broker_id)
            return result
        self._sessions.renew(broker_id, request.broker_epoch, now_ms)
        self._offsets.on_heartbeat(broker_id, request.current_metadata_offset)
        if after is BrokerState.CONTROLLED_SHUTDOWN:
            last_offset = next_offset + len(result.records) - 1
            self._offsets.on_shutdown(broker_id, last_offset, is_new=before is not after)
        return result

    def fence_broker(self, broker_id: int) -> Result[None]:
        """Plan to fence a broker that is known to be gone; its session ends with it."""
        broker = self._registered(broker_id)
        self._forget(broker_id)
        return Result(tuple(finish(heartbeats.plan_fence(self._view, broker))), None)

    def unfence_broker(self, broker_id: int) -> Result[None]:
        broker = self._registered(broker_id)
        return Result(tuple(finish(heartbeats.plan_unfence(self._view, broker))), None)

    def create_topics(
        self, request: CreateTopicsRequest, random: Random
    ) -> Result[CreateTopicsResponse]:
        return finish(self.create_topics_in_steps(request, random))

    def create_topics_in_steps(
        self, request: CreateTopicsRequest, random: Random
    ) -> Steps[CreateTopicsResponse]:
        return topic_changes.create_topics(self._view, request, random)

    def create_partitions(
        self, request: CreatePartitionsRequest, random: Random
    ) -> Result[CreatePartitionsResponse]:
        return finish(self.create_partitions_in_steps(request, random))

    def create_partitions_in_steps(
        self, request: CreatePartitionsRequest, random: Random
    ) -> Steps[CreatePartitionsResponse]:
        return topic_changes.create_partitions(self._view, request, random)

    def delete_topics(self, request: DeleteTopicsRequest) -> Result[DeleteTopicsResponse]:
        return finish(self.delete_topics_in_steps(request))

    def delete_topics_in_steps(self, request: DeleteTopicsRequest) -> Steps[DeleteTopicsResponse]:
        return topic_deletion.delete_topics(self._view, request)

    def alter_configs(self, request: AlterConfigsRequest) -> Result[AlterConfigsResponse]:
        return finish(self.alter_configs_in_steps(request))

    def alter_configs_in_steps(self, request: AlterConfigsRequest) -> Steps[AlterConfigsResponse]:
        return config_changes.alter_configs(self._view, request)

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> Result[IncrementalAlterConfigsResponse]:
        return finish(self.incremental_alter_configs_in_steps(request))

    def incremental_alter_configs_in_steps(
        self, request: IncrementalAlterConfigsRequest
    ) -> Steps[IncrementalAlterConfigsResponse]:
        return config_changes.incremental_alter_configs(self._view, request)

    def alter_user_scram_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Result[AlterUserScramCredentialsResponse]:
        return scram_changes.alter_user_scram_credentials(self._view, request)

    def elect_leaders(self, request: ElectLeadersRequest) -> Result[ElectLeadersResponse]:
        return finish(self.elect_leaders_in_steps(request))

    def elect_leaders_in_steps(self, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
        return leaders.elect_leaders(self._view, request)

    def elect_preferred_leaders_in_steps(self) -> Steps[bool]:
        """Plan to give partitions back to their first replicas; True: there may be more to do."""
        return leaders.elect_preferred_leaders(self._view)

    def elect_unclean_leaders_in_steps(self) -> Steps[bool]:
        """Plan leaders for partitions that have none and may have any; True: as above."""
        return leaders.elect_unclean_leaders(self._view)

    def alter_partition(self, request: AlterPartitionRequest) -> Result[AlterPartitionResponse]:
        return finish(self.alter_partition_in_steps(request))

    def alter_partition_in_steps(
        self, request: AlterPartitionRequest
    ) -> Steps[AlterPartitionResponse]:
        return isr_changes.alter_partition(self._view, request)

    def alter_partition_reassignments(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Result[AlterPartitionReassignmentsResponse]:
        return finish(self.alter_partition_reassignments_in_steps(request))

    def alter_partition_reassignments_in_steps(
        self, request: AlterPartitionReassignmentsRequest
    ) -> Steps[AlterPartitionReassignmentsResponse]:
        return reassignment_changes.alter_partition_reassignments(self._view, request)

    def list_partition_reassignments(
        self, request: ListPartitionReassignmentsRequest
    ) -> Result[ListPartitionReassignmentsResponse]:
        return finish(self.list_partition_reassignments_in_steps(request))

    def list_partition_reassignments_in_steps(
        self, request: ListPartitionReassignmentsRequest
    ) -> Steps[ListPartitionReassignmentsResponse]:
        return reassignment_changes.list_partition_reassignments(self._view, request)

    def assign_replicas_to_dirs(
        self, request: AssignReplicasToDirsRequest
    ) -> Result[AssignReplicasToDirsResponse]:
        return finish(self.assign_replicas_to_dirs_in_steps(request))

    def assign_replicas_to_dirs_in_steps(
        self, request: AssignReplicasToDirsRequest
    ) -> Steps[AssignReplicasToDirsResponse]:
        return directory_changes.assign_replicas_to_dirs(self._view, request)

    def update_features(
        self,
        request: UpdateFeaturesRequest,
        kraft_version: int = 0,
        voter_ids: Iterable[int] = (),
    ) -> Result[UpdateFeaturesResponse]:
        return feature_changes.update_features(self._view, request, kraft_version, voter_ids)

    def allocate_producer_ids(
        self, request: AllocateProducerIdsRequest
    ) -> Result[AllocateProducerIdsResponse]:
        return producer_ids.allocate_producer_ids(self._view, request)

    @property
    def _view(self) -> ClusterView:
        image = self.image
        if self._index is None:
            finish(self.prepare_in_steps())
        assert self._index is not None
        return ClusterView(image, self.settings, self.rules, self._index)

    def _forget(self, broker_id: int) -> None:
        self._sessions.forget(broker_id)
        self._offsets.forget(broker_id)

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
