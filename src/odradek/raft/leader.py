"""What a leader knows: how far each replica has come, and with that, what is committed.

A record is committed when a majority of the voters have it on disk. Followers say so by the offset
they fetch from; the leader's own log counts as far as it is flushed. And it must be a record of the
leader's own epoch: an older one on a majority can still be replaced by a leader that never saw it
(figure 8 of the Raft paper). ``epoch_start_offset`` is where the LeaderChange record lies, so a
high watermark beyond it has one of ours below.
"""

from dataclasses import dataclass, field

from odradek.raft.config import OBSERVER_SESSION_TIMEOUT_MS, OBSERVERS_MAX
from odradek.raft.messages import FetchRequest, ReplicaKey
from odradek.raft.voter_change import VoterChange
from odradek.raft.voters import VoterSet


@dataclass(slots=True)
class Progress:
    key: ReplicaKey
    end_offset: int | None = None  # None: has not fetched in this epoch
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_offset: int = 0  # of our log, at the last fetch

    def on_fetch(self, fetch_offset: int, leader_end_offset: int, now_ms: int) -> None:
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif self.last_fetch_ms is not None and fetch_offset >= self.leader_end_offset:
            self.last_caught_up_ms = self.last_fetch_ms
        self.end_offset = fetch_offset
        self.leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms


@dataclass(slots=True)
class ParkedFetch:
    """A fetch with nothing to tell; answered when there is, or at its deadline."""

    request: FetchRequest
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    key: ReplicaKey
    voters: VoterSet
    epoch_start_offset: int
    check_quorum_deadline_ms: int | None  # None: no other voters
    begin_epoch_deadline_ms: int | None
    high_watermark: int | None = None
    """Not known before a record of this epoch is committed, whatever this node knew earlier:
    only so does the high watermark that the quorum shows never go back."""
    urgent_offset: int = 0
    """Behind the last record that is no no-op: replicas hear at once that it is committed. Of
    no-op records that follow they hear with the next answer, which spares each of them a fetch."""
    progress: dict[int, Progress] = field(default_factory=dict)
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    fetched_voters: set[int] = field(default_factory=set)  # since check-quorum last passed
    parked: list[ParkedFetch] = field(default_factory=list)
    change: VoterChange | None = None
    volatile_voters: VoterSet | None = None
    """In kraft.version 0: the static voters, with what they said of themselves in this epoch."""

    def __post_init__(self) -> None:
        self.progress = {voter.id: Progress(voter) for voter in self.voters.others(self.key.id)}

    def change_voters(self, voters: VoterSet) -> None:
        """Count by another set; what is known of a replica that gets or loses its vote stays."""
        known = {each.key: each for each in (*self.progress.values(), *self.observers.values())}
        self.voters = voters
        self.progress = {
            voter.id: known.get(voter, Progress(voter)) for voter in voters.others(self.key.id)
        }
        self.observers = {
            key: progress for key, progress in known.items() if not voters.contains(key)
        }
        self.fetched_voters &= self.progress.keys()

    @property
    def _own_votes(self) -> int:
        """1, or 0 for a leader that is being removed: it must not count itself."""
        return int(self.voters.contains(self.key))

    def find_voter(self, key: ReplicaKey) -> Progress | None:
        found = self.progress.get(key.id)
        return found if found is not None and found.key.matches(key) else None

    def on_fetch(self, request: FetchRequest, leader_end_offset: int, now_ms: int) -> bool:
        """Take note of a fetch whose offset was found valid; return whether a voter sent it."""
        voter = self.find_voter(request.replica)
        progress = voter or self._observer(request.replica, now_ms)
        if progress is not None:
            progress.on_fetch(request.fetch_offset, leader_end_offset, now_ms)
        if voter is not None:
            self.fetched_voters.add(voter.key.id)
        return voter is not None

    def on_snapshot_fetch(self, key: ReplicaKey) -> bool:
        """Take note that a replica downloads a snapshot; return whether a voter does."""
        voter = self.find_voter(key)
        if voter is not None:
            self.fetched_voters.add(voter.key.id)
        return voter is not None

    def has_quorum(self) -> bool:
        """Whether a majority, this leader included, was heard of since check-quorum last passed."""
        return len(self.fetched_voters) + self._own_votes >= self.voters.majority

    def majority_offset(self, flushed_offset: int) -> int | None:
        """Return the offset below which a majority has everything on disk."""
        offsets = [-1 if p.end_offset is None else p.end_offset for p in self.progress.values()]
        offsets += [flushed_offset] * self._own_votes
        offsets.sort(reverse=True)
        found = offsets[self.voters.majority - 1]
        return None if found < 0 else found

    def advance(self, flushed_offset: int) -> bool:
        """Move the high watermark if more is committed; return whether it moved."""
        offset = self.majority_offset(flushed_offset)
        if offset is None or offset <= self.epoch_start_offset:
            return False
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        return True

    def silent_voters(self, since_ms: int) -> list[ReplicaKey]:
        """Return the voters that have not fetched after ``since_ms``."""
        return [
            p.key
            for p in self.progress.values()
            if p.last_fetch_ms is None or p.last_fetch_ms <= since_ms
        ]

    def preferred_successors(self) -> tuple[ReplicaKey, ...]:
        """Return the other voters, the one with the longest log first."""
        ordered = sorted(
            self.progress.values(),
            key=lambda p: (-1 if p.end_offset is None else p.end_offset, -p.key.id),
            reverse=True,
        )
        return tuple(progress.key for progress in ordered)

    def take_parked(self, log_end_offset: int, now_ms: int) -> list[ParkedFetch]:
        """Take out the fetches that there is news for, or whose time is up."""
        due: list[ParkedFetch] = []
        waiting: list[ParkedFetch] = []
        for fetch in self.parked:
            has_news = self.has_news(fetch.request, log_end_offset)
            (due if has_news or fetch.deadline_ms <= now_ms else waiting).append(fetch)
        self.parked = waiting
        return due

    def has_news(self, request: FetchRequest, log_end_offset: int) -> bool:
        if request.fetch_offset < log_end_offset:
            return True
        if self.high_watermark is None:
            return False
        known = request.high_watermark
        return known is None or known < min(self.high_watermark, self.urgent_offset)

    def next_deadline_ms(self) -> int | None:
        times = [fetch.deadline_ms for fetch in self.parked]
        times += [
            time
            for time in (self.check_quorum_deadline_ms, self.begin_epoch_deadline_ms)
            if time is not None
        ]
        if self.change is not None:
            times.append(self.change.deadline_ms)
        return min(times, default=None)

    def _observer(self, key: ReplicaKey, now_ms: int) -> Progress | None:
        if key.id < 0 or key.id == self.key.id:  # not a replica, a tool that reads along
            return None
        if key not in self.observers and len(self.observers) >= OBSERVERS_MAX:
            self._drop_silent_observers(now_ms)
            if len(self.observers) >= OBSERVERS_MAX:
                return None
        return self.observers.setdefault(key, Progress(key))

    def _drop_silent_observers(self, now_ms: int) -> None:
        since_ms = now_ms - OBSERVER_SESSION_TIMEOUT_MS
        self.observers = {
            key: progress
            for key, progress in self.observers.items()
            if progress.last_fetch_ms is not None and progress.last_fetch_ms > since_ms
        }
