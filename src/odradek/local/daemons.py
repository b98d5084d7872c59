"""Nodes in the background: ``odradek serve -daemon`` starts them, ``odradek stop`` ends them.

Each has a record and a log in a folder of this user's::

    ~/.local/state/odradek/node-1-5f0c….json     pid, when the process began, roles, directories
    ~/.local/state/odradek/node-1-5f0c….log      what it writes to stdout and stderr

named by its id and its first log directory. Only processes that are recorded are ever stopped, and
only if they are still the ones that were started.
"""

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from odradek.core.config import BrokerConfig
from odradek.local.errors import LocalClusterError
from odradek.local.process_identity import ProcessIdentity, identify, send_signal

READY_SECONDS_MAX: Final = 10
"""A node of a cluster may wait for others, which somebody is about to start."""
STOP_SECONDS_MAX: Final = 330
"""A controlled shutdown is given up after 300."""
POLL_SECONDS: Final = 0.02
_READY: Final = re.compile(r"^odradek ready on (\S+)$", re.MULTILINE)
_KEY_CHARACTERS: Final = 12


class Daemon(NamedTuple):
    process: ProcessIdentity
    node_id: int
    roles: tuple[str, ...]
    log_dirs: tuple[str, ...]
    log: str
    record: Path


def state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "odradek"


def start_daemon(config: BrokerConfig, words: Sequence[str]) -> tuple[Daemon, list[str]]:
    """Run ``odradek serve`` with these words in the background, until it is ready.

    Returns where it serves by then: not everywhere if it waits for other nodes, or recovers logs.

    Raises:
        LocalClusterError: It ended; why is in the message.
    """
    record = _record_file(config)
    record.parent.mkdir(parents=True, exist_ok=True)
    if record.exists() and (running := _read(record)).process.is_alive():
        pid = running.process.pid
        raise LocalClusterError(f"node {running.node_id} runs there already (pid {pid})")
    log = record.with_suffix(".log")
    with log.open("ab") as output:
        begun_at = output.tell()
        process = subprocess.Popen(  # noqa: S603  # ourselves
            [sys.executable, "-m", "odradek", "serve", *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    identity = identify(process.pid)
    assert identity is not None, "a child is there until it is waited for"
    roles = tuple(sorted(config.process_roles))
    daemon = Daemon(identity, config.node_id, roles, tuple(config.log_dirs), str(log), record)
    _write(daemon)
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        has_ended = process.poll() is not None
        said = _read_from(log, begun_at)
        if has_ended:
            record.unlink()
            lines = said.splitlines() or [f"exit code {process.returncode}"]
            raise LocalClusterError(f"{lines[-1].removeprefix('Error: ')} (its log is {log})")
        ready = _READY.findall(said)
        if len(ready) >= len(config.listeners) or time.monotonic() > deadline:
            return daemon, ready
        time.sleep(POLL_SECONDS)


def find_daemons() -> list[Daemon]:
    """Return those that run, by node id; records of others are removed."""
    found = []
    for record in sorted(state_folder().glob("node-*.json")):
        daemon = _read(record)
        if daemon.process.is_alive():
            found.append(daemon)
        else:
            record.unlink(missing_ok=True)
    return sorted(found, key=lambda each: each.node_id)


def stop_daemon(daemon: Daemon) -> None:
    """Stop it cleanly, and wait until it has ended.

    Raises:
        LocalClusterError: It does not end.
    """
    send_signal(daemon.process, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while daemon.process.is_alive():
        if time.monotonic() > deadline:
            raise LocalClusterError(
                f"node {daemon.node_id} (pid {daemon.process.pid}) still runs after"
                f" {STOP_SECONDS_MAX} s; its log is {daemon.log}"
            )
        time.sleep(POLL_SECONDS)
    daemon.record.unlink(missing_ok=True)


def _record_file(config: BrokerConfig) -> Path:
    place = str(Path(config.log_dirs[0]).absolute()).encode()
    key = hashlib.sha256(place).hexdigest()[:_KEY_CHARACTERS]
    return state_folder() / f"node-{config.node_id}-{key}.json"


def _write(daemon: Daemon) -> None:
    document = {
        "process": daemon.process._asdict(),
        "nodeId": daemon.node_id,
        "roles": daemon.roles,
        "logDirs": daemon.log_dirs,
        "log": daemon.log,
    }
    new = daemon.record.with_suffix(".new")
    new.write_text(json.dumps(document))
    new.replace(daemon.record)


def _read(record: Path) -> Daemon:
    try:
        document = json.loads(record.read_text())
        return Daemon(
            ProcessIdentity.from_json(document["process"]),
            int(document["nodeId"]),
            tuple(document["roles"]),
            tuple(document["logDirs"]),
            document["log"],
            record,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise LocalClusterError(f"{record} is damaged ({error}): remove it") from error


def _read_from(file: Path, position: int) -> str:
    with file.open("rb") as stream:
        stream.seek(position)
        return stream.read().decode(errors="replace")
