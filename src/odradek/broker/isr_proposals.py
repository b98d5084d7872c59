"""Has the controller confirm new ISRs: AlterPartition, for many partitions in one request.

One request is under way. What is proposed meanwhile goes with the next one, the newest for each
partition. What is to be sent again is, after a back-off. A proposal that metadata has overtaken is
dropped: the leader proposes anew if it still wants to.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from odradek.broker.partition import Partition
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
    ResponsePartitionData,
)
from odradek.protocol.message import Message
from odradek.quorum.active_controller import ControllerChannel
from odradek.replication.leadership import Proposal, Registration

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

RETRY_SECONDS: Final = 0.05
PARTITIONS_MAX: Final = 2_000
"""In one request, so that the controller's batch stays within its limit."""
_log: Final = logging.getLogger("odradek.replication")

Proposed = dict[tuple[Uuid, int], tuple[Partition, Proposal]]


class IsrProposals:
    def __init__(self, broker: "BrokerServer", channel: ControllerChannel) -> None:
        self._broker = broker
        self._channel = channel
        self._waiting: Proposed = {}
        self._sent: Proposed = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    def propose(self, partition: Partition, proposal: Proposal) -> None:
        self._waiting[partition.topic_id, partition.key.partition] = (partition, proposal)
        if not self._sent:
            self._send_in(0)  # in the next turn: one fetch may let a follower join many ISRs

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        self._sent.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _send_in(self, seconds: float) -> None:
        if self._timer is None and not self._is_closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._sent:
            return
        for at, (partition, proposal) in list(self._waiting.items()):
            if len(self._sent) >= PARTITIONS_MAX:
                break
            del self._waiting[at]
            leadership = partition.leadership
            if leadership is not None and leadership.is_current(proposal):
                self._sent[at] = (partition, proposal)
        if self._sent:
            self._channel.ask(self._request(), self._on_answer, self._on_failed)

    def _request(self) -> AlterPartitionRequest:
        topics: dict[Uuid, RequestTopicData] = {}
        for (topic_id, number), (_, proposal) in self._sent.items():
            topic = topics.setdefault(topic_id, RequestTopicData(topic_id=topic_id))
            topic.partitions.append(
                RequestPartitionData(
                    partition_index=number,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=epoch)
                        for member, epoch in proposal.isr
                    ],
                    leader_recovery_state=proposal.recovery_state,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.broker_epoch,
            topics=list(topics.values()),
        )

    # Answers.

    def _on_answer(self, answer: Message) -> None:
        if self._is_closed:
            return
        assert isinstance(answer, AlterPartitionResponse)
        sent, self._sent = self._sent, {}
        unsettled: Proposed = {}
        if answer.error_code:
            self._go_on(sent, ErrorCode(answer.error_code).name)
            return
        for topic in answer.topics:
            for each in topic.partitions:
                at = (topic.topic_id, each.partition_index)
                found = sent.pop(at, None)
                if found is not None and self._is_to_be_sent_again(*found, each):
                    unsettled[at] = found
        self._go_on({**unsettled, **sent}, "the controller did not decide")

    def _is_to_be_sent_again(
        self, partition: Partition, proposal: Proposal, answer: ResponsePartitionData
    ) -> bool:
        leadership = partition.leadership
        if leadership is None:
            return False
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            members = [member for member, _ in proposal.isr]
            _log.info("%s: the ISR %s is refused: %s", partition.key, members, code.name)
            return leadership.on_refused(proposal, code)
        before = leadership.isr.committed
        confirmed = Registration(
            answer.leader_epoch,
            answer.partition_epoch,
            leadership.replicas,
            tuple(answer.isr),
            answer.leader_recovery_state,
        )
        leadership.on_confirmed(proposal, confirmed)
        if leadership.isr.committed != before:
            _log.info("%s: the ISR is %s, was %s", partition.key, answer.isr, sorted(before))
        partition.commit()
        return False

    def _on_failed(self, error: ApiError) -> None:
        if not self._is_closed:
            sent, self._sent = self._sent, {}
            self._go_on(sent, str(error))

    def _go_on(self, unsettled: Proposed, why: str) -> None:
        """Send what waits, at once, or later with what is to be sent again."""
        if unsettled:
            _log.info("ISRs of %d partitions are proposed again: %s", len(unsettled), why)
        for at, each in unsettled.items():
            self._waiting.setdefault(at, each)  # unless something newer waits
        if self._waiting:
            self._send_in(RETRY_SECONDS if unsettled else 0)
