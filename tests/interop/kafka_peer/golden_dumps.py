"""DumpLogSegments over a whole data directory, one text file for each way to call it.

The first line of each text file is `#` and the flags.
"""

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.interop.kafka_peer.tools import ToolRun, kafka_tool

# Text file: (files in the data directory, flags). Internal topics, whose records are not text,
# are left to their decoders.
DUMPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "log": ("[!_]*/*.log", ()),
    "log-deep": ("txn*/*.log", ("--deep-iteration",)),
    "log-data": ("[!_]*/*.log", ("--print-data-log",)),
    "log-data-bare": ("txn*/*.log", ("--print-data-log", "--skip-record-metadata")),
    "index": ("*/*.index", ()),
    "index-verify": ("*/*.index", ("--verify-index-only",)),
    "index-sanity": ("*/*.index", ("--index-sanity-check",)),
    "timeindex": ("*/*.timeindex", ()),
    "timeindex-verify": ("*/*.timeindex", ("--verify-index-only",)),
    "timeindex-sanity": ("*/*.timeindex", ("--index-sanity-check",)),
    "txnindex": ("*/*.txnindex", ()),
    "snapshot": ("*/*.snapshot", ()),
    "offsets-decoder": ("__consumer_offsets-*/*.log", ("--offsets-decoder",)),
    "transaction-log-decoder": ("__transaction_state-*/*.log", ("--transaction-log-decoder",)),
    "cluster-metadata-decoder": ("__cluster_metadata-*/*.log", ("--cluster-metadata-decoder",)),
    "bootstrap-checkpoint": ("*.checkpoint", ("--cluster-metadata-decoder",)),
}
FILES = ("log", "index", "timeindex", "txnindex", "snapshot")


def dump_all(data_dir: Path, into: Path, names: Iterable[str]) -> None:
    """Write `<dump>.txt`, stdout, and where it is not empty `<dump>.stderr`."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name in names:
        pattern, flags = DUMPS[name]
        files = [path for path in sorted(data_dir.glob(pattern)) if is_dumpable(path)]
        if files:
            keep(into / name, flags, [run_tool(data_dir, files, flags)])


def dump_damaged(data_dir: Path, into: Path) -> None:
    """One run for each log, since the tool dies on a damaged one; its last words are kept."""
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    files = sorted(data_dir.glob("codec-*/*.log"))
    keep(into / "log", (), [run_tool(data_dir, [path], (), check=False) for path in files])


def run_tool(
    data_dir: Path, files: Iterable[Path], flags: Iterable[str], *, check: bool = True
) -> ToolRun:
    """Run in the data directory, so that what is printed has relative paths."""
    listed = ",".join(str(path.relative_to(data_dir)) for path in files)
    run = kafka_tool("dump-log", "--files", listed, *flags, cwd=data_dir, check=check)
    # stderr names absolute paths all the same, and Java's stack.
    lines = run.stderr.replace(f"{data_dir}/", "").splitlines(keepends=True)
    run.stderr = "".join(line for line in lines if not line.startswith("\tat "))
    return run


def keep(path: Path, flags: Iterable[str], runs: Sequence[ToolRun]) -> None:
    head = " ".join(["#", *flags])
    stdout = "".join(run.stdout for run in runs)
    stderr = "".join(run.stderr for run in runs)
    path.with_suffix(".txt").write_text(f"{head}\n{stdout}", encoding="utf-8")
    if stderr:
        path.with_suffix(".stderr").write_text(f"{head}\n{stderr}", encoding="utf-8")


def is_dumpable(path: Path) -> bool:
    """DumpLogSegments dies on the zeros of a preallocated index whose log has no batch."""
    if path.suffix not in (".index", ".timeindex"):
        return True
    return path.stat().st_size == 0 or path.with_suffix(".log").stat().st_size > 0
