"""A node whose metadata log cannot be written any more gives up, and does not pretend otherwise."""

import asyncio
import errno
import logging
import signal
from collections.abc import Callable, Sequence
from pathlib import Path, PurePath

import pytest

from odradek.core.config import STANDALONE, LoadedConfig, load_broker_config, parse_overrides
from odradek.core.errors import ApiError
from odradek.core.event import Event
from odradek.node.node import Node
from odradek.node.serving import NodeFailedError, run
from odradek.protocol.generated.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.storage.disk import Buffer, OsDisk, OsFile

METADATA = "__cluster_metadata-0"
SECONDS_MAX = 120


class BrokenSync:
    """Lets the first sync of the metadata log fail; the next would succeed, and prove nothing."""

    def __init__(self, patched: pytest.MonkeyPatch, folder: Path) -> None:
        self.is_on = False
        self.syncs = 0
        sync_file = OsDisk.sync_file

        def sync(disk: OsDisk, path: PurePath) -> None:
            if self.is_on and folder / METADATA in path.parents:
                self.syncs += 1
                if self.syncs == 1:
                    raise OSError(errno.EIO, "Input/output error", str(path))
            sync_file(disk, path)

        patched.setattr(OsDisk, "sync_file", sync)


def load(folder: Path) -> LoadedConfig:
    texts = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(folder)}
    overrides = parse_overrides(f"{name}={value}" for name, value in texts.items())
    return load_broker_config(overrides, base={**STANDALONE, "log.cleaner.enable": "false"})


def create_topic(
    node: Node,
    then: Callable[[object], None],
    refused: Callable[[ApiError], None] = lambda _error: None,
) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic])
    node.controller.host.submit(
        lambda controller: controller.create_topics(request, node.ports.random), then, refused
    )


def test_a_failed_flush_of_the_metadata_log_ends_the_process_with_an_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, loaded = BrokenSync(monkeypatch, tmp_path), load(tmp_path)
    node = Node(loaded.config)
    answered: list[object] = []

    def on_ready(_host: str, _port: int) -> None:
        disk.is_on = True
        create_topic(node, answered.append)
        # If the node goes on, it is told to stop, and has not failed.
        asyncio.get_running_loop().call_later(SECONDS_MAX, signal.raise_signal, signal.SIGTERM)

    with caplog.at_level(logging.INFO, "odradek"), pytest.raises(NodeFailedError) as failed:
        run(node, loaded, on_ready)
    assert "Input/output error" in str(failed.value)
    assert answered == []
    assert disk.syncs == 1, "a second try would have been taken for a success"
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    names = [
        (each.levelname, each.msg.name)
        for each in caplog.records
        if isinstance(each.msg, Event) and each.name == "odradek.node"
    ]
    assert names[-3:] == [("INFO", "started"), ("CRITICAL", "failed"), ("ERROR", "stopped")]
    assert_starts_again(tmp_path)


def test_a_failed_write_to_the_metadata_log_ends_the_node_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(load(tmp_path).config)

    write = OsFile.write

    def fail(file: OsFile, position: int, buffers: Sequence[Buffer]) -> None:
        if tmp_path in file.path.parents:
            raise OSError(errno.EIO, "Input/output error", str(file.path))
        write(file, position, buffers)  # of a broker that other tests use

    async def story() -> None:
        await node.start()
        with monkeypatch.context() as patched:
            patched.setattr(OsFile, "write", fail)
            # It waits for what the start of the node may still have in flight.
            create_topic(node, lambda _reply: None)
            await node.failed.wait()
        await node.stop()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))
    assert isinstance(node.failure, OSError)
    assert node.failure.errno == errno.EIO
    assert_starts_again(tmp_path)


def assert_starts_again(folder: Path) -> None:
    async def story() -> None:
        node = Node(load(folder).config)
        await node.start()
        answered: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        create_topic(node, answered.set_result)
        await answered
        await node.stop()
        assert not node.failed.is_set()

    asyncio.run(asyncio.wait_for(story(), SECONDS_MAX))
    assert (folder / ".kafka_cleanshutdown").exists()
