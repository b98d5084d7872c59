"""Kafka's ``replica-verification`` and ours, on our brokers and on Kafka's: they see the same."""

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cluster.flavours import ODRADEK_COMMAND, Flavour, Kafka, Odradek
from tests.cluster.processes import Cluster, wait_until
from tests.cluster.replica_records import (
    batches_on_disk,
    make_replicated_topic,
    produce_as_new_leader,
    wait_until_in_sync,
)
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.interop.kafka_peer.tools import MAIN_CLASSES, java_command

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

ROLES = {1: "controller", 11: "broker", 12: "broker"}
TOOL = "replica-verification"
OPTIONS = ("--topics-include", "t", "--time", "-2", "--max-wait-ms", "50")
CRC_AT = 17  # in a batch
END_SECONDS_MAX = 60
DAMAGED = 1
"""Which batch, and its offset: each has one record."""


def lines_of(tool: Sequence[str], servers: str, until: str, folder: Path) -> set[str]:
    """Run a tool until it has said something; return what it said, without the times."""
    output = folder / "verified.txt"
    place = ("--broker-list", servers, "--report-interval-ms", "100")
    with output.open("wb") as out, (folder / "errors.txt").open("wb") as err:
        process = subprocess.Popen(
            [*until_parent_ends(), *tool, *place, *OPTIONS], stdout=out, stderr=err
        )
    try:
        wait_until(lambda: until in output.read_text(), f"{tool[0]} says: {until}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(END_SECONDS_MAX)
    told = output.read_text().splitlines()
    lines = {re.sub(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}: ", "", each) for each in told}
    # Of the way to the end each sees what it sees.
    return {each for each in lines if "max lag is" not in each or "max lag is 0 " in each}


@pytest.mark.parametrize("flavour", [Odradek(), Kafka()], ids=["odradek", "kafka"])
def test_both_tools_find_the_one_batch_that_differs(
    flavour: Flavour, tmp_path: Path, kafka_libs: Path
) -> None:
    java = java_command(MAIN_CLASSES[TOOL], heap_mib=192, log_level="ERROR", libs=kafka_libs)
    tools = (java, [ODRADEK_COMMAND, TOOL])
    started = "verification process is started"
    with Cluster(tmp_path, ROLES, flavour, is_relayed=False) as cluster:
        cluster.start()
        leader, follower = cluster.brokers
        make_replicated_topic(cluster, "t", [leader, follower])
        for value in (b"a", b"b", b"c"):
            produce_as_new_leader(leader, "t", value, acks=-1)
        at_end = "max lag is 0 for partition t-0 at offset 3 among 1 partitions"
        follower.stop()
        damage(follower.data_dir / "t-0" / f"{0:020d}.log")
        mine, theirs = (batches_on_disk(each, "t")[DAMAGED].crc for each in (leader, follower))
        follower.restart()
        wait_until_in_sync(cluster, "t")
        differs = (
            f"partition t-0 has unmatched checksum at offset {DAMAGED}; replica {leader.id}'s"
            f" checksum {mine}; replica {follower.id}'s checksum {theirs}"
        )
        for tool in tools:
            found = lines_of(tool, cluster.bootstrap_servers, at_end, tmp_path)
            assert found == {started, differs, at_end}


def damage(log: Path) -> None:
    """Change the checksum of a batch: a replica that came by another one, for whatever reason."""
    content = bytearray(log.read_bytes())
    size = len(content) // 3
    content[DAMAGED * size + CRC_AT] ^= 0xFF
    log.write_bytes(content)
