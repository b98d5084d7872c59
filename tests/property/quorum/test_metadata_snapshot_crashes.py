"""A crash at every single file operation of a metadata log that writes snapshots and deletes.

For each n the script runs again on a disk that stops at the n-th operation, once as a killed
process and several times as a power loss with different luck. The next start must not raise, must
have every topic whose creation was answered and none that was never asked for, and must go on.
"""

from random import Random

import pytest

from odradek.testing.disk import SimulatedCrash, SimulatedDisk
from tests.unit.quorum.metadata_log_harness import FOLDER, Metadata

LUCK = 2
TOPICS = 9


class Life:
    def __init__(self, disk: SimulatedDisk) -> None:
        self.metadata = Metadata(
            disk,
            max_record_bytes_between_snapshots=250,
            segment_bytes=400,
            max_retention_bytes=1_500,
        )
        self.asked: set[str] = set()
        self.answered: set[str] = set()

    def run(self) -> None:
        metadata = self.metadata
        metadata.open()
        for number in range(TOPICS):
            self.create(f"topic-{number}")
            # The thread may be late: the log goes on while a snapshot waits to be written.
            if number % 2:
                metadata.threads.work_off()
            if number == TOPICS // 2:
                metadata.clock.passed_ms += 60_001
                metadata.log.upkeep.tick()
        metadata.threads.work_off()
        metadata.log.close()

    def create(self, name: str) -> None:
        self.asked.add(name)
        self.metadata.create_topic(name)
        self.answered.add(name)

    def check(self) -> None:
        self.metadata.open()
        found = set(self.metadata.image.topics)
        assert self.answered <= found <= self.asked
        self.metadata.image.check_invariants()
        self.metadata.log.log.check_invariants()
        self.create(f"after-{len(found)}")
        self.metadata.threads.work_off()
        names = self.metadata.disk.names(FOLDER)
        assert not [name for name in names if name.endswith(".part")]


def crashed_at(operation: int, luck: int, *, power: bool) -> tuple[Life, bool]:
    disk = SimulatedDisk(Random(operation * 1000 + luck))
    disk.make_folder(FOLDER)
    disk.sync_all()
    disk.stop_at = disk.operations + operation
    life = Life(disk)
    try:
        life.run()
    except SimulatedCrash:
        stopped = True
    else:
        stopped = False
    if power:
        disk.crash()
    else:
        disk.kill()
    return life, stopped


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power loss"])
def test_every_crash_point_starts_again_with_all_that_was_answered(power: bool) -> None:
    operation, stopped = 1, True
    while stopped:
        for luck in range(LUCK if power else 1):
            life, stopped = crashed_at(operation, luck, power=power)
            life.check()
        operation += 1
    assert operation > 300, "the script is long enough to mean something"
    assert len(life.metadata.snapshots) >= 1
    assert life.metadata.segments[0] > 0, "segments were deleted"


@pytest.mark.slow
def test_a_crash_while_starting_starts_again() -> None:
    """A start removes files, rolls and appends; the next crash may come in the middle of it."""
    for operation in range(5, 330, 23):
        life, _ = crashed_at(operation, 0, power=True)
        disk, during = life.metadata.disk, 1
        while True:
            disk.stop_at = disk.operations + during
            try:
                life.check()
            except SimulatedCrash:
                disk.crash()
                during += during // 2 + 1  # each start appends, and makes the next one longer
                continue
            disk.stop_at = None
            break
        life.metadata.disk.crash()
        life.check()
