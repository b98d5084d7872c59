"""Formatting log directories, and telling what is in them: what ``odradek storage`` does.

A formatted directory has::

    bootstrap.checkpoint                        the first records of the cluster: its features
    __cluster_metadata-0/0…0-0….checkpoint      the first voters, in the metadata directory
    meta.properties                             whose it is; written last, so that a directory that
                                                has it has the others too

The lines are those of Kafka's ``kafka-storage``. Left out so far: SCRAM credentials.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from random import Random
from typing import Final

from odradek.controller.feature_changes import format_records
from odradek.core.errors import CorruptionError, OdradekError
from odradek.core.ids import Uuid
from odradek.metadata.features import KRAFT_VERSION, METADATA_VERSION, METADATA_VERSIONS
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import (
    BOOTSTRAP_FILE,
    BOOTSTRAP_SNAPSHOT,
    QuorumRecords,
    snapshot_batches,
    snapshot_name,
)
from odradek.protocol.generated.metadata_records import FeatureLevelRecord
from odradek.quorum.initial_voters import InitialVoter, voters_record
from odradek.quorum.metadata_log import METADATA_PARTITION
from odradek.quorum.metadata_snapshots import write_snapshot_file
from odradek.storage.disk import Disk
from odradek.storage.log_dir_files import (
    META_PROPERTIES,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)

_SOURCE: Final = "source=format command"

Say = Callable[[str], None]


class FormatError(OdradekError):
    """The directories cannot be formatted like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatPlan:
    """What formatting is asked to do; checked in itself."""

    cluster_id: str
    node_id: int
    directories: tuple[PurePath, ...]
    metadata_directory: PurePath
    features: Mapping[str, int]
    """All of them, kraft.version and metadata.version too."""
    voters: tuple[InitialVoter, ...] = ()
    """Empty: the voters are not in the log, or this node has none to name."""
    controller_listener: str = ""
    ignore_formatted: bool = False


def format_directories(
    disk: Disk, plan: FormatPlan, *, now_ms: int, random: Random, say: Say
) -> None:
    """Format those that are not, saying what is done.

    Raises:
        FormatError: One is formatted, and that is not to be ignored, or it is another node's.
        OSError: A directory cannot be written.
    """
    empty = _find_empty(disk, plan, say)
    if not empty:
        say("All of the log directories are already formatted.")
        return
    in_records = {name: plan.features[name] for name in plan.features if name != KRAFT_VERSION}
    records = format_records(in_records)
    level = plan.features[METADATA_VERSION]
    release = next(each.name for each in METADATA_VERSIONS if each.level == level)
    say(f"Bootstrap metadata: {_describe(records, level)}")
    for path in empty:
        kind = _kind(plan, path)
        say(f"Formatting {kind} {path} with {METADATA_VERSION} {release}.")
        disk.make_folder(path)
        _write(disk, path / BOOTSTRAP_FILE, records, QuorumRecords(), time_ms=0, now_ms=now_ms)
        if path == plan.metadata_directory and plan.voters:
            _write_voters(disk, path, plan, now_ms)
        meta = MetaProperties(
            cluster_id=plan.cluster_id,
            node_id=plan.node_id,
            directory_id=_directory_id(plan, path, random),
        )
        write_meta_properties(disk, path, meta)


def _find_empty(disk: Disk, plan: FormatPlan, say: Say) -> list[PurePath]:
    formatted: list[PurePath] = []
    failed: list[PurePath] = []
    empty: list[PurePath] = []
    for path in plan.directories:
        try:
            meta = read_meta_properties(disk, path)
        except (CorruptionError, OSError):
            failed.append(path)
            continue
        if meta is None:
            empty.append(path)
            continue
        formatted.append(path)
        for name, theirs, ours in (
            ("cluster.id", meta.cluster_id, plan.cluster_id),
            ("node.id", meta.node_id, plan.node_id),
        ):
            if theirs is not None and theirs != ours:
                problem = f"{path / META_PROPERTIES} says {name}={theirs}, expected {ours}"
                raise FormatError(f"{problem}. Nothing was formatted")
    if formatted and not plan.ignore_formatted:
        raise FormatError(
            f"Log directory {formatted[0]} is already formatted. "
            "With --ignore-formatted it is left as it is, and the others are formatted."
        )
    for path in failed:
        say(f"I/O error trying to read log directory {path}. Ignoring...")
    if failed and not empty and not formatted:
        raise FormatError("No log directory can be formatted.")
    return empty


def _describe(records: Iterable[VersionedRecord], level: int) -> str:
    listed = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{each.message.name}', "
        f"featureLevel={each.message.feature_level}) at version {each.version})"
        for each in records
        if isinstance(each.message, FeatureLevelRecord)
    )
    return f"BootstrapMetadata(records=[{listed}], metadataVersionLevel={level}, {_SOURCE})"


def _kind(plan: FormatPlan, path: PurePath) -> str:
    if path != plan.metadata_directory:
        return "data directory"
    if not plan.voters:
        return "metadata directory"
    is_voter = any(voter.node_id == plan.node_id for voter in plan.voters)
    return "dynamic metadata voter directory" if is_voter else "dynamic metadata directory"


def _directory_id(plan: FormatPlan, path: PurePath, random: Random) -> Uuid:
    for voter in plan.voters:
        if path == plan.metadata_directory and voter.node_id == plan.node_id:
            return voter.directory_id
    return Uuid.random(random)


def _write_voters(disk: Disk, path: PurePath, plan: FormatPlan, now_ms: int) -> None:
    folder = path / str(METADATA_PARTITION)
    disk.make_folder(folder)
    disk.sync_folder(path)
    voters = voters_record(list(plan.voters), plan.controller_listener)
    quorum = QuorumRecords(plan.features[KRAFT_VERSION], voters)
    file = folder / snapshot_name(BOOTSTRAP_SNAPSHOT)
    _write(disk, file, [], quorum, time_ms=now_ms, now_ms=now_ms)


def _write(
    disk: Disk,
    path: PurePath,
    records: Iterable[VersionedRecord],
    quorum: QuorumRecords,
    *,
    time_ms: int,
    now_ms: int,
) -> None:
    batches = snapshot_batches(
        records, epoch=0, last_contained_log_timestamp_ms=time_ms, now_ms=now_ms, quorum=quorum
    )
    write_snapshot_file(disk, path, batches)


def describe_directories(disk: Disk, directories: Iterable[PurePath], say: Say) -> bool:
    """Say what is in the directories and what is wrong with them; return whether all is well."""
    found: list[PurePath] = []
    problems: list[str] = []
    first: MetaProperties | None = None
    for path in sorted(directories):
        if not disk.is_folder(path):
            problems.append(
                f"{path} " + ("is not a directory" if disk.exists(path) else "does not exist")
            )
            continue
        found.append(path)
        try:
            meta = read_meta_properties(disk, path)
        except CorruptionError as error:
            problems.append(f"Error loading {error}")
            continue
        if meta is None:
            problems.append(f"{path} is not formatted.")
        elif first is None:
            first = meta
        else:
            problems += _mismatch(first, meta)
    if first is not None and first.version == 0:
        problems.append(
            "The kafka configuration file appears to be for a cluster in KRaft mode, but the "
            "directories are formatted for legacy mode."
        )
    _say_found(found, first, problems, say)
    return not problems


def _mismatch(first: MetaProperties, other: MetaProperties) -> list[str]:
    if first.cluster_id != other.cluster_id:
        return ["Mismatched cluster IDs between storage directories."]
    if first.node_id != other.node_id:
        return ["Mismatched node IDs between storage directories."]
    return []


def _say_found(
    found: list[PurePath], meta: MetaProperties | None, problems: list[str], say: Say
) -> None:
    _say_list("Found log directory:", "Found log directories:", list(map(str, found)), say)
    if meta is not None:
        fields = {
            "cluster.id": meta.cluster_id,
            "directory.id": meta.directory_id,
            "node.id" if meta.version else "broker.id": meta.node_id,
            "version": meta.version,
        }
        known = {name: value for name, value in sorted(fields.items()) if value is not None}
        listed = ", ".join(f"{name}={value}" for name, value in known.items())
        say(f"Found metadata: {{{listed}}}")
        say("")
    _say_list("Found problem:", "Found problems:", problems, say)


def _say_list(one: str, many: str, items: list[str], say: Say) -> None:
    if items:
        say(one if len(items) == 1 else many)
        for item in items:
            say(f"  {item}")
        say("")
