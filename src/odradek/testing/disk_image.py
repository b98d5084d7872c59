"""What a machine's disk holds, and what of it a power loss leaves.

Everything exists twice. ``durable`` is what is on the platter. ``current`` is what programs see:
the page cache. They drift apart with every change and meet again in two separate ways:

- *Content* goes block by block, in any order, whenever the system likes (``write_back``); only
  ``sync`` makes it certain. A power loss therefore leaves a mixture: each block as it was, as it
  is now, or zero where the file had not reached before; and any size between the two.
- *Names* go through a journal in the order in which they changed, one order per folder, and only
  ``sync_folder`` makes them certain. A power loss keeps the first so many changes of each folder.
  A change that concerns two folders happens in both or in neither.

Nothing ties the two together. A new file may have its name and none of its bytes; a synced file
whose name was not synced is gone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

BLOCKS_AT_ONCE: Final = 64
"""Compared together before they are compared one by one."""


class StoredFile:
    """One file, whatever its name is."""

    def __init__(self, block_bytes: int, now_ms: int) -> None:
        self.block_bytes = block_bytes
        self.durable = b""
        self.current = bytearray()
        # Blocks that a failed sync gave up, with their content at that moment: see fail_sync.
        self.lost: dict[int, bytes] = {}
        # Space taken, counted from the start of the file up to the end of the last byte that
        # was written: what a truncate added behind it is a hole.
        self.allocated = 0
        self.modified_ms = now_ms

    def write(self, position: int, data: bytes, now_ms: int) -> None:
        if not data:
            return  # past the end, too, this writes nothing and leaves the size
        end = position + len(data)
        if position > len(self.current):
            self.current.extend(bytes(position - len(self.current)))
        self.current[position:end] = data
        for block in range(position // self.block_bytes, -(-end // self.block_bytes)):
            self.lost.pop(block, None)  # dirty again
        self.allocated = max(self.allocated, end)
        self.modified_ms = now_ms

    def truncate(self, size: int, now_ms: int) -> None:
        if size < len(self.current):
            del self.current[size:]
        else:
            self.current.extend(bytes(size - len(self.current)))
        self.allocated = min(self.allocated, size)
        self.modified_ms = now_ms

    def sync(self) -> None:
        """Write every dirty block, and the size."""
        if not self.lost:
            self.durable = bytes(self.current)
            return
        self.durable = self._reach(len(self.current), lambda _: True)
        self.lost = {
            block: given_up
            for block, given_up in self.lost.items()
            if given_up == self._block(self.current, block)
        }

    def fail_sync(self) -> None:
        """Do what Linux does when a sync fails: write nothing and call the pages clean.

        The next sync finds nothing to do and reports success, and the data is not there. Programs
        still see it until the machine stops. (PostgreSQL met this in 2018: "fsyncgate".)
        """
        for block in self._dirty():
            self.lost[block] = self._block(self.current, block)

    def write_back(self, random: Random) -> None:
        """Write some of the dirty blocks, as the system does when it pleases."""
        if self.durable == self.current:
            return
        sizes = len(self.durable), len(self.current)
        size = random.choice((*sizes, random.randint(min(sizes), max(sizes))))
        share = random.choice((0.0, 1.0, 0.5, random.random()))
        self.durable = self._reach(size, lambda _: random.random() < share)

    def lose_power(self, random: Random) -> None:
        self.write_back(random)
        self.current = bytearray(self.durable)
        self.lost = {}
        self.allocated = min(self.allocated, len(self.current))

    def restart(self) -> None:
        """Take a new buffer: a program that is dead can change nothing through the old one."""
        self.current = bytearray(self.current)

    def flip(self, position: int, mask: int) -> None:
        assert position < len(self.current), "there is no such byte"
        self.current[position] ^= mask
        if position < len(self.durable):
            durable = bytearray(self.durable)
            durable[position] ^= mask
            self.durable = bytes(durable)

    def _reach(self, size: int, written: Callable[[int], bool]) -> bytes:
        """Return what the platter holds after the dirty blocks that ``written`` picks got there."""
        platter = bytearray(size)  # zero where nothing was, or comes
        kept = min(size, len(self.durable))
        platter[:kept] = self.durable[:kept]
        for block in self._dirty():
            start = block * self.block_bytes
            if start < size and written(block):
                data = self._block(self.current, block)[: size - start]
                platter[start : start + len(data)] = data
        return bytes(platter)

    def _dirty(self) -> Iterator[int]:
        """Return the blocks to write back. Mappings write unseen, so compare, not keep books."""
        for block in self._changed():
            now = self._block(self.current, block)
            if now != self._block(self.durable, block) and self.lost.get(block) != now:
                yield block

    def _changed(self) -> Iterator[int]:
        """Return all blocks but those of stretches that are as they were: most of an index is."""
        stretch = BLOCKS_AT_ONCE * self.block_bytes
        size = len(self.current)
        for start in range(0, size, stretch):
            end = min(start + stretch, size)
            if self.current[start:end] != self.durable[start:end]:
                yield from range(start // self.block_bytes, -(-end // self.block_bytes))

    def _block(self, content: bytes | bytearray, block: int) -> bytes:
        start = block * self.block_bytes
        return bytes(content[start : start + self.block_bytes])


class Folder:
    def __init__(self) -> None:
        self.durable: dict[str, Node] = {}
        self.current: dict[str, Node] = {}

    def files(self) -> Iterator[StoredFile]:
        """Return the files in here and below that programs see."""
        for _, node in sorted(self.current.items()):
            if isinstance(node, Folder):
                yield from node.files()
            else:
                yield node

    def restart(self) -> None:
        """Forget, here and below, what is not durable."""
        self.current = dict(self.durable)
        for node in self.durable.values():
            if isinstance(node, Folder):
                node.restart()


Node: TypeAlias = StoredFile | Folder


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder, and what it stands for from now on; None for nothing."""

    folder: Folder
    name: str
    node: Node | None

    def enter(self, names: dict[str, Node]) -> None:
        if self.node is None:
            names.pop(self.name, None)
        else:
            names[self.name] = self.node


Change: TypeAlias = tuple[Entry, ...]
"""What becomes durable as one: one entry, or for a rename the old name's and the new name's."""


@dataclass(slots=True)
class Image:
    """The whole disk."""

    root: Folder = field(default_factory=Folder)
    journal: list[Change] = field(default_factory=list)  # changed names that are not durable yet
    changes: int = 0  # of names, so far

    def change(self, *entries: Entry) -> None:
        for entry in entries:
            entry.enter(entry.folder.current)
        self.journal.append(entries)
        self.changes += 1

    def sync_folder(self, folder: Folder) -> None:
        """Make a folder's changes durable, with those of other folders on which they rest."""
        folders = [folder]
        durable: list[Change] = []
        pending: list[Change] = []
        for change in reversed(self.journal):
            if any(entry.folder in folders for entry in change):
                folders += _folders(change)
                durable.append(change)
            else:
                pending.append(change)
        _make_durable(durable[::-1])
        self.journal = pending[::-1]

    def sync_all(self) -> None:
        _make_durable(self.journal)
        self.journal = []
        for file in self.root.files():
            file.sync()

    def lose_power(self, random: Random) -> None:
        """Keep what is durable and, of the rest, what chance brought to the platter in time."""
        _make_durable(self._plan_survivors(random))
        self.journal = []
        self.root.restart()
        for file in self.root.files():
            file.lose_power(random)

    def restart(self) -> None:
        """Keep all that programs saw: the process died, the system and its page cache did not."""
        for file in self.root.files():
            file.restart()

    def _plan_survivors(self, random: Random) -> list[Change]:
        """Return, of each folder, the first so many of its changes."""
        counts: dict[Folder, int] = {}
        for change in self.journal:
            for folder in _folders(change):
                counts[folder] = counts.get(folder, 0) + 1
        left = {
            folder: random.choice((0, count, random.randint(0, count)))
            for folder, count in counts.items()
        }
        survivors: list[Change] = []
        for change in self.journal:
            survives = all(left[folder] > 0 for folder in _folders(change))
            for folder in _folders(change):
                left[folder] = left[folder] - 1 if survives else 0
            if survives:
                survivors.append(change)
        return survivors


def _folders(change: Change) -> list[Folder]:
    return list(dict.fromkeys(entry.folder for entry in change))


def _make_durable(changes: list[Change]) -> None:
    for change in changes:
        for entry in change:
            entry.enter(entry.folder.durable)
