"""What comes and goes in a rebalance: the subscription is changed, the listener is told.

All of this runs in the task of the application, inside its ``poll``. If that is cancelled while a
listener is at work, nothing has changed yet, and the listener is told again next time.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from odradek.client.consumer.subscription import Subscription
from odradek.core.ids import TopicPartition

_log: Final = logging.getLogger("odradek.client")


class Rebalance:
    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        *,
        before_revocation: Callable[[], Awaitable[None]],
        on_change: Callable[[], None],
    ) -> None:
        """``before_revocation`` commits, if that is automatic."""
        self._group_id = group_id
        self._subscription = subscription
        self._before_revocation = before_revocation
        self._on_change = on_change

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return frozenset(self._subscription.partitions)

    async def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Give partitions up, after the listener had its say."""
        if not partitions:
            return
        await self._before_revocation()
        await _finish(self._subscription.listener.on_revoked(_ordered(partitions)))
        self._drop(partitions)

    async def lose(self, partitions: Collection[TopicPartition]) -> None:
        """See to it that partitions are not read on: they are somebody else's.

        They are gone even if the listener fails, or it would stand between the application and its
        group for ever: one whose ``on_revoked`` commits fails each time it is called.
        """
        if not partitions:
            return
        try:
            await _finish(self._subscription.listener.on_lost(_ordered(partitions)))
        except Exception:
            self._drop(partitions)
            raise
        self._drop(partitions)

    def tell_of_loss(self, reason: str) -> None:
        """Have it in the log at once: the application may be busy for long."""
        lost = len(self._subscription.partitions)
        _log.warning("group %s: %d partitions are lost: %s", self._group_id, lost, reason)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Take exactly these; the listener hears of those that are new, even if there are none."""
        added = [each for each in _ordered(partitions) if each not in self.owned]
        self._subscription.set_partitions(_ordered(partitions))
        # Not read before the listener was told: it may seek.
        new = [self._subscription.partitions[each] for each in added]
        for state in new:
            state.is_held = True
        try:
            await _finish(self._subscription.listener.on_assigned(added))
        except BaseException:
            self._subscription.drop(added)
            raise
        finally:
            for state in new:
                state.is_held = False
        self._on_change()

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        self._subscription.drop(partitions)
        self._on_change()


def _ordered(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    return sorted(partitions)


async def _finish(told: Awaitable[None] | None) -> None:
    if told is not None:
        await told
