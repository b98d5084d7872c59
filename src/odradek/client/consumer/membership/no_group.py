"""Subscribing without a group: this consumer has every partition of its topics, and nobody asks.

It stands where a membership of a group stands, so that listeners, patterns and topics that grow
work as they do there. Positions begin where ``auto.offset.reset`` says, and are committed nowhere.
"""

from odradek.client.cluster import Cluster
from odradek.client.consumer.hooks import Hooks
from odradek.client.consumer.membership.rebalance import Rebalance
from odradek.client.consumer.membership.standing import Standing
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.consumer.subscription import Mode, Subscription
from odradek.core.ids import TopicPartition


class NoGroup:
    def __init__(
        self, cluster: Cluster, subscription: Subscription, rebalance: Rebalance, hooks: Hooks
    ) -> None:
        self._cluster = cluster
        self._subscription = subscription
        self._rebalance = rebalance
        self._hooks = hooks
        self.needs_attention = True
        self.is_lost = False

    def standing(self) -> Standing:
        return Standing(ConsumerGroupMetadata(""))

    def on_poll(self) -> None:
        """Nobody waits for a sign of life."""

    def on_wait(self) -> None:
        """The same."""

    def check_soon(self) -> None:
        """There is nothing to be left behind by."""

    def on_subscription(self) -> None:
        self.on_metadata()

    def on_metadata(self) -> None:
        if self._wanted() != self._rebalance.owned:
            self.needs_attention = True
            self._hooks.on_attention()

    async def attend(self) -> None:
        """Give up what is gone, take what is new; in the application's task."""
        wanted = self._wanted()
        await self._rebalance.revoke(self._rebalance.owned - wanted)
        if wanted != self._rebalance.owned:
            await self._rebalance.assign(wanted)
        self.needs_attention = self._wanted() != self._rebalance.owned

    def _wanted(self) -> frozenset[TopicPartition]:
        metadata, topics = self._cluster.metadata, self._subscription.topics
        found = {
            TopicPartition(name, number)
            for name in topics
            if name in metadata.topics
            for number in metadata.topics[name].partitions
        }
        # A topic that a broker cannot speak of now may be back soon. To give its partitions up
        # would lose the positions, which nobody else keeps.
        is_by_pattern = self._subscription.mode is Mode.PATTERN
        silent = (
            each
            for each in self._rebalance.owned
            if each.topic in metadata.topic_errors and (is_by_pattern or each.topic in topics)
        )
        return frozenset(found.union(silent))

    async def leave(self) -> None:
        self.needs_attention = True

    async def stop(self) -> None:
        """Nothing runs."""
