"""Formatting: which features, which voters, which directories, and what a crash leaves."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from random import Random

import pytest

from odradek.broker.feature_choice import FeatureError, choose_features, release_named
from odradek.broker.formatting import FormatError, FormatPlan, format_directories
from odradek.core.ids import Uuid
from odradek.metadata.features import default_features
from odradek.metadata.snapshots import SnapshotReader
from odradek.quorum.initial_voters import InitialVoter, VoterError, parse_voters
from odradek.quorum.metadata_snapshots import read_bootstrap
from odradek.storage.log_dir_files import MetaProperties, read_meta_properties
from odradek.testing.disk import SimulatedCrash, SimulatedDisk

A, B = PurePosixPath("/data/a"), PurePosixPath("/data/b")
DIRECTORY_ID = Uuid(b"0123456789abcdef")
FEATURES = choose_features(None, {}, dynamic_quorum=True)
VOTER_FILE = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def make_plan(**changes: object) -> FormatPlan:
    given: dict[str, object] = {
        "cluster_id": "a-cluster",
        "node_id": 1,
        "directories": (A, B),
        "metadata_directory": A,
        "features": FEATURES,
        "voters": (InitialVoter(1, "localhost", 9093, DIRECTORY_ID),),
        "controller_listener": "CONTROLLER",
        **changes,
    }
    return FormatPlan(**given)  # type: ignore[arg-type]


def run(disk: SimulatedDisk, plan: FormatPlan) -> list[str]:
    said: list[str] = []
    format_directories(disk, plan, now_ms=1_000, random=Random(1), say=said.append)
    return said


def read_features(disk: SimulatedDisk, path: PurePosixPath) -> dict[str, int]:
    records = read_bootstrap(disk, path)
    assert records is not None
    return {each.message.name: each.message.feature_level for each in records}  # type: ignore[attr-defined]


def test_a_directory_has_what_a_node_starts_from() -> None:
    disk = SimulatedDisk(Random(1))
    said = run(disk, make_plan())
    assert said[1:] == [
        "Formatting dynamic metadata voter directory /data/a with metadata.version 4.3-IV0.",
        "Formatting data directory /data/b with metadata.version 4.3-IV0.",
    ]
    meta = MetaProperties(cluster_id="a-cluster", node_id=1, directory_id=DIRECTORY_ID)
    assert read_meta_properties(disk, A) == meta
    other = read_meta_properties(disk, B)
    assert other is not None
    assert other.directory_id not in (None, DIRECTORY_ID)
    assert read_features(disk, A) == read_features(disk, B) == default_features()
    quorum = SnapshotReader(disk.read(A / VOTER_FILE)).quorum
    assert quorum.kraft_version == 1
    assert quorum.voters is not None
    (voter,) = quorum.voters.voters
    assert (voter.voter_id, voter.voter_directory_id) == (1, DIRECTORY_ID)
    assert [(e.name, e.host, e.port) for e in voter.endpoints] == [
        ("CONTROLLER", "localhost", 9093)
    ]
    assert not disk.exists(B / VOTER_FILE)


def test_what_is_formatted_is_left_alone() -> None:
    disk = SimulatedDisk(Random(1))
    run(disk, make_plan(directories=(A,)))
    before = disk.read(A / "meta.properties")
    with pytest.raises(FormatError, match="/data/a is already formatted"):
        run(disk, make_plan())
    assert not disk.exists(B)
    run(disk, make_plan(ignore_formatted=True))
    assert disk.read(A / "meta.properties") == before
    assert read_meta_properties(disk, B) is not None
    said = run(disk, make_plan(ignore_formatted=True))
    assert said == ["All of the log directories are already formatted."]


@pytest.mark.parametrize("change", [{"cluster_id": "another"}, {"node_id": 2}])
def test_what_is_another_nodes_is_never_taken(change: dict[str, object]) -> None:
    disk = SimulatedDisk(Random(1))
    run(disk, make_plan(directories=(A,)))
    with pytest.raises(FormatError, match=r"meta\.properties says"):
        run(disk, make_plan(ignore_formatted=True, **change))
    assert not disk.exists(B)


def test_a_directory_that_cannot_be_read_is_passed_over() -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_folder(B)
    file = disk.open(B / "meta.properties", create=True)
    file.write(0, [b"version=77"])
    assert (
        run(disk, make_plan())[0] == "I/O error trying to read log directory /data/b. Ignoring..."
    )
    with pytest.raises(FormatError, match="No log directory"):
        run(disk, make_plan(directories=(B,), metadata_directory=B))


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
def test_after_any_crash_it_is_formatted_or_can_be(power: bool) -> None:
    operation, stopped = 0, True
    while stopped:
        operation += 1
        disk = SimulatedDisk(Random(operation))
        disk.stop_at = disk.operations + operation
        try:
            run(disk, make_plan())
            stopped = False
        except SimulatedCrash:
            pass
        if power:
            disk.crash()
        else:
            disk.kill()
        for path in (A, B):
            if disk.exists(path) and read_meta_properties(disk, path) is not None:
                assert read_features(disk, path) == default_features()
                assert path == B or SnapshotReader(disk.read(A / VOTER_FILE)).quorum.voters
        run(disk, make_plan(ignore_formatted=True))
        assert read_meta_properties(disk, A) is not None
        assert read_features(disk, B) == default_features()
    assert operation > 20


# Features.


@pytest.mark.parametrize(
    ("text", "name"),
    [("4.0", "4.0-IV3"), ("4.0-IV1", "4.0-IV1"), ("3.9.1", "3.9-IV0"), ("3.3", "3.3-IV3")],
)
def test_a_release_is_found_by_any_of_its_names(text: str, name: str) -> None:
    assert release_named(text).name == name


@pytest.mark.parametrize("text", ["9.9", "4", "4.4", "4.0-IV9", ""])
def test_releases_that_are_none(text: str) -> None:
    with pytest.raises(FeatureError, match=r"Unknown metadata\.version"):
        release_named(text)


def test_an_unstable_release_is_known_by_name_only() -> None:
    assert release_named("4.4-IV0", unstable=True).level == 31
    with pytest.raises(FeatureError):
        release_named("4.4", unstable=True)
    with pytest.raises(FeatureError, match="not yet stable"):
        choose_features(None, {"metadata.version": 31}, dynamic_quorum=True)


def test_features_follow_the_release_unless_chosen() -> None:
    levels = choose_features(release_named("3.9"), {}, dynamic_quorum=False)
    assert {name for name, level in levels.items() if level} == {"metadata.version"}
    chosen = choose_features(None, {"transaction.version": 1}, dynamic_quorum=True)
    assert chosen == {**FEATURES, "transaction.version": 1}
    by_level = choose_features(None, {"metadata.version": 21}, dynamic_quorum=False)
    assert by_level == levels


@pytest.mark.parametrize(
    ("release", "chosen", "dynamic", "problem"),
    [
        (None, {"nope": 1}, True, "Unsupported feature: nope"),
        (None, {"group.version": 2}, True, "no level 2"),
        ("3.9", {"eligible.leader.replicas.version": 1}, True, "metadata.version level 23"),
        ("3.9", {"metadata.version": 21}, True, "give one"),
        (None, {"metadata.version": 99}, True, "7 to 31"),
        (None, {"kraft.version": 0}, True, "is not set"),
        (None, {"kraft.version": 1}, False, "is set"),
    ],
)
def test_features_that_do_not_go_together(
    release: str | None, chosen: Mapping[str, int], dynamic: bool, problem: str
) -> None:
    version = None if release is None else release_named(release)
    with pytest.raises(FeatureError, match=problem):
        choose_features(version, chosen, dynamic_quorum=dynamic)


# Voters.


def test_voters_are_read_and_sorted() -> None:
    text = f" 3@[::1]:9:{DIRECTORY_ID}, 1@host:65535:{DIRECTORY_ID}"
    assert parse_voters(text) == [
        InitialVoter(1, "host", 65535, DIRECTORY_ID),
        InitialVoter(3, "::1", 9, DIRECTORY_ID),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        f"@h:1:{DIRECTORY_ID}",
        f"-1@h:1:{DIRECTORY_ID}",
        f"1@h:65536:{DIRECTORY_ID}",
        f"1@:1:{DIRECTORY_ID}",
        "1@h:1",
        "1@h:1:short",
        f"99999999999@h:1:{DIRECTORY_ID}",
        f"1@h:1:{DIRECTORY_ID},1@g:1:{DIRECTORY_ID}",
    ],
)
def test_voters_that_are_none(text: str) -> None:
    with pytest.raises(VoterError):
        parse_voters(text)
