"""Metadata quorums with real logs and snapshots on simulated disks, through storms from one seed.

Members lose their power, are cut off and stop; the log moves on behind snapshots. What was once
seen as committed stays, and images at the same offset are equal on all members.
"""

from contextlib import suppress
from random import Random

import pytest

from odradek.metadata import ClusterImage
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.quorum.quorum_listener import NotLeaderError
from tests.long_searches import in_soak
from tests.unit.quorum.quorum_members import Member, QuorumCluster

OFTEN = MetadataLogConfig(
    segment_bytes=2_000,
    segment_index_bytes=960,
    max_record_bytes_between_snapshots=1_500,
    max_snapshot_interval_ms=0,
    max_retention_bytes=4_000,
)
STEPS = 100


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = QuorumCluster(seed, observers=1, by_log=bool(seed % 2), log=OFTEN)
        self.committed: set[str] = set()
        self.images: dict[int, ClusterImage] = {}
        self.asked = 0

    def run(self) -> None:
        self.cluster.begin()
        for _ in range(STEPS):
            self.random.choice(
                [self.append] * 8
                + [self.kill, self.start, self.start, self.cut, self.heal, self.heal]
            )()
            self.cluster.world.run_for(self.random.choice([0.01, 0.05, 0.3, 2]))
            self.look()
        self.settle()

    def append(self) -> None:
        for member in self.cluster.up():
            if member.quorum.is_leader:
                self.asked += 1
                with suppress(NotLeaderError):
                    member.create_topic(f"t{self.asked}")
                member.quorum.upkeep.tick()

    def kill(self) -> None:
        # Any number at once: nothing that was committed is on fewer than two disks.
        up = self.cluster.up()
        for member in self.random.sample(up, k=min(self.random.randint(1, 2), len(up))):
            member.kill(power=self.random.random() < 0.7)

    def start(self) -> None:
        for member in self.cluster.members.values():
            if not member.is_up:
                member.start()

    def cut(self) -> None:
        if self.cluster.up():
            self.cluster.isolate(self.random.choice(self.cluster.up()))

    def heal(self) -> None:
        self.cluster.cut.clear()

    def look(self) -> None:
        for member in self.cluster.up():
            assert member.failure is None, f"{member.id}: {member.failure}"
            member.quorum.raft.check_invariants()
            self.committed |= member.topics
            self.compare(member)

    def compare(self, member: Member) -> None:
        image = member.quorum.image
        known = self.images.setdefault(member.quorum.loaded_offset, image)
        assert known.topics == image.topics, f"{member.id} at {member.quorum.loaded_offset}"

    def settle(self) -> None:
        self.heal()
        self.start()
        while not all("at last" in each.topics for each in self.cluster.up()):
            leader = self.cluster.wait_for_leader()
            epoch, end_offset = leader.quorum.epoch, leader.create_topic("at last")
            # A member that comes back with a later epoch may take leadership once more.
            self.cluster.run_until(
                lambda: all(  # called before the next round
                    each.quorum.loaded_offset >= end_offset or each.quorum.epoch > epoch  # noqa: B023
                    for each in self.cluster.up()
                )
            )
        for member in self.cluster.up():
            assert member.topics >= self.committed
            member.quorum.log.check_invariants()
            self.compare(member)


@pytest.mark.parametrize("seed", range(12))
def test_what_was_committed_survives_a_storm(seed: int) -> None:
    storm = Storm(seed)
    storm.run()
    assert len(storm.committed) > 3


@pytest.mark.slow
def test_many_storms() -> None:
    snapshots = leaders = 0
    storms = in_soak(15, soak=30)
    for seed in range(100, 100 + storms):
        storm = Storm(seed)
        storm.run()
        snapshots += storm.cluster.sent.get("FetchSnapshot", 0)
        leaders += sum(len(each.leading) for each in storm.cluster.members.values())
    assert snapshots > storms / 6
    assert leaders > storms * 4 / 3, "they came and went"
