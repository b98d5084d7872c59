"""Logs to test, on a simulated disk or a real one."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

import pytest

from odradek.core.ids import TopicPartition
from odradek.storage.config import LogConfig
from odradek.storage.disk import OsDisk
from odradek.storage.log import Log
from odradek.storage.recovery import LogSettings, create_log
from odradek.testing.disk import SimulatedDisk
from tests.storage_batches import BASE_TIME_MS

PARTITION = TopicPartition("t", 0)
MakeLog = Callable[..., Log]


@pytest.fixture
def make_log() -> MakeLog:
    """Return a function that makes an empty log with the given settings on a simulated disk."""

    def make(**config: Any) -> Log:
        disk = SimulatedDisk(Random(1))
        settings = LogSettings(LogConfig(**{"segment_index_bytes": 4096, **config}))
        folder = PurePosixPath("/data/t-0")
        return create_log(PARTITION, disk, folder, settings, now_ms=BASE_TIME_MS, random=Random(1))

    return make


@pytest.fixture
def real_log(tmp_path: Path) -> Log:
    settings = LogSettings(LogConfig(segment_bytes=2000, index_interval_bytes=200))
    return create_log(
        PARTITION, OsDisk(), tmp_path / "t-0", settings, now_ms=BASE_TIME_MS, random=Random(1)
    )
