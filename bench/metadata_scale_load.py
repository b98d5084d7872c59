"""Loads a metadata snapshot as a node that starts does, from the file that it is given.

Prints one line of JSON: what was measured, each with its value and unit.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from bench.metadata_scale import longest_ms, milliseconds, rss_mib
from odradek.controller import Controller
from odradek.controller.settings import ControllerSettings
from odradek.metadata.image import MetadataProvenance
from odradek.metadata.loader import MetadataLoader
from odradek.metadata.snapshots import SnapshotReader
from odradek.node.frozen_heap import FrozenHeap


async def measure(path: Path) -> dict[str, tuple[float, str]]:
    found: dict[str, tuple[float, str]] = {}
    rss_before = rss_mib()
    with FrozenHeap():
        data = path.read_bytes()
        readers: list[SnapshotReader] = []
        checking_ms = milliseconds(lambda: readers.append(SnapshotReader(data)))
        found["load a snapshot: check the file"] = checking_ms, "ms"
        loader = MetadataLoader()
        steps = loader.load_snapshot_in_steps(readers[0].records(), MetadataProvenance(0, 1, 0))
        began = time.thread_time()
        longest = longest_ms(steps)
        found["load a snapshot: CPU"] = (time.thread_time() - began) * 1e3, "ms"
        found["load a snapshot: longest step"] = longest, "ms"
        found["memory of a node's image"] = rss_mib() - rss_before, "MiB"
        controller = Controller(ControllerSettings(node_id=1, cluster_id=""), image=loader.image)
        began = time.thread_time()
        longest = longest_ms(controller.prepare_in_steps())
        found["begin to lead, the controller's index: CPU"] = (
            (time.thread_time() - began) * 1e3,
            "ms",
        )
        found["begin to lead, the controller's index: longest step"] = longest, "ms"
    return found


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(Path(sys.argv[1])))))
