"""``odradek dump-log`` against the stored output of Kafka's DumpLogSegments, byte for byte."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli.main import main
from tests.interop.kafka_peer.golden import FOLDER, dump_flags, unpack

STORED = sorted(path.relative_to(FOLDER) for path in FOLDER.glob("*.dump/*.txt"))
EXCEPTION = re.compile(r'Exception in thread "main" [\w.]+: ')


def archive_of(stored: Path) -> str:
    return stored.parent.stem


@pytest.fixture(scope="module")
def data_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    @cache
    def folder(name: str) -> Path:
        return unpack(name, tmp_path_factory.mktemp("golden"))

    return folder


def expected(stored: Path, suffix: str) -> str:
    """What Kafka printed, without the line of flags on top."""
    path = (FOLDER / stored).with_suffix(suffix)
    text = path.read_bytes().decode() if path.exists() else "\n"
    return text.partition("\n")[2]


def run(stored: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    files = re.findall(r"^Dumping (.*)$", expected(stored, ".txt"), re.MULTILINE)
    assert files
    monkeypatch.chdir(folder)
    flags = dump_flags(archive_of(stored), stored.stem)
    return CliRunner().invoke(main, ["dump-log", "--files", ",".join(files), *flags])


def blocks(text: str) -> list[list[str]]:
    """Complaints by file, sorted: Kafka tells files in the order of a hash map."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(("  ", "Indexed offset: ")):
            found[-1].append(line)
        else:
            found.append([line])
    return sorted(found)


@pytest.mark.seed_row("0.10", "3.4", "4.5")
@pytest.mark.parametrize("stored", STORED, ids=str)
def test_dump_is_what_kafka_prints(
    stored: Path, data_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data_folder(archive_of(stored))
    result = run(stored, folder, monkeypatch)
    assert result.stdout_bytes.decode() == expected(stored, ".txt")

    complaints = EXCEPTION.sub("", expected(stored, ".stderr"))
    ours = result.stderr.replace(f"{folder}/", "")
    ours = re.sub(r"^\S+: (?=Found record size)", "", ours, flags=re.MULTILINE)
    assert blocks(ours) == blocks(complaints)
    assert result.exit_code == ("Exception in thread" in expected(stored, ".stderr"))


@pytest.mark.seed_row("3.4")
def test_every_kind_of_file_has_a_stored_dump() -> None:
    suffixes = {
        suffix
        for stored in STORED
        for suffix in re.findall(r"^Dumping .*(\.\w+)$", expected(stored, ".txt"), re.MULTILINE)
    }
    assert suffixes >= {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
