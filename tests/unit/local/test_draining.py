"""Where replicas go from a broker that leaves."""

import pytest

from odradek.core.ids import TopicPartition
from odradek.local.draining import plan_drain
from odradek.local.errors import LocalClusterError
from odradek.local.story import PartitionView


def partitions(*replicas: tuple[int, ...]) -> dict[TopicPartition, PartitionView]:
    return {
        TopicPartition("t", index): PartitionView(each[0], 1, each, each)
        for index, each in enumerate(replicas)
    }


def moved(plan: dict[TopicPartition, list[int]]) -> dict[int, list[int]]:
    return {key.partition: replicas for key, replicas in plan.items()}


def test_each_replica_goes_where_there_are_fewest_and_keeps_its_place() -> None:
    found = plan_drain(partitions((1, 2), (2, 1), (1, 3), (3, 4)), 1, {2: None, 3: None, 4: None})
    assert moved(found) == {0: [4, 2], 1: [2, 3], 2: [2, 3]}


def test_a_rack_that_the_partition_does_not_use_comes_first() -> None:
    racks = {2: "b", 3: "b", 4: "a"}
    assert moved(plan_drain(partitions((1, 2), (4,), (4,)), 1, racks)) == {0: [4, 2]}


def test_brokers_that_have_nothing_to_move_leave_at_once() -> None:
    assert plan_drain(partitions((1, 2)), 3, {1: None, 2: None}) == {}


def test_a_replica_that_has_no_place_to_go_keeps_its_broker() -> None:
    with pytest.raises(LocalClusterError, match=r"^node 1 cannot go: .* replica of t-0; `odradek"):
        plan_drain(partitions((1, 2), (1,)), 1, {2: None})
    many = partitions(*[(1, 2)] * 5)
    with pytest.raises(LocalClusterError, match=r"replica of t-0, t-1, t-2…;"):
        plan_drain(many, 1, {2: None})
