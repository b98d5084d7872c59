"""Asks other brokers whether partitions are part of a transaction (AddPartitionsToTxn, from v4 on).

A coordinator gets the questions about many transactions in one request, one request at a time
(``PeerQueue``).

While a request is under way, one question of each transactional id may wait for the next. When
there is another, Kafka's rules say which of the two is asked::

    its epoch, to the waiting one's   the waiting one gets     it gets
    newer                             INVALID_PRODUCER_EPOCH   asked
    the same: a client tries again    NETWORK_EXCEPTION        asked
    older                             asked                    INVALID_PRODUCER_EPOCH

Epochs of different producer ids say nothing about each other: the waiting one is answered
NETWORK_EXCEPTION, and its client tries again.

An answer that does not come is NETWORK_EXCEPTION for all that was asked, which producers hear as
something to try again. What the coordinator did with the question is not known then; if it added
the partitions, they get a marker that they do not need. A coordinator that cannot verify (before
Kafka 3.6) is trusted to have its producers add their partitions, as Kafka does.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.peer_queue import PeerQueue, known_code
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.message import Message
from odradek.wire.lane import LaneError, LaneFailure

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer

VERSION_MIN: Final = 4
WAITING_MAX: Final = 10_000
"""Questions that may wait for one coordinator; further ones are answered as not available."""
PER_REQUEST_MAX: Final = 1_000
_log: Final = logging.getLogger("odradek.transactions")

Errors = dict[TopicPartition, ErrorCode]


class Question(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: Sequence[TopicPartition]
    is_add: bool
    """Whether the partitions are to be made part of the transaction, if they are not."""
    version: int
    """The version of transactions that the producer works with."""
    then: Callable[[Errors], None]
    """Gets an error for each partition, NONE among them."""

    def refuse(self, code: ErrorCode) -> None:
        self.then(dict.fromkeys(self.partitions, code))


class VerificationSender:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._coordinators: dict[int, _Coordinator] = {}
        self._is_closed = False

    def ask(self, coordinator: int, question: Question) -> None:
        """Ask another broker; ``then`` of the question is called once, now or later."""
        if self._is_closed:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self._coordinator(coordinator).ask(question)

    def on_update(self) -> None:
        """Give up coordinators that are fenced or gone."""
        for each in list(self._coordinators.values()):
            each.on_update()
            if each.broker_id not in self._broker.image.brokers and not each.has_work:
                self._coordinators.pop(each.broker_id).close()

    def close(self) -> None:
        """Ask no more; what waits is answered."""
        self._is_closed = True
        for each in self._coordinators.values():
            each.close()

    def _coordinator(self, broker_id: int) -> "_Coordinator":
        found = self._coordinators.get(broker_id)
        if found is None:
            found = self._coordinators[broker_id] = _Coordinator(self._broker, broker_id)
        return found


class _Coordinator(PeerQueue):
    """What is to be asked of one other broker."""

    def __init__(self, broker: "BrokerServer", broker_id: int) -> None:
        super().__init__(broker, "verification", broker_id, version_min=VERSION_MIN)
        self._waiting: dict[str, Question] = {}
        self._asked: dict[str, Question] = {}

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._asked)

    def ask(self, question: Question) -> None:
        waiting = self._waiting.get(question.transactional_id)
        if waiting is None and len(self._waiting) >= WAITING_MAX:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif waiting is not None and _is_newer(waiting, question):
            question.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
        else:
            # In its place before the other hears: its client may ask again at once.
            self._waiting[question.transactional_id] = question
            self.wake()
            if waiting is not None:
                is_fenced = _is_newer(question, waiting)
                code = (
                    ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
                )
                waiting.refuse(code)

    def close(self) -> None:
        super().close()
        waiting, self._waiting = self._waiting, {}
        for question in waiting.values():
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _next_request(self) -> Message | None:
        for transactional_id in list(self._waiting)[:PER_REQUEST_MAX]:
            self._asked[transactional_id] = self._waiting.pop(transactional_id)
        if not self._asked:
            return None
        return AddPartitionsToTxnRequest(
            transactions=[_transaction(each) for each in self._asked.values()]
        )

    def _on_answer(self, answer: Message) -> None:
        assert isinstance(answer, AddPartitionsToTxnResponse)
        asked, self._asked = self._asked, {}
        if answer.error_code:
            self._refuse_all(asked, known_code(answer.error_code))
            return
        for result in answer.results_by_transaction:
            question = asked.pop(result.transactional_id, None)
            if question is None:
                continue
            # A partition without an answer may not be written to.
            errors = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
            for topic in result.topic_results:
                for each in topic.results_by_partition:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if partition in errors:
                        errors[partition] = known_code(each.partition_error_code)
            question.then(errors)
        self._refuse_all(asked, ErrorCode.NETWORK_EXCEPTION)

    def _refuse_all(self, asked: dict[str, Question], code: ErrorCode) -> None:
        if asked:
            _log.warning("broker %d answers no verification: %s", self.broker_id, code.name)
        if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            code = ErrorCode.INVALID_TXN_STATE  # a matter between the brokers, as in Kafka
        for question in asked.values():
            question.refuse(code)

    def _on_failed(self, error: LaneError) -> None:
        asked, self._asked = self._asked, {}
        _log.info("%d verifications have no answer: %s", len(asked), error)
        for question in asked.values():
            can_skip = error.failure is LaneFailure.UNSUPPORTED and not question.is_add
            question.refuse(ErrorCode.NONE if can_skip else ErrorCode.NETWORK_EXCEPTION)


def _is_newer(one: Question, other: Question) -> bool:
    """Whether the one fences the other."""
    return one.producer_id == other.producer_id and one.producer_epoch > other.producer_epoch


def _transaction(question: Question) -> AddPartitionsToTxnTransaction:
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in question.partitions:
        topics.setdefault(name, AddPartitionsToTxnTopic(name=name)).partitions.append(number)
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer_id,
        producer_epoch=question.producer_epoch,
        verify_only=not question.is_add,
        topics=list(topics.values()),
    )
