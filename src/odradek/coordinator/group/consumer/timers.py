"""How long a consumer group waits for its members: soft state, on the monotonic clock.

| timer | runs | ends with |
|---|---|---|
| session | always | the next heartbeat |
| revocation | while a member has to give up partitions | the member's next epoch |
| join | since a classic member was told to join again | its JoinGroup |
| sync | since a classic member joined | its SyncGroup |

Whoever lets one run out is removed.
"""

from collections.abc import Mapping
from typing import Final

from odradek.coordinator.deadlines import Deadlines
from odradek.coordinator.group.consumer.member import Member, MemberState
from odradek.core.clock import Instant

REMOVAL_RETRY_MS: Final = 500
"""When to try again to remove a member, should the records that do it be lost."""


class Timers:
    def __init__(self) -> None:
        self._sessions = Deadlines()
        self._revocations = Deadlines()
        self._revoking_epochs: dict[str, int] = {}
        self._joins = Deadlines()
        self._syncs = Deadlines()

    def touch(self, member_id: str, session_timeout_ms: int, now: Instant) -> None:
        """Begin a session, or go on with it."""
        self._sessions.set(member_id, now.monotonic_ms + session_timeout_ms)

    def await_revocation(self, member: Member, now: Instant) -> None:
        """Run while the member has to give up partitions; stop when it has."""
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            due_ms = now.monotonic_ms + max(member.rebalance_timeout_ms, 0)
            self._revocations.set(member.member_id, due_ms)
            self._revoking_epochs[member.member_id] = member.member_epoch
        else:
            self._revocations.cancel(member.member_id)
            self._revoking_epochs.pop(member.member_id, None)

    def await_join(self, member: Member, now: Instant) -> None:
        if member.member_id not in self._joins:
            self._joins.set(member.member_id, now.monotonic_ms + member.rebalance_timeout_ms)

    def await_sync(self, member: Member, now: Instant) -> None:
        self._joins.cancel(member.member_id)
        self._syncs.set(member.member_id, now.monotonic_ms + member.rebalance_timeout_ms)

    def on_synced(self, member_id: str) -> None:
        self._syncs.cancel(member_id)

    def forget(self, member_id: str) -> None:
        for deadlines in (self._sessions, self._revocations, self._joins, self._syncs):
            deadlines.cancel(member_id)
        self._revoking_epochs.pop(member_id, None)

    def next_ms(self) -> int | None:
        every = (self._sessions, self._revocations, self._joins, self._syncs)
        return min((due for each in every if (due := each.next_ms()) is not None), default=None)

    def take_expired(self, members: Mapping[str, Member], now: Instant) -> list[str]:
        """Return which members have run out of time; deadlines without a member are dropped."""
        expired = dict.fromkeys(_take(self._sessions, now))
        for member_id in _take(self._revocations, now):
            epoch = self._revoking_epochs.pop(member_id, None)
            if member_id in members and members[member_id].member_epoch == epoch:
                expired[member_id] = None
        for member_id in (*_take(self._joins, now), *_take(self._syncs, now)):
            # It may have turned to the consumer protocol since.
            if member_id in members and members[member_id].classic is not None:
                expired[member_id] = None
        dead = [member_id for member_id in expired if member_id in members]
        for member_id in dead:
            self._sessions.set(member_id, now.monotonic_ms + REMOVAL_RETRY_MS)
        return dead


def _take(deadlines: Deadlines, now: Instant) -> list[str]:
    taken = []
    while (due_ms := deadlines.next_ms()) is not None and due_ms <= now.monotonic_ms:
        taken.append(deadlines.take_next())
    return taken
