"""`odradek serve -daemon` and `odradek stop`: a server is started and stopped (seed row 4.11)."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.client import BlockingConsumer
from odradek.local.process_identity import ProcessIdentity, identify, send_signal
from tests.cluster.flavours import ODRADEK_COMMAND
from tests.cluster.processes import wait_until
from tests.interop.ports import free_ports

SECONDS_MAX = 180


class Shell:
    """Runs commands as a user with a state folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.environment = {"XDG_STATE_HOME": str(folder / "state"), "PATH": "/usr/bin:/bin"}
        self.data = folder / "data"
        (self.port,) = free_ports(1)

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ODRADEK_COMMAND, *words],
            env=self.environment,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS_MAX,
            check=False,
        )

    def start(self) -> ProcessIdentity:
        run = self.run("serve", "-daemon", "--port", str(self.port), "--data-dir", str(self.data))
        assert run.returncode == 0, run
        assert run.stdout.startswith(f"odradek ready on 127.0.0.1:{self.port}\n"), run
        found = re.search(r"^node 1, pid (\d+), log (\S+)$", run.stdout, re.MULTILINE)
        assert found is not None, run
        assert "started" in Path(found[2]).read_text()
        identity = identify(int(found[1]))
        assert identity is not None
        return identity


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.run("stop")


@pytest.mark.seed_row("4.11")
def test_a_server_in_the_background_serves_until_it_is_stopped(shell: Shell) -> None:
    daemon = shell.start()
    topics = ["topics", "--bootstrap-server", f"127.0.0.1:{shell.port}"]
    assert shell.run(*topics, "--create", "--topic", "orders").stdout == "Created topic orders.\n"
    assert shell.run(*topics, "--create", "--topic", "gone").returncode == 0
    assert shell.run(*topics, "--delete", "--topic", "gone").returncode == 0
    assert shell.run(*topics, "--list").stdout == "orders\n"
    assert "Leader: 1" in shell.run(*topics, "--describe", "--topic", "orders").stdout
    with BlockingConsumer("orders", bootstrap_servers=topics[-1], group_id="g") as consumer:

        def has_internal() -> bool:
            consumer.poll(0.1)  # its coordinator makes the internal topic
            return "__consumer_offsets\n" in shell.run(*topics, "--list").stdout

        wait_until(has_internal, "the group has a coordinator")
    refused = shell.run(*topics, "--delete", "--topic", "__consumer_offsets")
    assert refused.returncode == 1
    assert "__consumer_offsets is Kafka's own and cannot be deleted" in refused.stdout
    other = shell.run("stop", "--node-id", "7")
    assert other.returncode == 1
    assert other.stderr.startswith("Error: there is no such node to stop:")
    assert daemon.is_alive()
    run = shell.run("stop")
    assert (run.returncode, run.stdout) == (0, f"stopped node 1 (pid {daemon.pid})\n")
    assert not daemon.is_alive()
    assert shell.run("stop", "--process-role", "broker").returncode == 1
    again = shell.start()
    assert "orders\n" in shell.run(*topics, "--list").stdout
    assert shell.run("stop", "--process-role", "broker").returncode == 0
    assert not again.is_alive()


def test_why_a_server_does_not_start_is_one_line(shell: Shell) -> None:
    daemon = shell.start()
    twice = shell.run("serve", "-daemon", "--port", str(shell.port), "--data-dir", str(shell.data))
    assert (twice.returncode, twice.stderr) == (
        1,
        f"Error: node 1 runs there already (pid {daemon.pid})\n",
    )
    elsewhere = str(shell.data.with_name("other"))
    busy = shell.run("serve", "-daemon", "--port", str(shell.port), "--data-dir", elsewhere)
    assert busy.returncode == 1
    assert len(busy.stderr.splitlines()) == 1
    assert "address already in use" in busy.stderr.lower(), busy
    assert daemon.is_alive()


def test_a_later_process_with_its_pid_is_not_stopped(shell: Shell) -> None:
    daemon = shell.start()
    (record,) = (Path(shell.environment["XDG_STATE_HOME"]) / "odradek").glob("*.json")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        text = record.read_text()
        record.write_text(text.replace(str(daemon.pid), str(stranger.pid)))
        assert shell.run("stop").returncode == 1
        assert stranger.poll() is None
        stranger.kill()
    assert send_signal(daemon, signal.SIGKILL)
