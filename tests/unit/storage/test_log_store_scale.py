"""Thousands of logs on a real disk: how long a start takes, and how many descriptors.

Limits are in seconds of our own work, because the machine that runs the tests has other things to
do; what the clock says is printed.
"""

import gc
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log_store import LogStore
from tests.unit.storage.test_log_store_support import TOPIC_ID, append, open_store, tick, values

LOGS = 1_500  # more take minutes on a disk that others use too
SAMPLE = [TopicPartition("t", number) for number in range(0, LOGS, 149)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Make the folders of one log, and of all the others by copying it."""
    path = tmp_path_factory.mktemp("logs")
    store = open_store(OsDisk(), [path], config=LogConfig())
    store.create(SAMPLE[0], TOPIC_ID, now_ms=0)
    append(store, SAMPLE[0], b"x", b"y")
    store.close(1)
    lines = [f"t {number} 2" for number in range(LOGS)]
    for number in range(1, LOGS):
        shutil.copytree(path / "t-0", path / f"t-{number}")
    (path / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(LOGS), *lines, ""]))
    yield path
    shutil.rmtree(path)


def descriptors() -> int:
    """Count what is open, less what other tests of this process have not let go yet."""
    return len(os.listdir("/proc/self/fd")) - _OTHERS[0]


_OTHERS = [0]


def opened(path: Path, capsys: pytest.CaptureFixture[str], what: str) -> tuple[LogStore, float]:
    clock, work = time.perf_counter(), time.process_time()
    store = open_store(OsDisk(), [path], config=LogConfig())
    clock, work = time.perf_counter() - clock, time.process_time() - work
    with capsys.disabled():
        print(
            f"\n{what}: {LOGS} logs in {clock:.1f} s ({work:.1f} s of work), "
            f"{descriptors()} descriptors"
        )
    return store, work


@pytest.mark.slow
def test_thousands_of_logs_open_in_seconds_with_few_descriptors(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gc.collect()
    _OTHERS[0] = len(os.listdir("/proc/self/fd"))
    store, seconds = opened(data, capsys, "after a clean stop")
    assert len(store.logs) == LOGS
    assert seconds < 20  # 1 measured, 3 on a machine with thirty times more to do than cores
    assert descriptors() < 1000
    for partition in SAMPLE:
        append(store, partition, b"z")
        assert values(store.get(partition)) == [b"x", b"y", b"z"]
    tick(store, 10**6)
    assert descriptors() < 1000
    before = time.perf_counter()
    store.close(2)
    with capsys.disabled():
        print(f"closed in {time.perf_counter() - before:.1f} s")
    assert descriptors() < 100

    (data / ".kafka_cleanshutdown").unlink()
    store, seconds = opened(data, capsys, "after an unclean stop")
    assert len(store.logs) == LOGS
    assert seconds < 60
    assert descriptors() < 1000
    for partition in SAMPLE:
        assert values(store.get(partition)) == [b"x", b"y", b"z"]
    store.close(3)
