"""Running a node as a process: its config from file, environment and options; signals; the end."""

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek.broker.node import Node
from odradek.core.config import (
    STANDALONE,
    BrokerConfig,
    LoadedConfig,
    load_broker_config,
    parse_environment,
    parse_overrides,
    parse_server_properties,
)
from odradek.net.event_loop import new_event_loop


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


def run(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> None:
    """Run a node until SIGTERM or SIGINT; ``on_ready`` hears where it listens."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve(config, on_ready))


async def _serve(config: BrokerConfig, on_ready: Callable[[str, int], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    node = Node(config)
    await node.start()
    try:
        for host, port in node.server.endpoints.values():
            on_ready(host, port)
        await stopped.wait()
    finally:
        await node.stop()
