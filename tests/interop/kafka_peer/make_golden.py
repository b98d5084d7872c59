"""Make tests/golden/storage anew: `python -m tests.interop.kafka_peer.make_golden [--work DIR]`.

Runs a real Kafka several times, one JVM at a time, for some two minutes:

clean      filled, restarted, filled more, stopped with SIGTERM
crashed    a copy of clean, filled more, an open transaction, killed with SIGKILL
damaged    crashed, and then files cut, scribbled on and removed, as after a power failure
recovered  damaged, as Kafka left it after a start and a clean stop
"""

import argparse
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.interop.kafka_peer.golden import FOLDER, GoldenPartition, write_manifest
from tests.interop.kafka_peer.golden_dumps import DUMPS, FILES, dump_all, dump_damaged
from tests.interop.kafka_peer.golden_readback import read_back
from tests.interop.kafka_peer.golden_workload import (
    BROKER,
    BROKER_THAT_CRASHES,
    CLEANER_SECONDS_MAX,
    fill,
    go_on,
    go_on_and_leave_open,
    wait_for,
)
from tests.interop.kafka_peer.jars import KAFKA_VERSION
from tests.interop.kafka_peer.node import KafkaNode

LOG = "00000000000000000000.log"
DUMPS_OF = {
    "clean": tuple(DUMPS),
    "crashed": FILES,
    "recovered": FILES,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", type=Path, help="a new folder to leave the data directories in")
    work = parser.parse_args().work
    if work is not None:
        work.mkdir(parents=True)
        make_all(work)
    else:
        with tempfile.TemporaryDirectory(prefix="golden-") as folder:
            make_all(Path(folder))


def make_all(work: Path) -> None:
    make_clean(work / "clean")
    copy_data(work / "clean", work / "crashed")
    make_crashed(work / "crashed")
    copy_data(work / "crashed", work / "damaged")
    damage(work / "damaged")
    keep(work / "damaged")
    copy_data(work / "damaged", work / "recovered")
    make_recovered(work / "recovered")


def make_clean(data_dir: Path) -> None:
    with KafkaNode(data_dir, BROKER) as node:
        fill(node.bootstrap_servers, cleaner_watch(data_dir))
    with KafkaNode(data_dir, BROKER) as node:
        go_on(node.bootstrap_servers, trim_watch(data_dir))
        found = read_back(node.bootstrap_servers)
    keep(data_dir, found)


def make_crashed(data_dir: Path) -> None:
    node = KafkaNode(data_dir, BROKER_THAT_CRASHES)
    with node:
        open_client = go_on_and_leave_open(node.bootstrap_servers)
        trim_watch(data_dir)("trimmed", 13)
        found = read_back(node.bootstrap_servers)
        node.kill()
        del open_client
    keep(data_dir, found)


def make_recovered(data_dir: Path) -> None:
    with KafkaNode(data_dir, BROKER) as node:
        found = read_back(node.bootstrap_servers)
    keep(data_dir, found)


def damage(data_dir: Path) -> None:
    """What a power failure may leave of files that were never flushed, and worse."""
    log = data_dir / "codec-none-0" / LOG
    log.write_bytes(log.read_bytes() + b"\xa5" * 70)
    log = data_dir / "codec-gzip-0" / LOG
    log.write_bytes(log.read_bytes()[:-5])
    log = data_dir / "codec-lz4-0" / LOG
    log.write_bytes(log.read_bytes() + bytes(4096))
    log = data_dir / "codec-zstd-0" / LOG
    content = bytearray(log.read_bytes())
    content[-150] ^= 0x40
    log.write_bytes(content)
    snappy = data_dir / "codec-snappy-0"
    (snappy / LOG).with_suffix(".index").unlink()
    (snappy / LOG).with_suffix(".timeindex").write_bytes(b"\xff" * 24)
    segments = sorted((data_dir / "segments-0").glob("*.index"))
    segments[0].write_bytes(segments[0].read_bytes()[:5])
    segments[1].unlink()
    for snapshot in (data_dir / "txn-0").glob("*.snapshot"):
        snapshot.write_bytes(snapshot.read_bytes()[:-1])
    for snapshot in (data_dir / "idempotent-0").glob("*.snapshot"):
        snapshot.unlink()


def cleaner_watch(data_dir: Path) -> Callable[[str, int], None]:
    """Waits until the cleaner has recorded that it cleaned a topic up to an offset."""

    def wait(topic: str, offset: int) -> None:
        def cleaned() -> bool:
            checkpoint = data_dir / "cleaner-offset-checkpoint"
            text = checkpoint.read_text() if checkpoint.exists() else ""
            return f"{topic} 0 {offset}" in text.splitlines()

        wait_for(f"{topic} cleaned up to {offset}", cleaned, CLEANER_SECONDS_MAX)

    return wait


def trim_watch(data_dir: Path) -> Callable[[str, int], None]:
    """Waits until segments before the log start offset are gone and the offset is on disk."""

    def wait(topic: str, offset: int) -> None:
        def trimmed() -> bool:
            checkpoint = data_dir / "log-start-offset-checkpoint"
            text = checkpoint.read_text() if checkpoint.exists() else ""
            bases = sorted(int(log.stem) for log in (data_dir / f"{topic}-0").glob("*.log"))
            whole = all(later > offset for later in bases[1:])
            return f"{topic} 0 {offset}" in text.splitlines() and whole

        wait_for(f"{topic} trimmed to {offset}", trimmed, CLEANER_SECONDS_MAX)

    return wait


def copy_data(source: Path, target: Path) -> None:
    # cp, unlike shutil, keeps holes: a crashed node leaves 20 MiB of zeros for each partition.
    subprocess.run(["cp", "-a", "--sparse=always", str(source), str(target)], check=True)


def keep(data_dir: Path, found: dict[str, GoldenPartition] | None = None) -> None:
    """Archive, manifest and dumps of one data directory."""
    name = data_dir.name
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive(data_dir, FOLDER / f"{name}.tar.xz")
    if found is not None:
        write_manifest(FOLDER / f"{name}.json", {"kafka_version": KAFKA_VERSION}, found)
    if name in DUMPS_OF:
        dump_all(data_dir, FOLDER / f"{name}.dump", DUMPS_OF[name])
    else:
        dump_damaged(data_dir, FOLDER / f"{name}.dump")


def archive(data_dir: Path, target: Path) -> None:
    subprocess.run(
        [
            *("tar", "--create", "--xz", "--sparse", "--format=gnu", "--sort=name"),
            *("--owner=0", "--group=0", "--numeric-owner", "--mtime=@1700000000"),
            *("--file", str(target), "--directory", str(data_dir.parent), data_dir.name),
        ],
        env={"PATH": "/usr/bin:/bin", "XZ_OPT": "-9e"},
        check=True,
    )


if __name__ == "__main__":
    main()
