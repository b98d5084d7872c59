"""Tools that wait say on stderr what they wait for, before they give up."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from odradek.testing.broker import Broker
from tests.interop.odradek_tool import COMMAND, odradek_tool
from tests.interop.ports import free_ports


@contextmanager
def running(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    with subprocess.Popen(
        [COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "arguments",
    [("topics", "--list"), ("console-consumer", "--topic", "t"), ("consumer-groups", "--list")],
)
def test_a_tool_says_that_nobody_listens_while_it_waits(arguments: tuple[str, ...]) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with running(arguments[0], "--bootstrap-server", address, *arguments[1:]) as tool:
        assert tool.stderr is not None
        line = tool.stderr.readline()
        assert tool.poll() is None, "it has not given up yet"
        assert line.startswith("WARN: ")
        assert f"{address}: connection refused" in line


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_without_a_coordinator_is_a_failure_with_the_brokers_reason(protocol: str) -> None:
    config = {"offsets.topic.replication.factor": "3"}
    with Broker(topics=["t"], config=config, memory=True) as broker:
        run = odradek_tool(
            "console-consumer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "g"),
            *("--timeout-ms", "5000", "--command-property", f"group.protocol={protocol}"),
            check=False,
        )
    assert run.returncode == 1
    assert "__consumer_offsets cannot be created" in run.stderr
    assert "lower offsets.topic.replication.factor" in run.stderr
    assert "Processed a total of 0 messages" in run.stderr
    assert len(run.stderr.splitlines()) <= 4


def test_a_group_that_finds_nothing_to_read_is_no_failure() -> None:
    with Broker(topics=["t"], memory=True) as broker:
        run = odradek_tool(
            "console-consumer",
            *("--bootstrap-server", broker.bootstrap_servers, "--topic", "t", "--group", "g"),
            *("--timeout-ms", "1000"),
        )
    assert run.stderr == "Processed a total of 0 messages\n"
