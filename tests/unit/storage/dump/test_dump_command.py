"""``odradek dump-log`` as a command: exit codes, names of files, and that it only reads."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.main import main
from odradek.records import CompressionType, Record
from odradek.records.legacy import build_message_set
from odradek.storage.dump import DumpOptions, ReadOnlyDisk, dump
from tests.unit.storage.dump.dumped import LOG, batch, lines_of, out, problems

SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".deleted")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dump-log", *arguments])


def test_names_are_printed_as_given_and_unknown_files_ignored() -> None:
    files = {LOG: batch(b"a"), "nodot": b"", "a.b": b"", "x.deleted": b""}
    lines = lines_of(files, f".//{LOG}", "nodot", "a.b/", "/data/orders-0/x.deleted")
    assert out(lines)[0] == f"Dumping ./{LOG}"
    assert problems(lines) == [
        "Ignoring unknown file nodot",
        "Ignoring unknown file a.b",
        "Ignoring unknown file /data/orders-0/x.deleted",
    ]
    assert not any(line.is_failure for line in lines)


def test_a_bad_file_does_not_stop_the_next(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_bytes(batch(b"a"))
    result = run("--files", f"{tmp_path}/7.log,{tmp_path}/x.log,{log}")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{tmp_path}/7.log: No such file or directory",
        f"{tmp_path}/x.log: the name must begin with an offset, not with 'x'",
    ]
    assert "isvalid: true" in result.stdout


def test_what_is_not_there_is_a_failure_whatever_its_name(tmp_path: Path) -> None:
    result = run("--files", f"{tmp_path}/nope,{tmp_path}/nope.txt")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"{tmp_path}/nope: No such file or directory",
        f"{tmp_path}/nope.txt: No such file or directory",
    ]


def test_a_folder_is_answered_with_how_to_name_its_files(tmp_path: Path) -> None:
    result = run("--files", str(tmp_path))
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path}: Is a directory: name its files, {tmp_path}/{LOG} say\n"


def test_a_folder_is_no_log(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    result = run("--files", str(tmp_path / LOG))
    assert result.exit_code == 1
    assert result.stderr == f"{tmp_path / LOG}: Is a directory\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Print what is in the files of a log"),
        (["--help"], "Print what is in the files of a log"),
        (["--deep-iteration"], 'Missing required argument "[files]"'),
        (["--files", "x", "--nonsense"], "--nonsense"),
        (["--files", "x", "--max-bytes", "many"], "many"),
        (["--files", "x", "--value-decoder-class", "com.example.Mine"], "com.example.Mine"),
    ],
)
def test_wrong_use_goes_to_stderr_and_exits_with_1(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert message in result.stderr.splitlines()[0]
    is_help = arguments in ([], ["--help"])
    assert ("--index-sanity-check" in result.stderr) is is_help
    assert is_help or "Try 'main dump-log --help'" in result.stderr


def test_version_goes_to_stdout() -> None:
    result = run("--version")
    assert result.exit_code == 0
    assert "0.1.0" in result.stdout


@pytest.mark.parametrize(
    "flags",
    [
        ["--value-decoder-class"],
        ["--key-decoder-class", "org.apache.kafka.tools.api.StringDecoder"],
        ["--print-data-log"],
    ],
)
def test_naming_a_decoder_prints_the_data(flags: list[str], tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(b"some value"))
    assert "payload: some value" in run("--files", str(tmp_path / LOG), *flags).stdout


def test_a_log_of_something_else_is_one_line(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(b"a"))
    result = run("--files", str(tmp_path / LOG), "--transaction-log-decoder")
    assert result.exit_code == 1
    [line, *_] = result.stderr.splitlines()
    assert "Failed to decode message at offset 0 using the specified decoder" in line


def test_nothing_is_made_or_changed(tmp_path: Path) -> None:
    (tmp_path / LOG).write_bytes(batch(b"a") + b"garbage that recovery would cut")
    base = str(tmp_path / LOG.removesuffix(".log"))
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    result = run("--files", ",".join(base + suffix for suffix in SUFFIXES))
    assert result.exit_code == 1
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_log_that_grows_meanwhile_is_dumped_as_it_was(tmp_path: Path) -> None:
    log = tmp_path / LOG
    log.write_bytes(batch(b"a"))
    lines = dump([str(log)], DumpOptions(), disk=ReadOnlyDisk(), working_folder=tmp_path)
    shown = [next(lines).text, next(lines).text, next(lines).text]
    with log.open("ab") as file:
        file.write(batch(b"b", base_offset=1))
    assert shown[2].startswith("baseOffset: 0 ")
    assert list(lines) == []


def test_other_commands_do_not_load_the_storage_engine() -> None:
    code = (
        "import sys; from odradek.cli.main import main;"
        "print([m for m in sys.modules if m.startswith(('odradek.storage', 'odradek.records'))])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout == b"[]\n"


@given(st.binary(max_size=200), st.sampled_from(SUFFIXES), st.booleans(), st.booleans())
def test_hostile_bytes_are_lines_and_never_an_exception(
    data: bytes, suffix: str, in_log: bool, sanity: bool
) -> None:
    base = LOG.removesuffix(".log")
    files = {base + each: data for each in SUFFIXES} | {LOG: data if in_log else batch(b"a", b"b")}
    options = {"print_data_log": True, "index_sanity_check": sanity}
    for name in (base + suffix, LOG):
        lines = lines_of(files, name, **options)
        assert lines[0].text == f"Dumping {name}"


@given(st.integers(0, 10**6), st.integers(0, 255), st.sampled_from([0, 1, 2]))
def test_a_damaged_log_is_lines_and_never_an_exception(at: int, byte: int, magic: int) -> None:
    records = [Record(offset, 5, b"k", b"v" * 9) for offset in range(4)]
    if magic == 2:
        log = bytearray(batch(b"a", b"b", codec=CompressionType.GZIP) + batch(b"c", base_offset=2))
    else:
        log = bytearray(
            build_message_set(records[:2], magic=magic)
            + build_message_set(records[2:], magic=magic, codec=CompressionType.GZIP)
        )
    log[at % len(log)] = byte
    lines = lines_of({LOG: bytes(log)}, LOG, print_data_log=True)
    assert sum(line.is_failure for line in lines) <= 1
