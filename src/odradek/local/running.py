"""Bringing a cluster up and down: what comes before the supervisor, and after it."""

import signal
import time
from collections.abc import Callable
from random import SystemRandom
from typing import Final

from odradek.broker.clock import SystemClock
from odradek.local.commands import Say, ask_supervisor
from odradek.local.errors import LocalClusterError
from odradek.local.folder import ClusterFolder
from odradek.local.layout import Wishes, check_fits, plan_layout
from odradek.local.ports import check_ports
from odradek.local.process_identity import ProcessIdentity, send_signal
from odradek.local.snapshots import copy_back, swap_in, write_snapshot
from odradek.local.supervisor import Supervisor

DOWN_SECONDS_MAX: Final = 90
LEFT_SECONDS_MAX: Final = 15
POLL_SECONDS: Final = 0.02


async def bring_up(
    folder: ClusterFolder, wishes: Wishes, say: Say, on_ready: Callable[[Supervisor, float], None]
) -> None:
    """Run the cluster of a folder, made if need be, until it is told to stop.

    Raises:
        LocalClusterError: It cannot be; nothing is left running.
    """
    folder.check_ours()
    was_there = folder.path.exists()
    planned = plan_layout(wishes, SystemRandom())
    with folder.locked():
        is_kept = was_there
        try:
            layout = folder.load()
            if layout is not None:
                check_fits(layout, wishes, folder.shown)
            _check_nothing_left(folder)
            check_ports((layout or planned).nodes)
            if layout is None:
                folder.create(planned)
                layout = planned
            is_kept = not layout.is_ephemeral
            await Supervisor(folder, layout, SystemClock(), say, on_ready).run()
        finally:
            if not is_kept:
                folder.remove()


def _check_nothing_left(folder: ClusterFolder) -> None:
    """See that no node of an earlier run is still there.

    Raises:
        LocalClusterError: One is.
    """
    record = folder.read_run()
    left = [] if record is None else [n for n, each in record.nodes.items() if each.is_alive()]
    if left:
        nodes = ", ".join(map(str, left))
        raise LocalClusterError(
            f"node {nodes} of an earlier run is still there, its supervisor was killed:"
            f" `odradek down` ends it"
        )


def snapshot(folder: ClusterFolder, name: str, say: Say) -> None:
    """Take a snapshot, of a cluster that runs or one that is down.

    Raises:
        LocalClusterError: It cannot have this name.
    """
    if is_up(folder):
        ask_supervisor(folder, {"command": "snapshot", "name": name}, say)
        return
    with folder.locked():
        copied = write_snapshot(folder, folder.existing(), name)
    say(f"snapshot {name}: {copied / 1e6:.1f} MB")


def restore(folder: ClusterFolder, name: str, say: Say) -> None:
    """Go back to a snapshot, with a cluster that runs or one that is down.

    Raises:
        LocalClusterError: There is none of this name.
    """
    if is_up(folder):
        ask_supervisor(folder, {"command": "restore", "name": name}, say)
        return
    with folder.locked():
        swap_in(folder, copy_back(folder, name))
    say(f"snapshot {name} is restored: `odradek up` starts it")


def is_up(folder: ClusterFolder) -> bool:
    folder.existing()
    record = folder.read_run()
    return record is not None and record.supervisor.is_alive()


def bring_down(folder: ClusterFolder, say: Say) -> None:
    """End exactly what ``up`` started in this folder, whatever is left of it.

    Raises:
        LocalClusterError: Nothing runs there, or it does not end.
    """
    layout = folder.existing()
    record = folder.read_run()
    if record is None:
        raise LocalClusterError(f"the cluster in {folder.shown} is not up")
    if record.supervisor.is_alive():
        ask_supervisor(folder, {"command": "down"}, say)
        _wait(
            lambda: not record.supervisor.is_alive(), "the supervisor still runs", DOWN_SECONDS_MAX
        )
        say(f"all {len(layout.nodes)} nodes stopped")
        return
    # It was killed. Its nodes stop by themselves, unless they are paused.
    for process in record.nodes.values():
        send_signal(process, signal.SIGTERM)
        send_signal(process, signal.SIGCONT)
    left = [process for process in record.nodes.values() if not _ends(process)]
    for process in left:
        send_signal(process, signal.SIGKILL)
    folder.remove_run()
    say("the supervisor had been killed; its nodes have been ended")
    if layout.is_ephemeral:
        folder.remove()


def _ends(process: ProcessIdentity) -> bool:
    try:
        _wait(lambda: not process.is_alive(), "", LEFT_SECONDS_MAX)
    except LocalClusterError:
        return False
    return True


def _wait(is_over: Callable[[], bool], problem: str, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while not is_over():
        if time.monotonic() > deadline:
            raise LocalClusterError(f"{problem} after {seconds_max} s")
        time.sleep(POLL_SECONDS)
