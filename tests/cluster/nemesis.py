"""What disturbs a cluster while clients work: one fault after the other, each undone at its end.

- ``kill``: SIGKILL of a leader, one time in five of a second node as well, which takes the quorum
- ``pause``: SIGSTOP of a leader beyond its session, so that it wakes up deposed
- ``roll``: each node is stopped and started once
- ``cut``: a leader's bytes to the other nodes wait, or theirs to it, or both, beyond its session;
  clients still reach it
- ``full``: another program takes all that is left of a leader's disk, and gives it back
- ``busy``: programs that only compute leave all nodes a small part of the machine

Cuts need relays, and full disks need small ones (``small_disks``).
"""

import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from tests.cluster.asking import Placement, placements_of
from tests.cluster.processes import Cluster, ClusterNode, wait_until
from tests.interop.histories.load import INPUTS, KEYS
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.small_disk import fill, small_disk

SESSION_SECONDS: Final = 2.0
UP_SECONDS_MAX: Final = 3.0
DOWN_SECONDS_MAX: Final = 4.0
SECOND_VICTIM: Final = 0.2
BEYOND_SESSION: Final = (SESSION_SECONDS + 0.5, 2 * SESSION_SECONDS)
CLEAN_ENDS: Final = {0, 128 + 15}
DISK_MIB: Final = 64
FULL_DISK: Final = "log directory full"
BUSY_PER_CORE: Final = 4
BUSY_PROGRAM: Final = "while True: pass"


class Nemesis:
    """Disturbs a cluster; after each fault all nodes run."""

    def __init__(self, cluster: Cluster, chance: random.Random) -> None:
        self.cluster = cluster
        self.chance = chance
        self.done: Counter[str] = Counter()

    def strike(self, kind: str) -> None:
        # Nothing is waited for here: a node may still load, or be out of sync.
        time.sleep(self.chance.uniform(0, UP_SECONDS_MAX))
        faults = {
            "kill": self._kill,
            "pause": self._pause,
            "roll": self._roll,
            "cut": self._cut,
            "full": self._fill_disk,
            "busy": self._take_the_machine,
        }
        faults[kind]()

    def _kill(self) -> None:
        victims = [self._leader()]
        if self.chance.random() < SECOND_VICTIM:
            victims.append(self.chance.choice(self._others(victims[0])))
        for victim in victims:
            victim.kill()
            self.done["kill"] += 1
            time.sleep(self.chance.uniform(0, DOWN_SECONDS_MAX / 2))
        time.sleep(self.chance.uniform(0, DOWN_SECONDS_MAX / 2))
        for victim in victims:
            victim.start()
        for victim in victims:
            victim.wait_until_ready()

    def _pause(self) -> None:
        victim = self._leader()
        victim.pause()
        try:
            time.sleep(self.chance.uniform(*BEYOND_SESSION))
        finally:
            victim.resume()
        self.done["pause"] += 1

    def _roll(self) -> None:
        for node in self.cluster.brokers:
            code = node.stop()
            assert code in CLEAN_ENDS, f"node {node.id} ended with {code}\n{node.log_tail()}"
            node.restart()
            wait_until_in_sync(self.cluster)
        self.done["roll"] += 1

    def _cut(self) -> None:
        relays, victim = self.cluster.relays, self._leader()
        way = self.chance.choice(["from it", "to it", "both"])
        for other in self._others(victim):
            if way != "to it":
                relays.cut(victim.id, other.id)
            if way != "from it":
                relays.cut(other.id, victim.id)
        try:
            time.sleep(self.chance.uniform(*BEYOND_SESSION))
        finally:
            relays.heal()
        self.done["cut"] += 1

    def _fill_disk(self) -> None:
        victim = self._leader()
        taken = victim.data_dir / "other-program"
        said = _words_of_full_disk(victim)
        assert fill(taken) > 0, "the disk was full before"
        try:
            time.sleep(self.chance.uniform(*BEYOND_SESSION))
            # On a busy machine nobody may have written to it by now.
            wait_until(lambda: _words_of_full_disk(victim) > said, "the node feels the full disk")
        finally:
            taken.unlink()
        assert victim.is_running, f"node {victim.id} ended\n{victim.log_tail()}"
        self.done["full"] += 1

    def _take_the_machine(self) -> None:
        command = [*until_parent_ends(), sys.executable, "-c", BUSY_PROGRAM]
        count = BUSY_PER_CORE * (os.cpu_count() or 1)
        programs = [subprocess.Popen(command) for _ in range(count)]
        try:
            time.sleep(self.chance.uniform(*BEYOND_SESSION))
        finally:
            for program in programs:
                program.kill()
                program.wait()
        self.done["busy"] += 1

    def _leader(self) -> ClusterNode:
        """Return the leader of a partition; any node, if none is known."""
        asked = self.chance.choice(self.cluster.brokers)
        leader = self.chance.choice(placements_of(asked, INPUTS[0].topic)).leader
        return self.cluster.nodes.get(leader, asked)

    def _others(self, victim: ClusterNode) -> list[ClusterNode]:
        return [node for node in self.cluster.brokers if node is not victim]


@contextmanager
def small_disks(cluster: Cluster) -> Iterator[None]:
    """Give each node, none of which has started, a disk of its own that can be filled."""
    with ExitStack() as stack:
        for node in cluster.nodes.values():
            shutil.rmtree(node.data_dir)
            stack.enter_context(small_disk(node.data_dir, DISK_MIB))
            cluster.format(node)
        yield


def _words_of_full_disk(node: ClusterNode) -> int:
    return node.log_file.read_text(errors="replace").count(FULL_DISK)


def wait_until_in_sync(cluster: Cluster) -> None:
    """Wait until every broker knows all replicas of the topics to be in sync."""
    ids = {node.id for node in cluster.brokers}
    topics = {key.topic for key in KEYS}

    def are_in_sync() -> bool:
        found: list[Placement] = []
        for node in cluster.brokers:
            for topic in topics:
                found += placements_of(node, topic)
        return all(each.isr == ids and each.leader in ids for each in found)

    wait_until(are_in_sync, "all replicas are in sync")
