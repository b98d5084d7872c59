"""Reports to the controller in which log directory each replica lies (KIP-858).

A broker with several directories chooses by itself, and a replica may be moved. The controller must
know the directory: when it fails, leaders and ISRs have to leave the replicas in it, and no others.

One request is under way, with up to ``ASSIGNMENTS_MAX`` replicas. What changes meanwhile goes with
the next one, the newest for each replica. What was refused, and all of a request without an answer,
is sent again after a back-off. A replica that the metadata has in the right place by now, or not on
this broker any more, is left out.

A replica may be reported after its directory has failed. The controller then takes it out of the
ISR, as it does with those that it knew to be there.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.features import DIRECTORY_ASSIGNMENT_FROM
from odradek.metadata.touched import TopicIdPartition
from odradek.protocol.generated.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from odradek.protocol.message import Message
from odradek.quorum.active_controller import ControllerChannel

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

ASSIGNMENTS_MAX: Final = 2_250
"""In one request, as in Kafka."""
RETRY_FIRST_SECONDS: Final = 0.1
RETRY_SECONDS_MAX: Final = 10.0
_log: Final = logging.getLogger("odradek.storage")

Assignments = dict[TopicIdPartition, Uuid]


class DirectoryAssignments:
    def __init__(self, broker: "BrokerServer", channel: ControllerChannel) -> None:
        """``channel`` is not used for anything else."""
        self._broker = broker
        self._channel = channel
        self._waiting: Assignments = {}
        self._sent: Assignments = {}
        self._retry_seconds = RETRY_FIRST_SECONDS
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def assign(self, at: TopicIdPartition, directory_id: Uuid) -> None:
        """Report that the replica of a partition lies in a directory of this broker."""
        self._waiting[at] = directory_id
        if not self._sent:
            self._send_in(0)  # in the next turn: an update brings many

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _send_in(self, seconds: float) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._sent or self._broker.broker_epoch < 0:
            return
        for at, directory_id in list(self._waiting.items()):
            if len(self._sent) >= ASSIGNMENTS_MAX:
                break
            del self._waiting[at]
            if self._is_news(at, directory_id):
                self._sent[at] = directory_id
        if self._sent:
            self._channel.ask(self._request(), self._on_answer, self._on_failed)

    def _is_news(self, at: TopicIdPartition, directory_id: Uuid) -> bool:
        """Whether the metadata has this broker's replica elsewhere."""
        image, node_id = self._broker.metadata.image, self._broker.node_id
        if (image.metadata_version or 0) < DIRECTORY_ASSIGNMENT_FROM:
            return False
        topic = image.topics_by_id.get(at.topic_id)
        partition = None if topic is None else topic.partitions.get(at.partition)
        return (
            partition is not None
            and node_id in partition.replicas
            and partition.directory_of(node_id) != directory_id
        )

    def _request(self) -> AssignReplicasToDirsRequest:
        found: dict[Uuid, dict[Uuid, list[RequestPartitionData]]] = {}
        for at, directory_id in self._sent.items():
            partitions = found.setdefault(directory_id, {}).setdefault(at.topic_id, [])
            partitions.append(RequestPartitionData(partition_index=at.partition))
        return AssignReplicasToDirsRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            directories=[
                RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        RequestTopicData(topic_id=topic_id, partitions=partitions)
                        for topic_id, partitions in topics.items()
                    ],
                )
                for directory_id, topics in found.items()
            ],
        )

    # Answers.

    def _on_answer(self, answer: Message) -> None:
        assert isinstance(answer, AssignReplicasToDirsResponse)
        sent, self._sent = self._sent, {}
        if answer.error_code:
            self._go_on(sent, ErrorCode(answer.error_code).name)
            return
        refused = set()
        for directory in answer.directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    at = TopicIdPartition(topic.topic_id, each.partition_index)
                    if not each.error_code:
                        sent.pop(at, None)
                    else:
                        refused.add(ErrorCode(each.error_code).name)
        self._go_on(sent, ", ".join(sorted(refused)) or "the controller did not decide")

    def _on_failed(self, error: ApiError) -> None:
        sent, self._sent = self._sent, {}
        self._go_on(sent, str(error))

    def _go_on(self, unsettled: Assignments, why: str) -> None:
        """Send what waits, at once, or later with what is to be sent again."""
        if self._is_closed:
            return
        for at, directory_id in unsettled.items():
            self._waiting.setdefault(at, directory_id)  # unless something newer waits
        if not unsettled:
            self._retry_seconds = RETRY_FIRST_SECONDS
            if self._waiting:
                self._send_in(0)
            return
        _log.info("directories of %d replicas are reported again: %s", len(unsettled), why)
        self._send_in(self._retry_seconds)
        self._retry_seconds = min(2 * self._retry_seconds, RETRY_SECONDS_MAX)
