"""The simulated disk does what the real one does, whatever the operations, until it crashes.

Afterwards each byte is one that the file had there since its last sync, or zero.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path, PurePath, PurePosixPath
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.storage.disk import Disk, File, Mapping, OsDisk
from odradek.testing.disk import SimulatedDisk

NAMES = st.sampled_from("abc")
# Shallow, narrow and without a fixed shape: files meet folders, folders move into each other.
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: PurePosixPath(*parts))
DATA = st.binary(min_size=1, max_size=20)
POSITIONS = st.integers(0, 30)


def outcome(action: Callable[[], object]) -> object:
    try:
        result = action()
    except OSError as error:
        return type(error), error.errno
    return bytes(result) if isinstance(result, memoryview | bytearray) else result


def tree(disk: Disk, path: PurePath) -> object:
    if disk.is_folder(path):
        return {name: tree(disk, path / name) for name in disk.names(path)}
    assert disk.size(path) == len(disk.read(path))
    return disk.read(path)


class BothDisks(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="odradek-disks-"))
        simulated = SimulatedDisk(Random(0), block_bytes=4)
        simulated.make_folder(self.root)
        self.disks: tuple[Disk, Disk] = OsDisk(descriptors_max=2), simulated
        self.files: list[tuple[File, ...]] = []
        self.mapping: tuple[Mapping, ...] = ()

    def teardown(self) -> None:
        self.close_all()
        shutil.rmtree(self.root)

    def close_all(self) -> None:
        """Close what is open, because no promise holds for what has another name now."""
        for handle in [handle for pair in self.files for handle in pair] + list(self.mapping):
            handle.close()
        self.files = []
        self.mapping = ()

    def same(self, action: Callable[[Disk], object]) -> None:
        real, simulated = (outcome(lambda disk=disk: action(disk)) for disk in self.disks)  # type: ignore[misc]
        assert real == simulated

    def same_on_file(self, data: st.DataObject, action: Callable[[File], object]) -> None:
        pair = data.draw(st.sampled_from(self.files))
        real, simulated = (outcome(lambda file=file: action(file)) for file in pair)  # type: ignore[misc]
        assert real == simulated
        assert pair[0].size == pair[1].size

    def unmap(self) -> None:
        for mapping in self.mapping:
            mapping.close()
        self.mapping = ()

    # Names.

    @rule(path=PATHS)
    def make_folder(self, path: PurePosixPath) -> None:
        self.same(lambda disk: disk.make_folder(self.root / path))

    @rule(source=PATHS, path=PATHS)
    def rename(self, source: PurePosixPath, path: PurePosixPath) -> None:
        self.close_all()
        self.same(lambda disk: disk.rename(self.root / source, self.root / path))

    @rule(path=PATHS)
    def remove(self, path: PurePosixPath) -> None:
        self.close_all()
        self.same(lambda disk: disk.remove(self.root / path))

    @rule(path=PATHS)
    def remove_folder(self, path: PurePosixPath) -> None:
        self.close_all()
        self.same(lambda disk: disk.remove_folder(self.root / path))

    @rule(path=PATHS)
    def look(self, path: PurePosixPath) -> None:
        self.same(lambda disk: disk.exists(self.root / path))
        self.same(lambda disk: disk.is_folder(self.root / path))
        self.same(lambda disk: disk.names(self.root / path))
        self.same(lambda disk: disk.read(self.root / path))
        self.same(lambda disk: disk.sync_folder(self.root / path))

    @rule(path=PATHS)
    def lock(self, path: PurePosixPath) -> None:
        self.close_all()
        self.same(lambda disk: disk.lock(self.root / path).release())

    # Content.

    @rule(path=PATHS, create=st.booleans())
    def open(self, path: PurePosixPath, create: bool) -> None:
        if any(self.root / path == pair[0].path for pair in self.files):
            return  # a file does not notice when another changes its size
        opened: list[File] = []
        self.same(lambda disk: opened.append(disk.open(self.root / path, create=create)))
        if opened:
            self.files.append(tuple(opened))

    @precondition(lambda self: self.files)
    @rule(data=st.data(), position=POSITIONS, buffers=st.lists(DATA, min_size=1, max_size=3))
    def write(self, data: st.DataObject, position: int, buffers: list[bytes]) -> None:
        self.unmap()
        self.same_on_file(data, lambda file: file.write(position, buffers))

    @precondition(lambda self: self.files)
    @rule(data=st.data(), size=POSITIONS)
    def truncate(self, data: st.DataObject, size: int) -> None:
        self.unmap()
        self.same_on_file(data, lambda file: file.truncate(size))

    @precondition(lambda self: self.files)
    @rule(data=st.data(), position=POSITIONS, count=POSITIONS)
    def read(self, data: st.DataObject, position: int, count: int) -> None:
        self.same_on_file(data, lambda file: file.read(position, count))

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.same_on_file(data, lambda file: file.sync())

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def close_and_go_on(self, data: st.DataObject) -> None:
        self.same_on_file(data, lambda file: file.close())

    @precondition(lambda self: self.files)
    @rule(data=st.data(), writable=st.booleans())
    def map(self, data: st.DataObject, writable: bool) -> None:
        self.unmap()
        pair = data.draw(st.sampled_from(self.files))
        self.mapping = tuple(file.map(writable=writable) for file in pair)
        real, simulated = self.mapping
        assert real.size == simulated.size
        assert real.buffer[:] == simulated.buffer[:]

    @precondition(lambda self: self.mapping)
    @rule(position=POSITIONS, byte=st.integers(0, 255))
    def write_through_the_mapping(self, position: int, byte: int) -> None:
        def write(mapping: Mapping) -> type[Exception] | None:
            try:
                mapping.buffer[position] = byte
            except (IndexError, TypeError) as error:
                return type(error)
            mapping.sync()
            return None

        # A mapping for reading refuses before it looks at the position, or after: no matter.
        real, simulated = (write(mapping) for mapping in self.mapping)
        assert (real is None) == (simulated is None)

    @invariant()
    def all_is_equal(self) -> None:
        real, simulated = (tree(disk, self.root) for disk in self.disks)
        assert real == simulated


class TestBothDisks(BothDisks.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=20, stateful_step_count=30, deadline=None)


@pytest.mark.slow
class TestBothDisksForLonger(BothDisks.TestCase):  # type: ignore[valid-type,misc]
    settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


WRITE = st.tuples(st.just("write"), POSITIONS, DATA)
MAPPED = st.tuples(st.just("mapped"), POSITIONS, DATA)
TRUNCATE = st.tuples(st.just("truncate"), POSITIONS, st.just(b""))
SYNC = st.tuples(st.just("sync"), st.just(0), st.just(b""))
STEPS = st.lists(st.one_of(WRITE, WRITE, MAPPED, TRUNCATE, SYNC), max_size=12)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.integers(0, 2**32), st.sampled_from([1, 4, 512]))
def test_a_power_loss_leaves_only_what_was_there_since_the_last_sync(
    steps: list[tuple[str, int, bytes]], seed: int, block_bytes: int
) -> None:
    path = PurePosixPath("/f")
    disk = SimulatedDisk(Random(seed), block_bytes=block_bytes)
    file = disk.open(path, create=True)
    disk.sync_all()
    versions = [b""]  # since the last sync, which left the first
    for kind, position, data in steps:
        match kind:
            case "write":
                file.write(position, [data])
            case "truncate":
                file.truncate(position)
            case "mapped":
                buffer = file.map(writable=True).buffer
                for place, byte in enumerate(data, position):
                    if place < len(buffer):
                        buffer[place] = byte
            case _:
                file.sync()
                versions.clear()
        versions.append(disk.read(path))

    disk.crash()

    found = disk.read(path)
    sizes = [len(version) for version in versions]
    assert min(sizes) <= len(found) <= max(sizes)
    for place, byte in enumerate(found):
        allowed = {version[place] for version in versions if place < len(version)}
        was_shorter = min(sizes) <= place
        assert byte in allowed or (was_shorter and byte == 0), f"byte {place} of {found!r}"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["create", "rename", "remove", "sync"]), NAMES, NAMES)),
    st.integers(0, 2**32),
)
def test_a_power_loss_undoes_names_from_the_end(
    steps: list[tuple[str, str, str]], seed: int
) -> None:
    root = PurePosixPath("/")
    disk = SimulatedDisk(Random(seed))
    histories = [disk.names(root)]
    for kind, name, other in steps:
        match kind:
            case "create":
                disk.open(root / name, create=True)
            case "rename" if disk.exists(root / name):
                disk.rename(root / name, root / other)
            case "remove":
                disk.remove(root / name)
            case "sync":
                disk.sync_folder(root)
                histories.clear()
        histories.append(disk.names(root))
    disk.crash()
    assert disk.names(root) in histories
