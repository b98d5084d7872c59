"""Flags, refusals and streams of the tools that produce and consume. No broker is asked."""

import asyncio
import io
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli import standard_streams
from odradek.cli.main import TOOLS, main
from odradek.cli.tool_options import ToolError

SERVER = ["--bootstrap-server", "127.0.0.1:1"]
NOBODY = ["--command-property", "default.api.timeout.ms=1"]
STREAM_TOOLS = [
    "console-consumer",
    "console-producer",
    "consumer-perf-test",
    "e2e-latency",
    "producer-perf-test",
    "verifiable-consumer",
    "verifiable-producer",
]


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


@pytest.mark.parametrize("tool", [*STREAM_TOOLS, "completion", "perf partitions"])
def test_help_is_there(tool: str) -> None:
    result = run(*tool.split(), "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


@pytest.mark.parametrize("tool", STREAM_TOOLS)
def test_nothing_at_all_is_wrong_use(tool: str) -> None:
    result = run(tool)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Usage:" in result.stderr


@pytest.mark.seed_row("2.3")
@pytest.mark.parametrize("tool", STREAM_TOOLS)
def test_the_zookeeper_of_old_is_answered_with_what_to_use(tool: str) -> None:
    result = run(tool, "--zookeeper", "localhost:2181", "--topic", "t")
    assert result.exit_code == 1
    assert "use --bootstrap-server" in result.stderr.splitlines()[0]


def without_warnings(stderr: str) -> list[str]:
    """Return what a tool says itself: its client may or may not get to warn before the deadline."""
    return [each for each in stderr.splitlines() if not each.startswith("WARN: ")]


def test_the_broker_list_of_old_is_taken_for_the_server() -> None:
    asked = ("--broker-list", "127.0.0.1:1", *NOBODY, "--topic", "t")
    result = run("console-producer", *asked)
    note, problem = without_warnings(result.stderr)
    assert "--broker-list is deprecated" in note
    assert "127.0.0.1:1" in problem


PERF = ["--topic", "t", "--throughput", "-1", "--num-records", "10"]
SIZED = [*PERF, "--record-size", "1"]
LATENCY = ["--topic", "t", "--num-records", "3", "--producer-acks", "all", "--record-size", "1"]
REFUSED = [
    (["console-producer", *SERVER], "--topic"),
    (["console-producer", *SERVER, "--topic", "t", "--line-reader", "com.Mine"], "com.Mine"),
    (["console-producer", *SERVER, "--topic", "t", "--command-config", "/none"], "/none"),
    (["console-consumer", *SERVER, "--topic", "t", "--whitelist", "x"], "--include"),
    (["console-consumer", *SERVER, "--include", "("], "pattern"),
    (["console-consumer", *SERVER, "--topic", "t", "--formatter", "mine"], "offsets"),
    (["console-consumer", *SERVER, "--topic", "t", "--key-deserializer", "mine"], "string"),
    (["console-consumer", *SERVER, "--topic", "t", "--isolation-level", "none"], "read_committed"),
    (["producer-perf-test", *SERVER, *PERF], "Exactly one of --record-size"),
    (["producer-perf-test", *SERVER, *PERF, "--record-size", "0"], "--record-size should be"),
    (
        ["producer-perf-test", *SERVER, *PERF, "--payload-monotonic", "--warmup-records", "10"],
        "strictly fewer",
    ),
    (
        ["producer-perf-test", *SERVER, *SIZED, "--record-key-range", "1"],
        "--key-distribution",
    ),
    (
        [*"producer-perf-test --producer-props a=1 --command-property b=1".split(), *SIZED],
        "--command-property and --producer-props cannot be specified together.",
    ),
    (["consumer-perf-test", *SERVER, "--topic", "t"], 'Missing required argument "[num-records]"'),
    (
        ["consumer-perf-test", *SERVER, "--num-records", "1", "--topic", "t", "--include", "t"],
        "Exactly one of the following arguments is required: [topic], [include]",
    ),
    (
        ["consumer-perf-test", *SERVER, "--num-records", "1", "--topic", "t", "--date-format", "G"],
        "--date-format",
    ),
    (["e2e-latency", "localhost:9092", "t", "3"], "Invalid number of arguments"),
    (["e2e-latency", *SERVER, *LATENCY, "--producer-acks", "0"], "--producer-acks"),
    (["e2e-latency", *SERVER, *LATENCY, "--record-header-size", "-2"], "--record-header-size"),
    (["verifiable-producer", *SERVER, "--topic", "t", "--acks", "2"], "--acks"),
    (["verifiable-consumer", *SERVER, "--topic", "t"], "--group-id"),
    (["perf", "partitions", *SERVER, "--partitions", "1,x"], "not a list like"),
    (["perf", "partitions", *SERVER, "--partitions", "0"], "from 1 to"),
    (["perf", "partitions", *SERVER, "--partitions", "1", "--png", "x.png"], "matplotlib"),
    (["completion", "csh"], "csh"),
]


@pytest.mark.parametrize(("arguments", "word"), REFUSED)
def test_wrong_use_is_exit_code_1_and_says_why(
    arguments: list[str], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # whoever has it
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert word in result.stderr.splitlines()[0]
    assert "Usage:" in result.stderr


UNREACHABLE = [
    ["console-producer", *SERVER, *NOBODY, "--topic", "t"],
    ["console-consumer", *SERVER, *NOBODY, "--topic", "t"],
    ["producer-perf-test", *SERVER, *SIZED, *NOBODY],
    ["consumer-perf-test", *SERVER, *NOBODY, "--topic", "t", "--num-records", "1", "--hide-header"],
    ["e2e-latency", *SERVER, *NOBODY, *LATENCY],
    ["perf", "partitions", *SERVER, *NOBODY],
    ["producer-perf-test", *SIZED],
    ["console-producer", "--bootstrap-server", "localhost", "--topic", "t"],
    ["console-producer", *SERVER, "--topic", "t", "--command-property", "linger.ms=soon"],
]


@pytest.mark.parametrize("arguments", UNREACHABLE)
def test_what_fails_is_one_line_and_exit_code_1(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert len(without_warnings(result.stderr)) == 1 + ("console-consumer" in arguments)
    assert "Traceback" not in result.stderr


def test_a_setting_that_no_client_knows_is_told_and_left_out() -> None:
    extra = ["--command-property", "key.serializer=Mine"]
    result = run("console-producer", *SERVER, *NOBODY, "--topic", "t", *extra)
    assert result.stderr.startswith("WARN: these settings are not known: key.serializer\n")


def test_every_tool_has_a_module() -> None:
    for name in TOOLS:
        assert "Usage:" in run(name, "--help").output, name


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_for_the_shell(shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"_ODRADEK_COMPLETE={shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("odradek console", {"console-consumer", "console-producer"}),
        ("odradek perf ", {"partitions"}),
        ("odradek console-consumer --from", {"--from-beginning"}),
        ("odradek e2e-latency --topic t --num", {"--num-records", "--num-headers"}),
        ("odradek verifiable-consumer --reset-policy e", {"earliest"}),
    ],
)
def test_a_shell_completes_commands_and_options(words: str, found: set[str]) -> None:
    environment = {
        "_ODRADEK_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    result = CliRunner().invoke(main, prog_name="odradek", env=environment)
    assert {line.partition(",")[2] for line in result.stdout.splitlines()} == found


# Streams.


def lines_of(data: bytes, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return the lines of a pipe that has this in it, and ends."""
    read_end, write_end = os.pipe()
    os.write(write_end, data)
    os.close(write_end)

    async def scenario() -> list[bytes]:
        return [line async for lines in standard_streams.line_batches() for line in lines]

    with open(read_end) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        return asyncio.run(scenario())


@pytest.mark.parametrize("chunk_bytes", [1, 2, 1000])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"a\nb\nc", [b"a", b"b", b"c"]),
        (b"a\r\nb\rc\n", [b"a", b"b", b"c"]),
        (b"\n\n", [b"", b""]),
        (b"a\r\r\n", [b"a", b""]),
        (b"a\r", [b"a"]),
        (b"", []),
    ],
)
def test_lines_end_as_in_java(
    data: bytes, lines: list[bytes], chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standard_streams, "CHUNK_BYTES", chunk_bytes)
    assert lines_of(data, monkeypatch) == lines


def test_a_line_is_there_before_the_next_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    read_end, write_end = os.pipe()

    async def scenario() -> None:
        batches = standard_streams.line_batches()
        for line in (b"a", b"b"):
            os.write(write_end, line + b"\n")
            assert await anext(batches) == [line]
        os.close(write_end)
        await batches.aclose()

    with open(read_end) as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        asyncio.run(scenario())


def test_a_line_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standard_streams, "LINE_BYTES_MAX", 10)
    with pytest.raises(ToolError, match="more than 10 bytes"):
        lines_of(b"x" * 11, monkeypatch)


def test_a_reader_that_left_is_noticed_and_nothing_more_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)

    async def scenario(output: standard_streams.Output) -> None:
        await output.write(b"x")
        assert output.is_broken
        await output.write(b"y")

    with io.TextIOWrapper(os.fdopen(write_end, "wb")) as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        asyncio.run(scenario(standard_streams.Output()))
        stream.write("flushed at the end, into nothing")
