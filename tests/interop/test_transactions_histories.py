"""Histories of real clients on a broker that is killed again and again: no anomaly.

SIGKILL keeps the page cache, so whatever was acknowledged must be there when the broker is back,
and transactions must end as their coordinator decided. The seed decides what clients do, not when.
Meanwhile a topic is compacted, replicas move between two log directories, and topics of the same
few names come and go.

The measuring instrument is tried on Kafka itself, which nobody kills there: what Kafka does under
kills is for its own tests to say, and on a busy machine 4.3.1 has once let offsets go back and once
left a transaction open.

By hand, longer: ``python -m tests.interop.test_transactions_histories <kills> [seed] [--kafka]``;
with ``--kafka`` it is Kafka that is killed, without the moves and the churn. ``make soak`` has 100
kills.
"""

import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Protocol

import pytest

from odradek.testing.anomalies import Report, check
from tests.interop.clients.confluent import Confluent
from tests.interop.histories.load import INPUTS, KEYS, OUTPUTS, Load
from tests.interop.histories.mix import mixed_clients, plain_clients
from tests.interop.histories.upkeep import (
    COMPACTED,
    COMPACTED_CONFIGS,
    Churner,
    KeyWriter,
    Mover,
)
from tests.interop.kafka_peer import KafkaNode
from tests.interop.node_process import NodeProcess

pytestmark = pytest.mark.slow

SEED = 20
# Short enough to meet a broker that still loads its coordinators, long enough to get work done.
UP_SECONDS_MIN, UP_SECONDS_MAX = 0.2, 4.0
# Too few say nothing. A machine with much else to do gets more time to come so far.
VALUES_MIN = 1_000
SECONDS_MAX = 240
# With the 3 s of the default a group that was killed before it was complete never gets there.
OPTIONS = (
    *("--override", "group.initial.rebalance.delay.ms=0"),
    *("--override", "offsets.topic.num.partitions=4"),
    *("--override", "transaction.state.log.num.partitions=4"),
    *("--log-level", "error"),
)
COMPACTING = ("--override", "log.cleaner.backoff.ms=100")


class Killable(Protocol):
    @property
    def bootstrap_servers(self) -> str: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


class SteadyKafkaNode(KafkaNode):
    """Listens on the same ports after each start, so that clients find it again."""

    _ports: tuple[int, int] | None = None

    def _write_properties(self) -> Path:
        self._ports = self._ports or (self.port, self.controller_port)
        self.port, self.controller_port = self._ports
        return super()._write_properties()


def run_histories(
    node: Killable,
    *,
    kills: int,
    seed: int = SEED,
    is_transactional: bool = True,
    directories: tuple[Path, Path] | None = None,
) -> Report:
    """Let clients work while the broker is killed every few seconds; then judge what they saw.

    With ``directories`` there is also a compacted topic, topics that come and go, and replicas that
    move between the two.
    """
    client = Confluent(node.bootstrap_servers)
    client.create_topic("in", len(INPUTS))
    client.create_topic("out", len(OUTPUTS))
    load = Load(node.bootstrap_servers, seed)
    clients = mixed_clients(load) if is_transactional else plain_clients(load)
    upkeep: list[KeyWriter | Churner | Mover] = []
    if directories is not None:
        client.create_topic(COMPACTED.topic, configs=COMPACTED_CONFIGS)
        upkeep = [KeyWriter(load), Churner(load), Mover(load, directories)]
    chance, killed, began = random.Random(seed), 0, time.monotonic()
    with load.running([*clients, *upkeep]):
        while _goes_on(load, time.monotonic() - began, kills - killed):
            # Nothing is waited for: this is how long a broker lives.
            time.sleep(chance.uniform(UP_SECONDS_MIN, UP_SECONDS_MAX))
            if kills:
                node.kill()
                node.start()
                killed += 1
    load.drain()
    report = check(load.recorder.history(), drained=frozenset(KEYS))
    print(f"seed {seed}, {killed} kills: {report}")
    assert load.problems == []
    assert load.sent >= VALUES_MIN, "too few to say anything"
    for each in upkeep:
        each.check_account()
        print(f"{each.name}: {each.account()}")
    return report


def _goes_on(load: Load, passed: float, kills_left: int) -> bool:
    return kills_left > 0 or (load.sent < VALUES_MIN and passed < SECONDS_MAX)


def two_directories(folder: Path) -> tuple[Path, Path]:
    return folder / "a", folder / "b"


def with_two_disks(folder: Path) -> NodeProcess:
    first, second = two_directories(folder)
    return NodeProcess(first, (*OPTIONS, "--override", f"log.dirs={first},{second}", *COMPACTING))


def test_plain_clients_see_no_anomaly_while_the_broker_is_killed(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, OPTIONS) as node:
        report = run_histories(node, kills=4, is_transactional=False)
    assert not report.bad, report


def test_transactional_clients_see_no_anomaly_while_the_broker_is_killed(tmp_path: Path) -> None:
    with with_two_disks(tmp_path) as node:
        report = run_histories(node, kills=5, directories=two_directories(tmp_path))
    assert not report.bad, report


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_libs")
def test_what_kafka_does_is_no_anomaly_to_the_checker(tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data") as node:
        report = run_histories(node, kills=0)
    assert not report.bad, report


def main(kills: int, seed: int, *, is_kafka: bool) -> bool:
    """Tell whether all went well."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if is_kafka:
            with SteadyKafkaNode(folder) as kafka:
                return not run_histories(kafka, kills=kills, seed=seed).bad
        with with_two_disks(folder) as node:
            directories = two_directories(folder)
            return not run_histories(node, kills=kills, seed=seed, directories=directories).bad


if __name__ == "__main__":
    numbers = [int(each) for each in sys.argv[1:] if each != "--kafka"]
    is_good = main(
        numbers[0], numbers[1] if len(numbers) > 1 else SEED, is_kafka="--kafka" in sys.argv
    )
    sys.exit(not is_good)
