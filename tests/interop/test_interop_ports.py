"""Ports of the tests: nobody else gets them, and they come back."""

import os
import subprocess
import sys
from pathlib import Path

from tests.interop import ports

ROOT = Path(__file__).parents[2]
PROGRAM = "from tests.interop.ports import free_ports; print(*free_ports(5), flush=True); input()"


def test_a_port_is_a_processs_own_until_it_ends() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None
        theirs = [int(each) for each in other.stdout.readline().split()]
        assert len(set(theirs)) == 5
        assert not any(ports.reserve(each) for each in theirs)
        other.communicate("\n", timeout=60)
    assert all(ports.reserve(each) for each in theirs)


def test_a_port_is_not_given_twice_and_a_hundred_cost_one_descriptor() -> None:
    taken = set(ports.free_ports(1))
    before = len(os.listdir("/dev/fd"))
    more = ports.free_ports(100)
    assert len(taken | set(more)) == 101
    assert not any(ports.reserve(each) for each in more)
    assert len(os.listdir("/dev/fd")) == before
