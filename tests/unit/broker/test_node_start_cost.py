"""What a start does not pay for: modules that only some later request needs."""

import subprocess
import sys
from pathlib import Path

SECONDS_MAX = 180
LATER = (
    "cramjam",  # snappy
    "decimal",
    "importlib.metadata",
    "lz4.frame",
    "multiprocessing",
    "odradek.broker.fetcher",
    "odradek.broker.marker_sender",
    "odradek.broker.replica_session",
    "odradek.broker.verification_sender",
    "odradek.coordinator.group.shard",
    "odradek.coordinator.transaction.shard",
    "odradek.quorum.quorum_description",
    "odradek.quorum.raft_channel",
    "odradek.quorum.raft_requests",
    "odradek.quorum.raft_responses",
    "odradek.quorum.raft_service",
    "odradek.quorum.remote_controller",
    "odradek.quorum.voter_messages",
    "odradek.replication.following",
    "odradek.storage.cleaner.worker",
    "odradek.wire.connection",
    "odradek.wire.lane",
    "odradek.wire.sasl.login",
    "prometheus_client",
    "re2",
    "tempfile",
)
_SCRIPT = """
import asyncio, sys
from odradek.node.node import Node
from odradek.core.config import STANDALONE, load_broker_config, parse_overrides

async def start():
    settings = ["log.dirs=" + sys.argv[1], "listeners=PLAINTEXT://127.0.0.1:0"]
    config = load_broker_config(parse_overrides([*settings, *sys.argv[2:]]), base=STANDALONE).config
    node = Node(config)
    await node.start()
    print(*sys.modules)
    await node.stop()

asyncio.run(start())
"""


def modules_after_start(folder: Path, *settings: str) -> set[str]:
    command = [sys.executable, "-c", _SCRIPT, str(folder), *settings]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX)
    return set(shown.stdout.split())


def test_a_start_loads_nothing_that_only_later_requests_need(tmp_path: Path) -> None:
    loaded = modules_after_start(tmp_path, "log.cleaner.enable=false")
    assert "odradek.broker.broker_server" in loaded
    assert loaded.isdisjoint(LATER), loaded.intersection(LATER)


def test_the_cleaner_is_there_but_not_what_processes_need(tmp_path: Path) -> None:
    loaded = modules_after_start(tmp_path)
    assert "odradek.storage.cleaner.worker" in loaded
    assert "multiprocessing" not in loaded
    assert "concurrent.futures.process" not in loaded
