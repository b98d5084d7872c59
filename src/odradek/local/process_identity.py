"""Processes that are known by more than their number, which the system gives to others later.

A process is its pid and the moment it began, as the kernel tells it: a number that was given again
belongs to a process that began later. On Linux the signal goes through a descriptor of the process
(``pidfd``) that is opened before the two are compared, so nothing can come between; elsewhere there
are some microseconds between the look and the signal.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any, Final, NamedTuple

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_START_FIELD: Final = 19
"""Of /proc/PID/stat, counted after the name in parentheses, which may have anything in it."""
_STATE_FIELD: Final = 0
_ENDED: Final = "Z"
_PS_SECONDS_MAX: Final = 10


class ProcessIdentity(NamedTuple):
    pid: int
    began: str

    @classmethod
    def from_json(cls, document: Any) -> "ProcessIdentity":
        return cls(int(document["pid"]), str(document["began"]))

    def is_alive(self) -> bool:
        return identify(self.pid) == self


def identify(pid: int) -> ProcessIdentity | None:
    """Return the process that has this number now; None if there is none, or it has ended."""
    if not _BOOT_ID.exists():
        return _identify_by_ps(pid)
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    if fields[_STATE_FIELD] == _ENDED:
        return None
    return ProcessIdentity(pid, f"{fields[_START_FIELD]} {_BOOT_ID.read_text().strip()}")


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Send a signal to this process and no other; False if it is gone."""
    if not hasattr(os, "pidfd_open"):
        if not process.is_alive():
            return False
        os.kill(process.pid, number)
        return True
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if not process.is_alive():
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def _identify_by_ps(pid: int) -> ProcessIdentity | None:
    command = ["/bin/ps", "-o", "state=,lstart=", "-p", str(pid)]
    run = subprocess.run(  # noqa: S603  # a number is all that comes from outside
        command, capture_output=True, encoding="utf-8", timeout=_PS_SECONDS_MAX, check=False
    )
    state, _, began = run.stdout.strip().partition(" ")
    if not began or state.startswith(_ENDED):
        return None
    return ProcessIdentity(pid, began.strip())
