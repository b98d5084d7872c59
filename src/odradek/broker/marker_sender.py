"""Brings the markers of decided transactions to the leaders of their partitions (WriteTxnMarkers).

The coordinator hands over what is decided and committed, once. From then on each partition is
somewhere here until it has its marker:

- in the queue of the broker that leads it: one request is under way to a broker, with the markers
  of many transactions, and what comes meanwhile goes with the next (``PeerQueue``)
- with its log, if this broker leads it: the same question without a request
- among those without a leader, looked at again whenever the metadata changes
- among those that wait for another try, because their leader said so or was not reached

Who leads a partition, and whether it still exists, is always asked of one image: a partition that
is gone with its topic needs no marker, one without a leader does. (Kafka takes the second for the
first, and the transaction hangs in that partition.)

No partition is dropped for lack of space. What is here is bounded by what is decided and not
complete: at most one transaction for each transactional id that the shards remember.

What leaders answer::

    it has its marker   NONE
                        INVALID_PRODUCER_EPOCH          a later epoch wrote there, so it had one
                        UNSUPPORTED_FOR_MESSAGE_FORMAT, UNSUPPORTED_VERSION: no records either
    the transaction     TRANSACTION_COORDINATOR_FENCED  a coordinator of a later epoch goes on
    is given up
    tried again         all else, and no answer at all; what Kafka does not expect is logged

Kafka's coordinator gives up after INVALID_PRODUCER_EPOCH too, and the transaction stays undone
until the coordinator moves. A marker that is written twice does no harm.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from odradek.broker.peer_queue import PeerQueue, known_code
from odradek.broker.transaction_markers import append_marker
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.core.slices import Steps
from odradek.metadata.partition import NO_LEADER
from odradek.protocol.generated.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.protocol.message import Message
from odradek.wire.lane import LaneError

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.coordinator.transaction.markers import MarkersToWrite

MARKER_RETRY_MS: Final = 100
PARTITIONS_PER_REQUEST_MAX: Final = 2_000
"""A leader appends them all before it answers anything else on the connection."""
PARTITIONS_PER_STEP: Final = 50
"""Looked at, or written here, before others may have their turn: some milliseconds."""
VERSION_MIN: Final = 1
_log: Final = logging.getLogger("odradek.transactions")

HAS_MARKER: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
GIVES_UP: Final = frozenset({ErrorCode.TRANSACTION_COORDINATOR_FENCED})
EXPECTED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""What a leader says while it cannot write, or does not lead."""


class MarkerWriting:
    """The markers of one transaction, while they are written."""

    __slots__ = ("has_warned", "is_given_up", "is_over", "markers", "written")

    def __init__(
        self,
        markers: "MarkersToWrite",
        is_over: Callable[[], bool],
        written: Callable[[Iterable[TopicPartition]], None],
    ) -> None:
        """``is_over`` says whether another coordinator, or none, writes what is left.

        ``written`` is called once for each partition that has its marker or needs none.
        """
        self.markers = markers
        self.is_over = is_over
        self.written = written
        self.is_given_up = False
        self.has_warned = False

    @property
    def is_wanted(self) -> bool:
        return not (self.is_given_up or self.is_over())


Partitions = list[TopicPartition]
Waiting = dict[MarkerWriting, Partitions]


class MarkerSender:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._queues: dict[int, _LeaderQueue] = {}
        self._leaderless: Waiting = {}
        self._again: Waiting = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def retries(self) -> int:
        """How many transactions have partitions that wait for another try, or for a leader."""
        return len(self._again.keys() | self._leaderless.keys())

    def send(
        self,
        markers: "MarkersToWrite",
        is_over: Callable[[], bool],
        written: Callable[[Iterable[TopicPartition]], None],
    ) -> MarkerWriting:
        """Bring the markers of a transaction to all its partitions, however long it takes."""
        writing = MarkerWriting(markers, is_over, written)
        self._route(writing, markers.partitions)
        return writing

    def on_update(self) -> None:
        """Look again who leads what had no leader; give up peers that are gone."""
        for queue in list(self._queues.values()):
            queue.on_update()
            if queue.broker_id not in self._broker.image.brokers and not queue.has_work:
                self._queues.pop(queue.broker_id).close()
        leaderless, self._leaderless = self._leaderless, {}
        for writing, partitions in leaderless.items():
            self._route(writing, partitions)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for queue in self._queues.values():
            queue.close()

    # Where to.

    def _route(self, writing: MarkerWriting, partitions: Sequence[TopicPartition]) -> None:
        if len(partitions) <= PARTITIONS_PER_STEP:
            self._route_some(writing, partitions)
        else:
            self._broker.slices.run(self._route_in_steps(writing, partitions), lambda _: None)

    def _route_in_steps(
        self, writing: MarkerWriting, partitions: Sequence[TopicPartition]
    ) -> Steps[None]:
        # A transaction may have very many partitions that this broker leads.
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            self._route_some(writing, partitions[start : start + PARTITIONS_PER_STEP])
            yield

    def _route_some(self, writing: MarkerWriting, partitions: Iterable[TopicPartition]) -> None:
        if self._is_closed or not writing.is_wanted:
            return
        done = []
        for partition in partitions:
            leader = self.find_leader(partition)
            if leader is None:
                done.append(partition)  # the topic is gone
            elif leader == self._broker.node_id:
                code = self._write_here(writing, partition)
                if code is ErrorCode.NONE:
                    done.append(partition)
                elif code is not None:
                    self.on_outcomes(writing, [(partition, code)])
                    if writing.is_given_up:
                        break
            elif leader == NO_LEADER or self._broker.peers.find_address(leader) is None:
                self._leaderless.setdefault(writing, []).append(partition)
            else:
                self._queue_for(leader).add(writing, partition)
        if done:
            writing.written(done)

    def find_leader(self, partition: TopicPartition) -> int | None:
        """Return who leads a partition, NO_LEADER if none does; None if there is no such one."""
        topic = self._broker.image.topics.get(partition.topic)
        found = None if topic is None else topic.partitions.get(partition.partition)
        return None if found is None else found.leader

    def _queue_for(self, broker_id: int) -> "_LeaderQueue":
        queue = self._queues.get(broker_id)
        if queue is None:
            queue = self._queues[broker_id] = _LeaderQueue(self._broker, broker_id, self)
        return queue

    def _write_here(self, writing: MarkerWriting, partition: TopicPartition) -> ErrorCode | None:
        """Write a marker as the leader; return what became of it, None if that is still to come."""
        markers = writing.markers
        try:
            led, end_offset = append_marker(
                self._broker,
                partition,
                producer_id=markers.producer_id,
                producer_epoch=markers.producer_epoch,
                is_commit=markers.is_commit,
                coordinator_epoch=markers.coordinator_epoch,
                transaction_version=markers.transaction_version,
            )
        except ApiError as error:
            return error.code
        code = led.find_outcome(end_offset)
        if code is None:
            # Without a deadline: it is committed some day, or refused when leadership is lost.
            led.when_committed(
                end_offset, lambda code: self.on_outcomes(writing, [(partition, code)])
            )
        return code

    # What became of it.

    def on_outcomes(
        self, writing: MarkerWriting, outcomes: Iterable[tuple[TopicPartition, ErrorCode]]
    ) -> None:
        """Go on with partitions of one transaction whose leader has answered, or has not."""
        if self._is_closed or not writing.is_wanted:
            return
        written = []
        for partition, code in outcomes:
            if code in HAS_MARKER:
                written.append(partition)
            elif code in GIVES_UP:
                # There was a marker of a later coordinator, or of a client that claimed to be one.
                # As with Kafka the transaction stays as it was decided, and its producer hears
                # that it goes on. A coordinator of a later epoch writes what is left.
                writing.is_given_up = True
                named = writing.markers.transactional_id
                _log.error("markers of %s are given up: %s: %s", named, partition, code.name)
                return
            else:
                self._log_failure(writing, partition, code)
                self.try_again(writing, (partition,))
        if written:
            writing.written(written)

    def _log_failure(
        self, writing: MarkerWriting, partition: TopicPartition, code: ErrorCode
    ) -> None:
        # Once: it is tried ten times a second.
        is_quiet = code in EXPECTED or writing.has_warned
        writing.has_warned |= not is_quiet
        level = logging.DEBUG if is_quiet else logging.WARNING
        named = writing.markers.transactional_id
        _log.log(level, "marker of %s for %s: %s", named, partition, code.name)

    def try_again(self, writing: MarkerWriting, partitions: Iterable[TopicPartition]) -> None:
        """Look again in a moment who leads these partitions."""
        if self._is_closed:
            return
        self._again.setdefault(writing, []).extend(partitions)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(MARKER_RETRY_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        again, self._again = self._again, {}
        for writing, partitions in again.items():
            self._route(writing, partitions)


class _Sent(NamedTuple):
    writing: MarkerWriting
    partitions: Partitions


class _LeaderQueue(PeerQueue):
    """What waits for one broker, in the order in which it was decided."""

    def __init__(self, broker: "BrokerServer", broker_id: int, sender: MarkerSender) -> None:
        super().__init__(broker, "markers", broker_id, version_min=VERSION_MIN)
        self._sender = sender
        self._waiting: Waiting = {}
        self._sent: dict[int, _Sent] = {}
        """What is under way, by producer id: answers name nothing else."""

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._sent)

    def add(self, writing: MarkerWriting, partition: TopicPartition) -> None:
        self._waiting.setdefault(writing, []).append(partition)
        self.wake()

    def _next_request(self) -> Message | None:
        room = PARTITIONS_PER_REQUEST_MAX
        for writing in list(self._waiting):
            if room <= 0:
                break
            if writing.markers.producer_id in self._sent:
                continue  # of an earlier epoch of the coordinator
            partitions = self._take(writing, room)
            if partitions:
                self._sent[writing.markers.producer_id] = _Sent(writing, partitions)
                room -= len(partitions)
        if not self._sent:
            return None
        return WriteTxnMarkersRequest(markers=[_marker(*each) for each in self._sent.values()])

    def _take(self, writing: MarkerWriting, room: int) -> Partitions:
        """Take what this broker still leads; what moved meanwhile is looked at again."""
        waiting = self._waiting.pop(writing)
        if not writing.is_wanted:
            return []
        here = [each for each in waiting if self._sender.find_leader(each) == self.broker_id]
        if len(here) < len(waiting):
            led = set(here)
            self._sender.try_again(writing, [each for each in waiting if each not in led])
        if here[room:]:
            self._waiting[writing] = here[room:]
        return here[:room]

    def _on_answer(self, answer: Message) -> None:
        assert isinstance(answer, WriteTxnMarkersResponse)
        sent, self._sent = self._sent, {}
        codes: dict[int, dict[TopicPartition, int]] = {}
        for marker in answer.markers:
            found = codes.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                for each in topic.partitions:
                    found[TopicPartition(topic.name, each.partition_index)] = each.error_code
        for producer_id, (writing, partitions) in sent.items():
            found = codes.get(producer_id, {})
            # Without an answer it is tried again.
            missing = ErrorCode.UNKNOWN_SERVER_ERROR
            outcomes = [(each, known_code(found.get(each, missing))) for each in partitions]
            self._sender.on_outcomes(writing, outcomes)

    def _on_failed(self, error: LaneError) -> None:
        _log.debug("markers for broker %d: %s", self.broker_id, error)
        sent, self._sent = self._sent, {}
        for writing, partitions in sent.values():
            self._sender.try_again(writing, partitions)


def _marker(writing: MarkerWriting, partitions: Partitions) -> WritableTxnMarker:
    topics: dict[str, WritableTxnMarkerTopic] = {}
    for name, number in partitions:
        topic = topics.setdefault(name, WritableTxnMarkerTopic(name=name))
        topic.partition_indexes.append(number)
    markers = writing.markers
    return WritableTxnMarker(
        producer_id=markers.producer_id,
        producer_epoch=markers.producer_epoch,
        transaction_result=markers.is_commit,
        topics=list(topics.values()),
        coordinator_epoch=markers.coordinator_epoch,
        transaction_version=markers.transaction_version,
    )
