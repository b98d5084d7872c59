"""Wherever partitions are placed: no broker twice, racks spread, leaders and replicas balanced."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.controller.placement import UsableBroker, place_replicas


def spread(values: list[int], among: list[int]) -> int:
    counts = Counter(dict.fromkeys(among, 0))
    counts.update(values)
    return max(counts.values()) - min(counts.values())


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[UsableBroker], int, int, Random]:
    racks = draw(st.integers(1, 4))
    size = draw(st.integers(1, 12 // racks))
    brokers = [UsableBroker(i, f"r{i % racks}", fenced=False) for i in range(racks * size)]
    factor = draw(st.integers(1, len(brokers)))
    return brokers, draw(st.integers(1, 40)), factor, Random(draw(st.integers(0, 1000)))


@pytest.mark.seed_row("1.3", "1.5")
@given(cases())
def test_balanced(case: tuple[list[UsableBroker], int, int, Random]) -> None:
    brokers, partitions, factor, random = case
    placed = place_replicas(
        brokers, partitions=partitions, replication_factor=factor, random=random
    )
    ids = [broker.broker_id for broker in brokers]
    racks = {broker.broker_id: broker.rack for broker in brokers}
    assert len(placed) == partitions
    for replicas in placed:
        assert len(replicas) == factor == len(set(replicas))
        per_rack = Counter(racks[each] for each in replicas)
        fewest = min(per_rack[rack] for rack in set(racks.values()))
        assert max(per_rack.values()) - fewest <= 1
    assert spread([replicas[0] for replicas in placed], ids) <= 1
    # Rack by rack the replicas are within one of each other; the racks among themselves too,
    # which can add up to two where a partition has replicas in some racks only.
    everywhere = [each for replicas in placed for each in replicas]
    assert spread(everywhere, ids) <= (1 if len(set(racks.values())) == 1 else 2)


@pytest.mark.seed_row("1.3")
@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
    ),
    st.data(),
)
def test_any_cluster(found: list[tuple[str | None, bool]], data: st.DataObject) -> None:
    brokers = [UsableBroker(i, rack, fenced) for i, (rack, fenced) in enumerate(found)]
    unfenced = [broker.broker_id for broker in brokers if not broker.fenced]
    if not unfenced:
        return
    factor = data.draw(st.integers(1, len(brokers)))
    placed = place_replicas(brokers, partitions=20, replication_factor=factor, random=Random(1))
    for replicas in placed:
        assert len(set(replicas)) == len(replicas) == factor
        assert replicas[0] in unfenced
    assert spread([replicas[0] for replicas in placed], unfenced) <= 1


@given(st.integers(1, 8), st.integers(1, 20), st.integers(1, 20), st.integers(0, 99))
def test_added_partitions_keep_the_balance(count: int, first: int, more: int, seed: int) -> None:
    brokers = [UsableBroker(i, None, fenced=False) for i in range(count)]
    placed = place_replicas(brokers, partitions=first, replication_factor=1, random=Random(seed))
    placed += place_replicas(
        brokers, partitions=more, replication_factor=1, random=Random(seed), existing=placed
    )
    assert spread([replicas[0] for replicas in placed], list(range(count))) <= 1


@given(
    st.lists(
        st.tuples(st.sampled_from([None, "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
    ),
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=4, unique=True), max_size=9),
    st.data(),
)
def test_the_lines_choose_as_comparing_all_brokers_does(
    found: list[tuple[str | None, bool]], existing: list[list[int]], data: st.DataObject
) -> None:
    brokers = [UsableBroker(i, rack, fenced) for i, (rack, fenced) in enumerate(found)]
    if all(broker.fenced for broker in brokers):
        return
    factor = data.draw(st.integers(1, len(brokers)))
    seed = data.draw(st.integers(0, 99))
    placed = place_replicas(
        brokers, partitions=30, replication_factor=factor, random=Random(seed), existing=existing
    )
    assert placed == _placed_by_comparing(brokers, factor, Random(seed), existing, 30)


def _placed_by_comparing(
    brokers: list[UsableBroker],
    factor: int,
    random: Random,
    existing: list[list[int]],
    partitions: int,
) -> list[tuple[int, ...]]:
    """Say what the rules say, for each replica from the beginning and over all brokers."""
    placed: list[tuple[int, ...]] = []
    rack_of = {broker.broker_id: broker.rack for broker in brokers}
    for number in range(partitions):
        if number % len(brokers) == 0:
            ring = sorted(rack_of)
            random.shuffle(ring)
        chosen: list[int] = []
        replicas = Counter(each for row in [*existing, *placed] for each in row)
        leaders = Counter(row[0] for row in [*existing, *placed])
        load = {
            rack: sum(replicas[each] for each in rack_of if rack_of[each] == rack)
            / sum(each == rack for each in rack_of.values())
            for rack in rack_of.values()
        }
        while len(chosen) < factor:
            orders = {
                broker.broker_id: (
                    (
                        sum(rack_of[each] == broker.rack for each in chosen),
                        broker.fenced,
                        load[broker.rack],
                        replicas[broker.broker_id],
                        -leaders[broker.broker_id],
                    )
                    if chosen
                    else (
                        broker.fenced,
                        leaders[broker.broker_id],
                        load[broker.rack],
                        replicas[broker.broker_id],
                    )
                )
                for broker in brokers
                if broker.broker_id not in chosen
            }
            chosen.append(min(orders, key=lambda each: (*orders[each], ring.index(each))))
        placed.append(tuple(chosen))
    return placed
