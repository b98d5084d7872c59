"""Running a node as a process: its config from file, environment and options; signals; the end."""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from odradek.broker.metrics.endpoint import Endpoint
from odradek.core.config import (
    STANDALONE,
    ConfigError,
    LoadedConfig,
    load_broker_config,
    parse_environment,
    parse_overrides,
    parse_server_properties,
)
from odradek.core.errors import OdradekError
from odradek.core.event import Event
from odradek.net.event_loop import new_event_loop
from odradek.node.frozen_heap import FrozenHeap
from odradek.node.node import Node, wait_for_any

_logger: Final = logging.getLogger("odradek.config")


class NodeFailedError(OdradekError):
    """The node could not go on; it has stopped, and the next start recovers."""


def load_config(config_file: Path | None, overrides: Sequence[str]) -> LoadedConfig:
    """Put a node's config together; without a file it is one that works by itself.

    Raises:
        ConfigError: Something is wrong with it; the message says where.
    """
    sources = [parse_overrides(overrides), parse_environment(os.environ)]
    base = {**STANDALONE, "log.dirs": str(default_data_dir())}
    if config_file is not None:
        # Java reads properties files as Latin-1; other characters are escaped in them.
        text = config_file.read_text("latin-1")
        sources.append(parse_server_properties(text, str(config_file)))
        base = {}
    return load_broker_config(*sources, base=base)


def default_data_dir() -> Path:
    """Return the folder of this user's in which a node keeps its data unless told otherwise."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "odradek"


def run(
    node: Node,
    loaded: LoadedConfig,
    on_ready: Callable[[str, int], None],
    endpoint: Endpoint | None = None,
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
) -> None:
    """Run a node until SIGTERM or SIGINT; ``on_ready`` hears where it listens.

    A broker asks for permission to leave its cluster; a second signal ends the wait for it.

    With an ``endpoint`` its metrics are served, too.

    Raises:
        ConfigError: A listener cannot be had as it is configured.
        NodeFailedError: The node had to give up.
        OSError: An address cannot be listened on, or the disk fails at the start.
    """
    for warning in loaded.warnings:
        _logger.warning(Event("doubtful config", doubt=str(warning)))
    if loaded.ignored:
        _logger.warning(Event("configs without effect yet", configs=loaded.ignored))
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_serve_with(endpoint, node, on_ready))
    except ConfigError as error:
        raise loaded.locate(error) from error


async def _serve_with(
    endpoint: Endpoint | None, node: Node, on_ready: Callable[[str, int], None]
) -> None:
    if endpoint is None:
        await _serve(node, on_ready)
        return
    await endpoint.start()  # before the node, so that it can say that the node is not ready
    try:
        await _serve(node, on_ready)
    finally:
        await endpoint.stop()


async def _serve(node: Node, on_ready: Callable[[str, int], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        if stopped.is_set():
            node.hurry()
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    node.on_ready = on_ready
    with FrozenHeap() as heap:  # only here, where the process is the node's own
        if await _start(node, stopped):
            heap.freeze()
            try:
                await wait_for_any(stopped, node.failed)
            finally:
                await node.stop()
    if node.failure is not None:
        raise NodeFailedError(f"the node had to give up: {node.failure}") from node.failure


async def _start(node: Node, stopped: asyncio.Event) -> bool:
    """Start the node; False if it was stopped, or failed, while it waited for other nodes."""
    starting = asyncio.create_task(node.start())
    interrupted = asyncio.create_task(wait_for_any(stopped, node.failed))
    await asyncio.wait((starting, interrupted), return_when=asyncio.FIRST_COMPLETED)
    interrupted.cancel()
    if not starting.done():
        _logger.info(Event("stopped while starting", node_id=node.node_id))
        starting.cancel()
        await asyncio.wait((starting,))
    if starting.cancelled():
        return False
    starting.result()
    return True
