"""The times of a quorum: Kafka's ``controller.quorum.*`` settings and their defaults."""

from random import Random
from typing import Final, NamedTuple

PARKED_FETCHES_MAX: Final = 1_000
"""Fetches that wait for news at a leader; one more is answered at once, with none."""

OBSERVERS_MAX: Final = 10_000
"""Replicas without a vote that a leader keeps an account of."""

OBSERVER_SESSION_TIMEOUT_MS: Final = 300_000

CAUGHT_UP_MS: Final = 3_600_000
"""How long ago a replica may have fetched last that is to become a voter."""


class RaftConfig(NamedTuple):
    election_timeout_ms: int = 1_000
    election_backoff_max_ms: int = 1_000
    fetch_timeout_ms: int = 2_000
    fetch_max_wait_ms: int = 500
    request_timeout_ms: int = 2_000
    retry_backoff_ms: int = 20
    fetch_snapshot_max_bytes: int = 1 << 20
    auto_join: bool = False
    """Whether a controller without a vote asks for one by itself."""

    @property
    def check_quorum_timeout_ms(self) -> int:
        # Half as long again as a follower waits: it should notice before its leader does.
        return self.fetch_timeout_ms * 3 // 2

    @property
    def own_voter_interval_ms(self) -> int:
        """How often a follower looks whether the voters have it as it is."""
        return self.fetch_timeout_ms

    @property
    def begin_quorum_epoch_interval_ms(self) -> int:
        return self.fetch_timeout_ms // 2

    def random_election_timeout_ms(self, random: Random) -> int:
        return self.election_timeout_ms + random.randrange(max(self.election_timeout_ms, 1))

    def random_first_timeout_ms(self, random: Random) -> int:
        """Return how long a voter waits after its start, if it knows of no leader.

        Short, because a pre-vote disturbs no leader that there may be. Random, because voters that
        start together would split the vote if they stood at the same time (ADR 17).
        """
        return random.randrange(max(self.election_timeout_ms // 5, 1))

    def follower_timeout_ms(self, position: int, count: int) -> int:
        """Return how long the ``position``-th of ``count`` followers bears with a silent leader.

        They hear from it at the same times. If they gave up at the same time, too, they would
        split the vote and wait out an election timeout.
        """
        return self.fetch_timeout_ms + self.fetch_timeout_ms * position // (4 * max(count, 1))

    def successor_backoff_ms(self, position: int, count: int) -> int:
        """Return how long the ``position``-th of ``count`` preferred candidates holds back."""
        if position == 0:
            return 0
        if position >= count:
            return self.election_backoff_max_ms
        base_ms = self.election_backoff_max_ms >> (count - 1)
        return min(self.election_backoff_max_ms, base_ms << (position - 1))
