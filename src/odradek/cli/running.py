"""Runs the work of a tool that may go on for ever, until it ends or a signal ends it.

SIGINT and SIGTERM cancel the work, which then closes its clients and says what it has to say; the
exit code is 128 and the signal's number, as that of a JVM. A second signal cancels the closing.
"""

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, Final

import click

from odradek.cli.tool_options import reason
from odradek.core.errors import OdradekError
from odradek.net.event_loop import new_event_loop

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_SIGNAL_EXIT_CODE: Final = 128


def run_until_stopped(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work``; what goes wrong with it is one line on stderr and exit code 1."""
    stopped_by: list[int] = []
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_session(work, stopped_by))
    except (OdradekError, OSError) as error:
        click.echo(reason(error), err=True)
        raise click.exceptions.Exit(1) from error
    if stopped_by:
        raise click.exceptions.Exit(_SIGNAL_EXIT_CODE + stopped_by[0])


async def _session(work: Coroutine[Any, Any, None], stopped_by: list[int]) -> None:
    task = asyncio.current_task()
    assert task is not None

    def stop(number: int) -> None:
        stopped_by.append(number)
        task.cancel()

    if threading.current_thread() is threading.main_thread():
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, stop, number)
    try:
        await work
    except asyncio.CancelledError:
        if not stopped_by:
            raise
