"""Copies of the data of all nodes, taken at one moment, and put back later.

::

    snapshots/NAME/cluster.json
    snapshots/NAME/node-1/server.properties
    snapshots/NAME/node-1/data/…

All nodes are paused while they are copied, so that what is in the copies is what is in the page
cache at one moment: a cluster that is restored starts as after a crash of all its nodes at once. A
snapshot is written beside its place and renamed, so one that is there is complete. Holes of sparse
files (indexes are mostly that) stay holes.
"""

import errno
import os
import re
import shutil
from pathlib import Path
from typing import Final

from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder
from odradek.local.layout import Layout

CHUNK_BYTES: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def snapshots_folder(folder: ClusterFolder) -> Path:
    return folder.path / "snapshots"


def check_new(folder: ClusterFolder, name: str) -> None:
    """See that a snapshot can have this name.

    Raises:
        LocalClusterError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise LocalClusterError(
            f"{name!r}: a snapshot has a name of up to 64 letters, digits, '.', '_' and '-'"
        )
    if (snapshots_folder(folder) / name).exists():
        raise LocalClusterError(f"there is a snapshot {name!r} already: choose another name")


def write_snapshot(folder: ClusterFolder, layout: Layout, name: str) -> int:
    """Copy the data of all nodes, none of which writes meanwhile; returns the bytes copied."""
    check_new(folder, name)
    place = snapshots_folder(folder) / name
    new = place.with_name(f".{name}.new")
    shutil.rmtree(new, ignore_errors=True)
    copied = 0
    try:
        for node in layout.nodes:
            source, target = folder.node_folder(node.id), new / f"node-{node.id}"
            copied += copy_tree(source / "data", target / "data")
            shutil.copyfile(source / "server.properties", target / "server.properties")
        shutil.copyfile(folder.layout_file, new / "cluster.json")
        new.rename(place)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return copied


def find_snapshot(folder: ClusterFolder, name: str) -> Layout:
    """Return the layout that a snapshot has.

    Raises:
        LocalClusterError: There is no such snapshot, or it is of another version.
    """
    place = snapshots_folder(folder) / name
    if not _NAME.fullmatch(name) or not place.is_dir():
        known = snapshot_names(folder)
        there = f"there are {', '.join(known)}" if known else "there are none"
        raise LocalClusterError(f"there is no snapshot {name!r}; {there}")
    return ClusterFolder(place).existing()


def snapshot_names(folder: ClusterFolder) -> list[str]:
    place = snapshots_folder(folder)
    names = [each.name for each in place.iterdir()] if place.exists() else []
    return sorted(name for name in names if _NAME.fullmatch(name))


def copy_back(folder: ClusterFolder, name: str) -> Layout:
    """Copy a snapshot to where ``swap_in`` takes it from; returns its layout. Nodes may run.

    A disk that is too small for the copies leaves everything as it was.
    """
    layout = find_snapshot(folder, name)
    new = _restored_folder(folder)
    shutil.rmtree(new, ignore_errors=True)
    try:
        for node in layout.nodes:
            node_folder = f"node-{node.id}"
            copy_tree(snapshots_folder(folder) / name / node_folder, new / node_folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return layout


def swap_in(folder: ClusterFolder, layout: Layout) -> None:
    """Put what was copied back in the place of what is there; no node runs. Logs are kept."""
    new = _restored_folder(folder)
    for node in folder.existing().nodes:
        log, kept = folder.log_file(node.id), new / f"node-{node.id}"
        if log.exists() and kept.exists():
            log.rename(kept / log.name)
        shutil.rmtree(folder.node_folder(node.id))
    for node in layout.nodes:
        (new / f"node-{node.id}").rename(folder.node_folder(node.id))
    folder.write_layout(layout)
    new.rmdir()


def _restored_folder(folder: ClusterFolder) -> Path:
    return snapshots_folder(folder) / ".restored"


def copy_tree(source: Path, target: Path) -> int:
    """Copy a folder; returns the bytes of its files that are there and no holes."""
    copied = 0
    target.mkdir(parents=True)
    for entry in sorted(source.iterdir()):
        if entry.is_dir():
            copied += copy_tree(entry, target / entry.name)
        else:
            copied += copy_sparse(entry, target / entry.name)
    shutil.copystat(source, target)
    return copied


def copy_sparse(source: Path, target: Path) -> int:
    """Copy a file and leave its holes out; returns the bytes copied."""
    copied = 0
    with source.open("rb") as reader, target.open("wb") as writer:
        size = os.fstat(reader.fileno()).st_size
        position = 0
        while (part := _next_part(reader.fileno(), position, size)) is not None:
            position, end = part
            while position < end:
                chunk = os.pread(reader.fileno(), min(CHUNK_BYTES, end - position), position)
                if not chunk:
                    break
                os.pwrite(writer.fileno(), chunk, position)
                position += len(chunk)
                copied += len(chunk)
            position = end
        writer.truncate(size)
    shutil.copystat(source, target)
    return copied


def _next_part(descriptor: int, position: int, size: int) -> tuple[int, int] | None:
    """Return where data begins and ends, from a position on; None if only a hole is left."""
    if position >= size:
        return None
    try:
        begin = os.lseek(descriptor, position, os.SEEK_DATA)
        return begin, os.lseek(descriptor, begin, os.SEEK_HOLE)
    except OSError as error:
        if error.errno == errno.ENXIO:
            return None
        return position, size  # a file system without holes
