"""Our controller without its log, asked as the real one is: what it plans is committed at once."""

from random import Random
from typing import Any, TypeVar

from odradek.controller import Controller, ControllerSettings, Result
from odradek.core.errors import ApiError
from odradek.metadata import ClusterImage
from odradek.protocol.generated import (
    allocate_producer_ids,
    alter_partition,
    alter_partition_reassignments,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    create_topics,
    elect_leaders,
    list_partition_reassignments,
    unregister_broker,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata

R = TypeVar("R", bound=Message)
KRAFT_VERSION = 1


class OurController:
    def __init__(self, cluster_id: str) -> None:
        settings = ControllerSettings(node_id=1, cluster_id=cluster_id)
        self._controller = Controller(settings)
        self._random = Random(0)
        self._end_offset = 0
        self._apply(self._controller.activate(0))

    def catch_up(self) -> ClusterImage:
        return self._controller.image

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        """Answer as if the request had come over the wire in that version."""
        sent = type(request).VERSION_MAX if version is None else version
        read = type(request).decode(request.to_bytes(sent), sent)
        try:
            reply = self._apply(self._plan(read))
        except ApiError as refused:
            return response(error_code=refused.code)  # type: ignore[call-arg]
        assert isinstance(reply, response)
        return reply

    def _plan(self, request: Message) -> Result[Any]:
        controller = self._controller
        match request:
            case broker_registration.BrokerRegistrationRequest():
                return controller.register_broker(request, 0, self._end_offset, KRAFT_VERSION)
            case broker_heartbeat.BrokerHeartbeatRequest():
                return controller.broker_heartbeat(request, 0, self._end_offset)
            case unregister_broker.UnregisterBrokerRequest():
                return controller.unregister_broker(request.broker_id)
            case create_topics.CreateTopicsRequest():
                return controller.create_topics(request, self._random)
            case alter_partition.AlterPartitionRequest():
                return controller.alter_partition(request)
            case alter_partition_reassignments.AlterPartitionReassignmentsRequest():
                return controller.alter_partition_reassignments(request)
            case elect_leaders.ElectLeadersRequest():
                return controller.elect_leaders(request)
            case list_partition_reassignments.ListPartitionReassignmentsRequest():
                return controller.list_partition_reassignments(request)
            case assign_replicas_to_dirs.AssignReplicasToDirsRequest():
                return controller.assign_replicas_to_dirs(request)
            case allocate_producer_ids.AllocateProducerIdsRequest():
                return controller.allocate_producer_ids(request)
        raise AssertionError(f"our controller does not serve {type(request).__name__}")

    def _apply(self, result: Result[Any]) -> Any:
        for record in result.records:
            self._controller.replay(decode_metadata(record.to_bytes()))
        self._end_offset += len(result.records)
        return result.reply
