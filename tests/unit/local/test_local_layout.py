"""Which nodes `odradek up` makes of its options, and the file that says so."""

import json
from random import Random

import pytest

from odradek.core.config import load_broker_config, parse_overrides
from odradek.local.errors import LocalClusterError
from odradek.local.layout import (
    Layout,
    NodeLayout,
    Wishes,
    check_fits,
    from_json,
    initial_controllers,
    node_properties,
    plan_layout,
    to_json,
)


def plan(**wishes: object) -> Layout:
    return plan_layout(Wishes(**wishes), Random(1))  # type: ignore[arg-type]


def shape(layout: Layout) -> list[tuple[int, str, int | None, int | None]]:
    return [
        (node.id, ",".join(node.roles), node.port, node.controller_port) for node in layout.nodes
    ]


def test_by_default_there_are_three_nodes_that_are_everything() -> None:
    both = "broker,controller"
    assert shape(plan()) == [(1, both, 9092, 9192), (2, both, 9093, 9193), (3, both, 9094, 9194)]


def test_the_first_three_of_many_nodes_are_voters() -> None:
    assert [node.is_voter for node in plan(nodes=5).nodes] == [True, True, True, False, False]


def test_two_nodes_have_one_voter_because_two_could_not_lose_one() -> None:
    assert [node.is_voter for node in plan(nodes=2).nodes] == [True, False]


def test_separate_controllers_are_nodes_of_their_own() -> None:
    assert shape(plan(controllers="separate", nodes=2, base_port=7000)) == [
        (1, "broker", 7000, None),
        (2, "broker", 7001, None),
        (101, "controller", None, 7100),
    ]
    assert [node.id for node in plan(controllers="separate").controllers] == [101, 102, 103]


def test_racks_go_round() -> None:
    nodes = plan(nodes=4, racks=["a", "b", "c"]).nodes
    assert [node.rack for node in nodes] == ["a", "b", "c", "a"]


@pytest.mark.parametrize("racks", [["a", "", "b"], [""]])
def test_every_rack_has_a_name(racks: list[str]) -> None:
    with pytest.raises(LocalClusterError, match=f"^--racks {','.join(racks)}: give a name to each"):
        plan(nodes=3, racks=racks)


@pytest.mark.parametrize("nodes", [0, -1, 51])
def test_a_cluster_has_from_one_to_fifty_nodes(nodes: int) -> None:
    with pytest.raises(LocalClusterError, match=f"^--nodes {nodes}: choose from 1 to 50$"):
        plan(nodes=nodes)


@pytest.mark.parametrize("port", [0, -5, 65_400, 70_000])
def test_all_ports_are_ports(port: int) -> None:
    with pytest.raises(LocalClusterError, match=f"^--base-port {port}: choose from 1 to 65385$"):
        plan(base_port=port)


def test_a_node_starts_with_the_properties_of_its_roles() -> None:
    layout = plan(nodes=2, racks=["a"], controllers="separate")
    broker, _, controller = layout.nodes
    loaded = load_broker_config(
        parse_overrides([f"{k}={v}" for k, v in node_properties(layout, broker, "/d").items()])
    )
    assert not loaded.warnings
    assert loaded.config.is_broker
    assert not loaded.config.is_controller
    assert loaded.config.integer("offsets.topic.replication.factor") == 2
    found = node_properties(layout, controller, "/d")
    assert found["listeners"] == "CONTROLLER://127.0.0.1:9192"
    assert "broker.rack" not in found


def test_the_voters_are_written_as_storage_format_takes_them() -> None:
    layout = plan()
    ids = [node.directory_id for node in layout.nodes]
    assert initial_controllers(layout) == ",".join(
        f"{index + 1}@127.0.0.1:{9192 + index}:{ids[index]}" for index in range(3)
    )


def test_a_layout_comes_back_from_its_file() -> None:
    layout = plan(nodes=4, racks=["a", "b"], is_ephemeral=True)
    assert from_json(to_json(layout, "9.9"), "cluster.json") == layout


def test_a_file_of_another_version_is_refused_with_its_version() -> None:
    document = json.loads(to_json(plan(), "9.9")) | {"format": 2, "nodes": "another shape"}
    with pytest.raises(LocalClusterError, match=r"written by Odradek 9\.9 in format 2"):
        from_json(json.dumps(document), "cluster.json")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", "{}", '{"format": 1}', '{"format": 1, "nodes": [1]}']
)
def test_a_damaged_file_is_one_clear_line(text: str) -> None:
    with pytest.raises(LocalClusterError, match=r"^cluster\.json is damaged \(.*another --dir$"):
        from_json(text, "cluster.json")


def test_a_cluster_that_exists_is_not_made_another_one_by_options() -> None:
    layout = plan(nodes=3, racks=["a", "b"])
    check_fits(layout, Wishes(), "d")
    check_fits(layout, Wishes(nodes=3, racks=["b", "a"], base_port=9092), "d")
    for wishes, found in (
        (Wishes(nodes=5), "--nodes 3"),
        (Wishes(racks=["c"]), "--racks a,b"),
        (Wishes(base_port=1), "--base-port 9092"),
        (Wishes(controllers="separate"), "--controllers combined"),
        (Wishes(is_ephemeral=True), "--ephemeral False"),
    ):
        with pytest.raises(LocalClusterError, match=f"^d has a cluster already, with {found}:"):
            check_fits(layout, wishes, "d")


def test_a_broker_is_added_behind_the_last_one() -> None:
    layout = plan(nodes=2, controllers="separate").with_broker("z")
    assert layout.brokers[-1] == NodeLayout(3, ("broker",), 9094, None, "z")
    assert layout.without(3).brokers == layout.brokers[:2]


def test_a_node_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(LocalClusterError, match=r"^there is no node 7; the nodes are 1, 2$"):
        plan(nodes=2).find(7)
