"""What a leader knows of a follower, from its fetches alone. Hot path.

A follower is *caught up* at the time of a fetch that asks for the end of the log. Under constant
writes none ever does: by then the log is longer. So a fetch that asks for the end as it was at the
fetch before says that the follower was caught up at that time.
"""

from typing import Final

UNKNOWN_OFFSET: Final = -1
NEVER_MS: Final = -(1 << 62)
NO_BROKER_EPOCH: Final = -1
"""Of followers that do not say it: those before Fetch v15."""


class FollowerState:
    __slots__ = (
        "broker_epoch",
        "last_caught_up_ms",
        "last_fetch_ms",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
        "node_id",
    )

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.forget(NEVER_MS)

    def forget(self, last_caught_up_ms: int) -> None:
        """Know nothing of its log: this node has only now become the leader."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.last_fetch_ms = NEVER_MS
        self.last_caught_up_ms = last_caught_up_ms
        self.broker_epoch: int | None = None

    def begin_epoch(self, leader_end: int, *, is_in_sync: bool, now_ms: int) -> None:
        """Keep what is known: the same node leads on, in another epoch."""
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch_ms = self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS

    def on_fetch(
        self, offset: int, log_start_offset: int, leader_end: int, broker_epoch: int, now_ms: int
    ) -> None:
        """Take note of a fetch that was served: all before ``offset`` is in the follower's log."""
        if offset >= leader_end:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif offset >= self.leader_end_at_last_fetch:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = max(leader_end, self.leader_end_at_last_fetch)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def on_still_caught_up(self, at_ms: int) -> None:
        """Take note that at this time it asked for the end of the log, as it had before.

        A leader need not look at each partition of a fetch in which nothing has changed. It looks
        when something does, and learns then until when the follower was caught up.
        """
        self.last_caught_up_ms = max(self.last_caught_up_ms, at_ms)

    def on_removed(self) -> None:
        """Take note that it is in sync no longer: whether it is caught up, its next fetch says."""
        self.last_caught_up_ms = NEVER_MS

    def is_caught_up(self, leader_end: int, lag_ms_max: int, now_ms: int) -> bool:
        return self.log_end_offset == leader_end or now_ms - self.last_caught_up_ms <= lag_ms_max
