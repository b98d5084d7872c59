"""Brokers to be measured side by side, each a process of its own on loopback.

Kafka runs with its own defaults, of configs and of the JVM, and is left out where there is no Java
or Maven; librdkafka's mock keeps a few megabytes only, so it is not asked to serve much back.

``python -m bench --against TREE`` puts another version of ours in place of theirs: a checkout with
its ``.venv`` (``git worktree add TREE COMMIT``, then ``make setup`` there).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.interop.kafka_peer import KafkaNode, resolve_jars
from tests.interop.kafka_peer.jars import class_path, java
from tests.interop.node_process import COMMAND, NodeProcess

QUIET = ("--log-level", "error")
KAFKA_DEFAULTS = {
    "num.network.threads": "3",
    "num.io.threads": "8",
    "background.threads": "10",
    "offsets.topic.num.partitions": "50",
}
_LOG4J = Path(__file__).parents[1] / "tests" / "interop" / "kafka_peer" / "log4j2.xml"
# kafka-run-class.sh and kafka-server-start.sh of Kafka 4.3. The tests' JVMs start faster and run
# slower: they have the serial collector, and the first of the two compilers.
_JVM_OPTIONS = (
    *("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"),
    "-Djava.awt.headless=true",
)
AGAINST: list[Path] = []
"""Checkouts of other versions."""
CLIENT_LOG_LEVEL = 4  # librdkafka's warnings, not its news
_CPUCLOCK_SCHED = 2

# Processes started from here shall find bytecode, as those of an installed package do.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_MOCK = """
import sys
from confluent_kafka import Producer
client = Producer({"test.mock.num.brokers": 1, "log_level": 4})
for broker in client.list_topics(timeout=10).brokers.values():
    print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


class Target(NamedTuple):
    name: str
    bootstrap_servers: str
    pid: int
    keeps_data: bool = True

    @property
    def port(self) -> int:
        return int(self.bootstrap_servers.rpartition(":")[2])

    def rss_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024

    def cpu_seconds(self) -> float:
        """Return what all its threads have used so far, in user and in kernel mode."""
        # What clock_getcpuclockid(3) returns; ``/proc`` counts in hundredths of a second.
        return time.clock_gettime((~self.pid << 3) | _CPUCLOCK_SCHED)


def has_kafka() -> bool:
    return bool(not AGAINST and shutil.which("java") and shutil.which("mvn"))


def versions() -> dict[str, tuple[str, str]]:
    """Return the commands that run a node of ours, and of other versions."""
    others = {tree.name: (str(tree / ".venv/bin/odradek"), "serve") for tree in AGAINST}
    return {"odradek": COMMAND} | others


def kafka_command(log_level: str) -> list[str]:
    """Return what runs a server of Kafka as its scripts do, up to its properties file."""
    log = (f"-Dlog4j2.configurationFile={_LOG4J}", f"-Dkafka.peer.level={log_level}")
    return [java(), *_JVM_OPTIONS, *log, "-cp", class_path(resolve_jars()), "kafka.Kafka"]


class PlainKafka(KafkaNode):
    def _command(self) -> list[str]:
        return kafka_command("INFO")  # it is ready when its log says so


def make_kafka(folder: Path) -> KafkaNode:
    return PlainKafka(folder, KAFKA_DEFAULTS)


def start(stack: ExitStack, *, mock: bool = False) -> Iterator[Target]:
    """Start brokers that run until the stack is closed, ours first."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="odradek-bench-")))
    for name, command in versions().items():
        node = stack.enter_context(NodeProcess(folder / name, QUIET, command=command))
        yield Target(name, node.bootstrap_servers, node.process.pid)
    if has_kafka():
        kafka = stack.enter_context(make_kafka(folder / "kafka"))
        yield Target("kafka", kafka.bootstrap_servers, kafka.pid)
    if mock and not AGAINST:
        yield _start_mock(stack)


def _start_mock(stack: ExitStack) -> Target:
    process = subprocess.Popen(
        [sys.executable, "-c", _MOCK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    stack.callback(process.wait)
    stack.callback(process.communicate)
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    return Target("librdkafka mock", address, process.pid, keeps_data=False)
