"""Followers fetch from leaders: one fetcher per leader broker, times ``num.replica.fetchers``."""

from typing import TYPE_CHECKING

from odradek.broker.partition import Partition
from odradek.core.ids import TopicPartition
from odradek.core.java_hash import java_string_hash

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer
    from odradek.broker.fetcher import Fetcher


class Fetchers:
    """All fetchers of a broker."""

    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._where: dict[TopicPartition, Fetcher] = {}
        self._is_closed = False

    def follow(self, partition: Partition) -> None:
        """Fetch a partition from its leader from now on, or from none if it has none."""
        following = partition.following
        assert following is not None
        key, leader_id = partition.key, following.leader_id
        fetcher = self._where.get(key)
        if leader_id < 0 or self._is_closed:
            self.remove(key)
            return
        if fetcher is None or fetcher.leader_id != leader_id:
            self.remove(key)
            fetcher = self._fetcher_for(key, leader_id)
            self._where[key] = fetcher
        fetcher.add(partition)

    def remove(self, key: TopicPartition) -> None:
        fetcher = self._where.pop(key, None)
        if fetcher is not None:
            fetcher.remove(key)
            if not fetcher.partitions:
                del self._fetchers[fetcher.leader_id, fetcher.number]
                fetcher.close()

    @property
    def lag_max(self) -> int:
        """How many records the replica is behind its leader that is furthest."""
        return max((each.lag_max for each in self._fetchers.values()), default=0)

    def on_brokers_changed(self, broker_ids: frozenset[int]) -> None:
        """Look up again where these brokers listen, and ask them now if they are there again."""
        for fetcher in self._fetchers.values():
            if fetcher.leader_id in broker_ids:
                fetcher.on_leader_changed()

    def close(self) -> None:
        self._is_closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()

    def _fetcher_for(self, key: TopicPartition, leader_id: int) -> "Fetcher":
        from odradek.broker.fetcher import Fetcher  # a broker that follows no other needs none

        count = self._broker.config.integer("num.replica.fetchers")
        number = (31 * java_string_hash(key.topic) + key.partition) % count
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = Fetcher(self._broker, leader_id, number)
        return fetcher
