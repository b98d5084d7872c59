"""A fetch session with one broker (KIP-227): only what changed is asked for again. Pure.

The broker remembers the partitions of a session, and what was asked of each. A request then has
those that are new or want something else, and names those to forget. Each request has the next
epoch; if the broker has lost the thread, or the connection broke, a new session begins with
everything.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid

NO_SESSION: Final = 0
FIRST_EPOCH: Final = 0
_EPOCH_MAX: Final = 2**31 - 1

LOST: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Wanted(NamedTuple):
    """What is asked of one partition."""

    topic_id: Uuid
    offset: int
    leader_epoch: int
    bytes_max: int


class SessionRequest(NamedTuple):
    session_id: int
    epoch: int
    send: Mapping[TopicPartition, Wanted]
    forget: Mapping[TopicPartition, Uuid]


class FetchSession:
    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[TopicPartition, Wanted] = {}

    def plan(self, wanted: Mapping[TopicPartition, Wanted]) -> SessionRequest:
        """Return what to send so that the broker looks at exactly ``wanted``."""
        if self._epoch == FIRST_EPOCH:
            request = SessionRequest(self.session_id, FIRST_EPOCH, dict(wanted), {})
        else:
            send = {p: each for p, each in wanted.items() if self._known.get(p) != each}
            forget = {
                partition: known.topic_id
                for partition, known in self._known.items()
                # Under its id a topic that was made anew is another one to the broker.
                if partition not in wanted or wanted[partition].topic_id != known.topic_id
            }
            request = SessionRequest(self.session_id, self._epoch, send, forget)
        self._known = dict(wanted)
        return request

    def on_answer(self, error_code: int, session_id: int) -> None:
        """Go on, or begin anew with the next request."""
        if error_code:
            self.reset(keep_id=error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        elif session_id == NO_SESSION:
            self.reset()  # the broker has no room for sessions
        else:
            self.session_id = session_id
            self._epoch = 1 if self._epoch >= _EPOCH_MAX else self._epoch + 1

    def reset(self, *, keep_id: bool = False) -> None:
        """Begin anew; with the old id the broker can drop the old session at once."""
        self.session_id = self.session_id if keep_id else NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known = {}
