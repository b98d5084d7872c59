"""On which brokers the replicas of new partitions go.

Rules, the first ones win:

1. At most one replica of a partition on a broker; the first replica, the leader, on one that is
   unfenced.
2. Leaders are balanced: the next one is always a broker that leads least.
3. The replicas of a partition are spread over as many racks as there are, as evenly as possible.
4. Unfenced brokers before fenced ones.
5. Replicas are balanced over racks (by their size) and brokers.

Kafka stripes partitions over rings of racks and brokers; this counts instead. It gives the same
spread over racks, and keeps leaders within one of each other also where the number of racks
and their sizes have a common divisor, which rings do not. Ties are broken by a ring that is
shuffled after each lap, so that brokers do not always get the same partners: when one fails, its
leaders go to many.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple

from odradek.core.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


def place_replicas(
    brokers: Sequence[UsableBroker],
    *,
    partitions: int,
    replication_factor: int,
    random: Random,
    existing: Iterable[Sequence[int]] = (),
) -> list[tuple[int, ...]]:
    """Return the replicas of all new partitions at once; see ``place_each``."""
    return list(
        place_each(
            brokers,
            partitions=partitions,
            replication_factor=replication_factor,
            random=random,
            existing=existing,
        )
    )


def place_each(
    brokers: Sequence[UsableBroker],
    *,
    partitions: int,
    replication_factor: int,
    random: Random,
    existing: Iterable[Sequence[int]] = (),
) -> Iterator[tuple[int, ...]]:
    """Return the replicas of each new partition, preferred leader first, as they are asked for.

    ``existing`` are the replicas of partitions that the topic has already: they count as placed.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR, there are too few brokers.
    """
    if all(broker.fenced for broker in brokers):
        problem = "All brokers are currently fenced, or have all their log directories cordoned."
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    if replication_factor > len(brokers):
        problem = (
            f"The target replication factor of {replication_factor} cannot be reached because only "
            f"{len(brokers)} broker(s) are registered or some brokers have all their log "
            "directories cordoned."
        )
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, problem)
    placement = _Placement(brokers, random)
    for replicas in existing:
        placement.count(replicas)
    return (placement.place(replication_factor) for _ in range(partitions))


class _Placement:
    def __init__(self, brokers: Sequence[UsableBroker], random: Random) -> None:
        self.brokers = sorted(brokers)
        self.unfenced = [broker for broker in self.brokers if not broker.fenced]
        self.random = random
        self.rack_of = {broker.broker_id: broker.rack for broker in self.brokers}
        self.rack_size = Counter(self.rack_of.values())
        self.rack_replicas: Counter[str | None] = Counter()
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.until_shuffle = 0
        self.ring: dict[int, int] = {}

    def place(self, replication_factor: int) -> tuple[int, ...]:
        self._turn_ring()
        leader = min(self.unfenced, key=self._leader_order)
        chosen = [leader.broker_id]
        racks = Counter([leader.rack])
        while len(chosen) < replication_factor:
            left = (each for each in self.brokers if each.broker_id not in chosen)
            follower = min(left, key=lambda each: (racks[each.rack], *self._follower_order(each)))
            chosen.append(follower.broker_id)
            racks[follower.rack] += 1
        self.count(chosen)
        return tuple(chosen)

    def count(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] += 1
        for broker_id in replicas:
            self.replicas[broker_id] += 1
            if broker_id in self.rack_of:
                self.rack_replicas[self.rack_of[broker_id]] += 1

    def _leader_order(self, broker: UsableBroker) -> tuple[float, ...]:
        broker_id = broker.broker_id
        return (
            self.leaders[broker_id],
            self._rack_load(broker.rack),
            self.replicas[broker_id],
            self.ring[broker_id],
        )

    def _follower_order(self, broker: UsableBroker) -> tuple[float, ...]:
        # Those who lead much already come first: the others are wanted as leaders soon.
        broker_id = broker.broker_id
        return (
            broker.fenced,
            self._rack_load(broker.rack),
            self.replicas[broker_id],
            -self.leaders[broker_id],
            self.ring[broker_id],
        )

    def _rack_load(self, rack: str | None) -> float:
        return self.rack_replicas[rack] / self.rack_size[rack]

    def _turn_ring(self) -> None:
        if self.until_shuffle == 0:
            order = [broker.broker_id for broker in self.brokers]
            self.random.shuffle(order)
            self.ring = {broker_id: place for place, broker_id in enumerate(order)}
            self.until_shuffle = len(order)
        self.until_shuffle -= 1
