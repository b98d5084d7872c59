"""Make the golden data directories of message formats 0 and 1 anew.

`python -m tests.interop.kafka_peer.make_old_golden [--work DIR]`, half a minute:

magic0     written by Kafka 0.9.0.1, stopped cleanly
magic1     the same directory, upgraded to Kafka 0.10.2.2, filled more, stopped cleanly: logs that
           begin in format 0 and go on in format 1, even within one segment
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.kafka_peer.golden import FOLDER, GoldenPartition, write_manifest
from tests.interop.kafka_peer.golden_dumps import FILES, dump_all
from tests.interop.kafka_peer.golden_readback import read_back
from tests.interop.kafka_peer.golden_workload import BASE_MS, Client, Row, keyed, rows
from tests.interop.kafka_peer.jars import kafka_version
from tests.interop.kafka_peer.make_golden import archive, cleaner_watch, copy_data
from tests.interop.kafka_peer.old_node import KAFKA_0_9, KAFKA_0_10, OldKafkaNode

CODECS = ("none", "gzip", "snappy", "lz4")
BROKER = {
    "log.retention.hours": "-1",
    "log.segment.bytes": "1500",
    "log.index.interval.bytes": "200",
    "log.segment.delete.delay.ms": "500",
    "log.cleaner.enable": "true",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "log.cleaner.backoff.ms": "200",
}
# Each batch is a segment of its own.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "160",
    "min.cleanable.dirty.ratio": "0.01",
}
ODD_ROWS: list[Row] = [
    (b"key", b"value", []),
    (None, b"no key", []),
    (b"no value", None, []),
    (None, None, []),
    (b"", b"", []),
    (b"\xff\x01\xfe", b"\x80not UTF-8\xc3", []),
]
# Kafka 0.9 cannot be asked for its API versions.
ASK_0_9 = {"api_version_request": False, "broker_version_fallback": "0.9.0.1"}


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
    magic0, magic1 = work / "magic0", work / "magic1"
    with OldKafkaNode(KAFKA_0_9, magic0, BROKER) as node:
        fill(node, "0", ASK_0_9)
        compact(node, "compacted-0", ASK_0_9)
        found = read_back(node.bootstrap_servers, **dotted(ASK_0_9))
    keep(magic0, KAFKA_0_9, found)
    copy_data(magic0, magic1)
    copy_data(work / "magic0.zookeeper", work / "magic1.zookeeper")
    with OldKafkaNode(KAFKA_0_10, magic1, BROKER) as node:
        fill(node, "1", {})
        compact(node, "compacted-1", {})
        node.create_topic("append-time", {"message.timestamp.type": "LogAppendTime"})
        for codec in ("none", "gzip"):
            client = Client(node.bootstrap_servers, compression_type=codec)
            client.send("append-time", rows("stamped", 5, repeat=4), BASE_MS)
        found = read_back(node.bootstrap_servers)
    keep(magic1, KAFKA_0_10, found)


def fill(node: OldKafkaNode, what: str, config: dict[str, Any]) -> None:
    for codec in CODECS:
        client = Client(node.bootstrap_servers, compression_type=codec, **config)
        for i in range(3):
            batch = rows(f"format {what} batch {i}", 4, repeat=3)
            client.send(f"codec-{codec}", [*ODD_ROWS, *batch], BASE_MS + i * 1000)
        client.send(f"codec-{codec}", rows("older", 3), BASE_MS - 5000)


def compact(node: OldKafkaNode, topic: str, config: dict[str, Any]) -> None:
    node.create_topic(topic, COMPACTED)
    client = Client(node.bootstrap_servers, compression_type="gzip", **config)
    long = "compress this value " * 3
    # Of the first wrapper message the cleaner keeps the first and the last.
    batches = [
        keyed(b=long, a=long, c=long),
        keyed(a=long + "2", d=long),
        keyed(e=None, f=long),
        keyed(a=long + "3", g=long),
    ]
    for i, batch in enumerate(batches):
        client.send(topic, batch, BASE_MS + i)
    cleaner_watch(node.data_dir)(topic, 7)


def dotted(config: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in config.items()}


def keep(data_dir: Path, pom: Path, found: dict[str, GoldenPartition]) -> None:
    archive(data_dir, FOLDER / f"{data_dir.name}.tar.xz")
    write_manifest(FOLDER / f"{data_dir.name}.json", {"kafka_version": kafka_version(pom)}, found)
    dump_all(data_dir, FOLDER / f"{data_dir.name}.dump", ("log-data", *FILES[1:]))


if __name__ == "__main__":
    main()
