"""The follower's side of a fetch session (KIP-227): what the leader thinks is asked. Pure.

A request within a session names only the partitions whose question has changed, and those that are
no longer asked for. A full request names everything. It opens a session and closes the one whose
id it carries, so a session whose end the follower does not know takes no slot of the leader for
long. A leader without a free slot answers with session id 0: then every request is a full one.

::

    next request        after
    id 0, epoch 0       the start; the leader has no room, or has closed the session
    id n, epoch 0       an answer was lost, or the leader counts the epochs otherwise
    id n, epoch m > 0   an answer within the session
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from odradek.broker.partition import Partition
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.generated.fetch import FetchPartition, FetchTopic, ForgottenTopic
from odradek.replication.following import Following, Wanted

NO_SESSION: Final = 0
FULL: Final = 0
EPOCH_MAX: Final = 2**31 - 1
SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)

PartitionId = tuple[Uuid, int]


class Question(NamedTuple):
    """What is asked for a partition, and by which of its lives as a follower."""

    partition: Partition
    following: Following
    wanted: Wanted

    @property
    def is_current(self) -> bool:
        return self.partition.following is self.following


class ReplicaSession:
    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = FULL
        """Of the next request."""
        self.questions: dict[PartitionId, Question] = {}
        """All that is asked, once the next request is sent."""
        self._changed: dict[PartitionId, None] = {}
        self._forgotten: dict[PartitionId, None] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self.epoch == FULL

    # What is asked.

    def ask(self, at: PartitionId, question: Question) -> None:
        if self.questions.get(at) == question:
            return  # the leader knows
        self.questions[at] = question
        self._changed[at] = None
        self._forgotten.pop(at, None)

    def forget(self, at: PartitionId) -> None:
        if self.questions.pop(at, None) is not None:
            self._changed.pop(at, None)
            self._forgotten[at] = None

    def take_changes(
        self, partition_bytes_max: int
    ) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
        """Return what the next request says, which is about to be sent."""
        changed, self._changed = self._changed, {}
        forgotten, self._forgotten = self._forgotten, {}
        if self.is_full:
            return self._named(self.questions, partition_bytes_max), []
        return self._named(changed, partition_bytes_max), _forgotten_topics(forgotten)

    def _named(self, which: Iterable[PartitionId], partition_bytes_max: int) -> list[FetchTopic]:
        topics: dict[Uuid, FetchTopic] = {}
        for at in which:
            topic_id, number = at
            wanted = self.questions[at].wanted
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id)
            topic.partitions.append(
                FetchPartition(
                    partition=number,
                    current_leader_epoch=wanted.leader_epoch,
                    fetch_offset=wanted.offset,
                    last_fetched_epoch=wanted.last_fetched_epoch,
                    log_start_offset=wanted.log_start_offset,
                    partition_max_bytes=partition_bytes_max,
                )
            )
        return list(topics.values())

    # What became of it.

    def on_answer(self, session_id: int) -> None:
        """Go on within the session that a sound answer names."""
        if self.is_full:
            self.session_id = session_id
            self.epoch = FULL if session_id == NO_SESSION else 1
        elif session_id == NO_SESSION:  # the leader has closed it
            self.session_id, self.epoch = NO_SESSION, FULL
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1

    def on_refused(self, code: ErrorCode) -> None:
        """Begin again: the leader refuses the request as a whole."""
        if code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self.session_id = NO_SESSION
        self.on_lost()

    def on_lost(self) -> None:
        """Begin again: nobody knows what the leader has taken note of. All is to be asked anew."""
        self.epoch = FULL
        self.questions = {}
        self._changed = {}
        self._forgotten = {}

    def check_invariants(self) -> None:
        assert set(self._changed) <= set(self.questions)
        assert not set(self._forgotten) & set(self.questions)


def _forgotten_topics(forgotten: Iterable[PartitionId]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, number in forgotten:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id)
        topic.partitions.append(number)
    return list(topics.values())
