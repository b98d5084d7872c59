"""A process is told from a later one with its pid."""

import os
import signal
import subprocess
import sys

from odradek.local.process_identity import ProcessIdentity, identify, send_signal

WAITS = [sys.executable, "-c", "input()"]


def test_a_signal_goes_to_the_process_that_was_meant() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        assert identity is not None
        assert identity.is_alive()
        assert send_signal(identity, signal.SIGKILL)
        assert child.wait() == -signal.SIGKILL
        assert not identity.is_alive()
        assert not send_signal(identity, signal.SIGKILL)


def test_a_later_process_with_the_same_pid_is_left_alone() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        assert identity is not None
        earlier = ProcessIdentity(child.pid, "1 " + identity.began.partition(" ")[2])
        assert not earlier.is_alive()
        assert not send_signal(earlier, signal.SIGKILL)
        assert child.poll() is None
        child.kill()


def test_a_process_that_ended_and_waits_for_its_parent_is_gone() -> None:
    with subprocess.Popen(WAITS, stdin=subprocess.PIPE) as child:
        identity = identify(child.pid)
        assert identity is not None
        child.kill()
        # Its pid is kept until it is waited for.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not identity.is_alive()
        assert child.returncode is None
