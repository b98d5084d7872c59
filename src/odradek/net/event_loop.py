"""Picks the event loop: uvloop where it is installed (``bench/net.py`` compares), or asyncio."""

import asyncio
from importlib import import_module


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Return a new loop, for ``asyncio.Runner(loop_factory=new_event_loop)``."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        return asyncio.new_event_loop()
    loop = uvloop.new_event_loop()
    assert isinstance(loop, asyncio.AbstractEventLoop)
    return loop
