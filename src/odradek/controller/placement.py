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

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeAlias

from odradek.core.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    broker_id: int
    rack: str | None
    fenced: bool


_Entry: TypeAlias = tuple[int, int, int, int]
"""What orders a broker among those of its rack; its place in the ring, and its id, are last."""


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
    """Where replicas are so far, and the brokers lined up by it.

    Brokers of one rack differ only in what they have themselves. So each rack has its brokers in
    order, and only the first of each are compared: with a hundred brokers that is a tenth of the
    work of comparing all.
    """

    def __init__(self, brokers: Sequence[UsableBroker], random: Random) -> None:
        self.brokers = {broker.broker_id: broker for broker in sorted(brokers)}
        self.random = random
        self.rack_size = Counter(broker.rack for broker in brokers)
        self.rack_replicas: Counter[str | None] = Counter()
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        self.until_shuffle = 0
        self.ring: dict[int, int] = {}
        self.may_lead: dict[str | None, list[_Entry]] = {}
        self.may_follow: dict[tuple[str | None, bool], list[_Entry]] = {}

    def place(self, replication_factor: int) -> tuple[int, ...]:
        self._turn_ring()
        chosen = [self._next_leader()]
        racks = Counter([self.brokers[chosen[0]].rack])
        while len(chosen) < replication_factor:
            follower = self._next_follower(chosen, racks)
            chosen.append(follower)
            racks[self.brokers[follower].rack] += 1
        self.count(chosen)
        return tuple(chosen)

    def count(self, replicas: Sequence[int]) -> None:
        self.leaders[replicas[0]] += 1
        for broker_id in replicas:
            self.replicas[broker_id] += 1
            broker = self.brokers.get(broker_id)
            if broker is not None:
                self.rack_replicas[broker.rack] += 1
                self._move_back(broker, is_leader=broker_id == replicas[0])

    def _next_leader(self) -> int:
        firsts = (
            (leaders, self._rack_load(rack), replicas, ring, broker_id)
            for rack, ((leaders, replicas, ring, broker_id), *_) in self.may_lead.items()
        )
        return min(firsts)[-1]

    def _next_follower(self, chosen: Sequence[int], racks: Counter[str | None]) -> int:
        firsts = (
            (racks[rack], fenced, self._rack_load(rack), *entry)
            for (rack, fenced), entries in self.may_follow.items()
            if (entry := _first(entries, chosen)) is not None
        )
        return min(firsts)[-1]

    def _rack_load(self, rack: str | None) -> float:
        return self.rack_replicas[rack] / self.rack_size[rack]

    def _turn_ring(self) -> None:
        if self.until_shuffle == 0:
            order = list(self.brokers)
            self.random.shuffle(order)
            self.ring = {broker_id: place for place, broker_id in enumerate(order)}
            self.until_shuffle = len(order)
            self._line_up()
        self.until_shuffle -= 1

    # The lines.

    def _line_up(self) -> None:
        self.may_lead, self.may_follow = {}, {}
        for broker in self.brokers.values():
            as_leader, as_follower = self._entries(broker)
            if not broker.fenced:
                self.may_lead.setdefault(broker.rack, []).append(as_leader)
            self.may_follow.setdefault((broker.rack, broker.fenced), []).append(as_follower)
        for entries in (*self.may_lead.values(), *self.may_follow.values()):
            entries.sort()

    def _move_back(self, broker: UsableBroker, *, is_leader: bool) -> None:
        """Put a broker where it belongs now that it has a replica more."""
        if not self.ring:
            return  # not lined up yet
        leaders, replicas, ring, broker_id = self._entries(broker)[0]
        if not broker.fenced:
            before = leaders - is_leader, replicas - 1, ring, broker_id
            _replace(self.may_lead[broker.rack], before, (leaders, replicas, ring, broker_id))
        before = replicas - 1, is_leader - leaders, ring, broker_id
        entries = self.may_follow[broker.rack, broker.fenced]
        _replace(entries, before, (replicas, -leaders, ring, broker_id))

    def _entries(self, broker: UsableBroker) -> tuple[_Entry, _Entry]:
        """Return what orders a broker of a rack among those that may lead, and may follow."""
        broker_id = broker.broker_id
        leaders, replicas = self.leaders[broker_id], self.replicas[broker_id]
        ring = self.ring[broker_id]
        # Followers who lead much already come first: the others are wanted as leaders soon.
        return (leaders, replicas, ring, broker_id), (replicas, -leaders, ring, broker_id)


def _first(entries: Iterable[_Entry], chosen: Sequence[int]) -> _Entry | None:
    return next((each for each in entries if each[-1] not in chosen), None)


def _replace(entries: list[_Entry], before: _Entry, after: _Entry) -> None:
    del entries[bisect_left(entries, before)]
    insort(entries, after)
