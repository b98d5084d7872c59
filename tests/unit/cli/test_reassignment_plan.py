"""Plans of reassign-partitions: what is read from files, and whom throttles hold for."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from odradek.cli.reassignment_plan import document, read_plan
from odradek.cli.reassignment_throttle import Move, moves_with, throttled_replicas
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import Reassignment
from odradek.core.ids import TopicPartition

T0, T1, T10 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 10)


def written(path: Path, *rows: dict[str, Any]) -> Path:
    file = path / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    return file


def test_a_plan_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    replicas = {T1: [2, 1], T0: [1]}
    log_dirs = {TopicPartitionReplica("t", 1, 1): "/data"}
    file.write_text(document(replicas, log_dirs))
    plan = read_plan(file, is_strict=True)
    assert (plan.replicas, plan.log_dirs) == (replicas, log_dirs)
    assert (plan.topics, plan.brokers) == (["t"], [1, 2])
    assert [row["log_dirs"] for row in json.loads(file.read_text())["partitions"]] == [
        ["any"],
        ["any", "/data"],
    ]


def test_log_directories_may_be_left_out(tmp_path: Path) -> None:
    plan = read_plan(written(tmp_path, {"topic": "t", "partition": 0, "replicas": [3]}))
    assert (plan.replicas, plan.log_dirs) == ({T0: [3]}, {})


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"replicas": ["1"]}, 'Expected `Integer` value, received "1"'),
        ({"replicas": [True]}, "Expected `Integer` value, received true"),
        ({"replicas": {"a": 1}}, 'Expected JSON array, received {"a":1}'),
        ({"replicas": [1], "log_dirs": [7]}, "Expected `String` value, received 7"),
        ({"replicas": [1], "log_dirs": ["a", "b"]}, "is different from size of log dirs list"),
        ({}, "No such field exists: `replicas`"),
    ],
)
@pytest.mark.parametrize("action", ["--execute", "--verify", "--cancel"])
def test_a_file_of_something_else_is_refused_before_anybody_is_asked(
    tmp_path: Path, action: str, row: dict[str, Any], said: str
) -> None:
    file = written(tmp_path, {"topic": "t", "partition": 0, **row})
    asked = ["--bootstrap-server", "127.0.0.1:1", action, "--reassignment-json-file", str(file)]
    result = CliRunner().invoke(main, ["reassign-partitions", *asked])
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("Error: ")
    assert said in result.stdout
    assert len(result.stdout.splitlines()) == 1


def test_a_plan_goes_from_where_partitions_are_or_from_where_moves_began() -> None:
    under_way = {T1: Reassignment((3, 1, 2), (3,), (1,)), T10: Reassignment((1, 2), (2,), ())}
    moves = moves_with(under_way, {T0: [2, 3], T1: [4, 2]}, {T0: [1, 2], T1: [3, 1, 2]})
    assert moves == {
        T0: Move(frozenset({1, 2}), frozenset({3})),
        T1: Move(frozenset({1, 2}), frozenset({4})),
        T10: Move(frozenset({1}), frozenset({2})),
    }


def test_sources_are_throttled_as_leaders_and_destinations_as_followers() -> None:
    moves = {
        T0: Move(frozenset({1, 2}), frozenset({3})),
        T10: Move(frozenset({1}), frozenset()),
        TopicPartition("u", 2): Move(frozenset({11}), frozenset({1, 12})),
    }
    leader, follower = (f"{each}.replication.throttled.replicas" for each in ("leader", "follower"))
    assert throttled_replicas(moves) == {
        "t": {leader: "0:1,0:2,10:1", follower: "0:3"},
        "u": {leader: "2:11", follower: "2:1,2:12"},
    }


def test_more_replicas_than_a_config_has_room_for_are_all_throttled() -> None:
    leader, follower = (f"{each}.replication.throttled.replicas" for each in ("leader", "follower"))
    moves = {TopicPartition("t", n): Move(frozenset({1}), frozenset({2})) for n in range(10_000)}
    assert throttled_replicas(moves) == {"t": {leader: "*", follower: "*"}}
    moves = dict(list(moves.items())[:4_000])
    (named,) = throttled_replicas(moves).values()
    assert len(named[leader].split(",")) == 4_000
