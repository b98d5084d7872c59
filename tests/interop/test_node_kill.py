"""kill -9 under load: what was acknowledged stays, at its offset and in order.

SIGKILL keeps the page cache, so not even unflushed records may be missing. One producer lives
through all restarts. Its values are numbers, each partition's own sequence.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from odradek.core.ids import TopicPartition
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.histories.reading import read_to_end
from tests.interop.node_process import NodeProcess
from tests.long_searches import in_soak

PARTITIONS = 3
SEGMENT_BYTES = "1048576"  # the least that Kafka allows
VALUE_BYTES = 500  # so that segments are rolled between kills
ACKED_BETWEEN_KILLS = 500
PROGRESS_SECONDS_MAX = 180
pytestmark = pytest.mark.slow


class Load:
    """A producer in a thread; it keeps book of what the broker acknowledged."""

    def __init__(self, servers: str, *, idempotent: bool) -> None:
        self.acked: dict[int, dict[int, int]] = defaultdict(dict)  # partition: {offset: number}
        self.acked_count = 0
        self.errors: list[confluent_kafka.KafkaError] = []
        self.sent = 0  # numbers below this were given to every partition
        self._stopped = threading.Event()
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "acks": "all",
                "enable.idempotence": idempotent,
                # Without idempotence only one request at a time keeps the order.
                "max.in.flight": 5 if idempotent else 1,
                "linger.ms": 1,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "queue.buffering.max.messages": 3_000,
                "message.timeout.ms": 0,  # a busy machine takes its time for so many kills
                "log_level": 0,
            }
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, name="load")
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
        assert self._producer.flush(PROGRESS_SECONDS_MAX) == 0

    def wait_for_acked(self, count: int) -> None:
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while self.acked_count < count:
            assert time.monotonic() < deadline, f"stuck at {self.acked_count}: {self.errors}"
            self._stopped.wait(0.001)

    def _run(self) -> None:
        while not self._stopped.is_set():
            number = (b"%d" % self.sent).ljust(VALUE_BYTES)
            try:
                for partition in range(PARTITIONS):
                    self._produce(number, partition)
            except BufferError:
                return  # nothing was acknowledged for long: wait_for_acked says so
            self.sent += 1

    def _produce(self, value: bytes, partition: int) -> None:
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while True:
            try:
                self._producer.produce("t", value, partition=partition, on_delivery=self._delivered)
            except BufferError:
                if time.monotonic() > deadline:
                    raise
                self._producer.poll(0.01)
            else:
                self._producer.poll(0)
                return

    def _delivered(self, error: Any, message: confluent_kafka.Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None
        assert offset is not None
        assert value is not None
        self.acked[partition][offset] = int(value)
        self.acked_count += 1


def read_all(client: Confluent, partition: int) -> dict[int, int]:
    assert client.watermarks("t", partition)[0] == 0
    batches = read_to_end({"bootstrap.servers": client.servers}, [TopicPartition("t", partition)])
    found = (each for messages in batches for each in messages if each.error() is None)
    return {each.offset() or 0: int(each.value() or b"") for each in found}


def check_log(load: Load, log: dict[int, int], partition: int, *, idempotent: bool) -> None:
    acked = load.acked[partition]
    assert load.errors == []
    assert list(log) == list(range(len(log))), "offsets have no gap"
    missing = {offset: number for offset, number in acked.items() if log.get(offset) != number}
    assert not missing, "an acknowledged record is not at its offset"
    numbers = list(log.values())
    if idempotent:
        assert numbers == list(range(load.sent)), "each number once, in order"
    else:
        # A batch whose acknowledgement was lost is there twice: the order may only jump back.
        assert sorted(set(numbers)) == list(range(load.sent))
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts)
        assert [acked[offset] for offset in sorted(acked)] == list(range(load.sent))


def kill_again_and_again(data_dir: Path, kills: int, *, idempotent: bool) -> None:
    with NodeProcess(data_dir) as node:
        client = Confluent(node.bootstrap_servers)
        client.create_topic("t", PARTITIONS, {"segment.bytes": SEGMENT_BYTES})
        load = Load(node.bootstrap_servers, idempotent=idempotent)
        with load.running():
            for _ in range(kills):
                load.wait_for_acked(load.acked_count + ACKED_BETWEEN_KILLS)
                node.kill()
                node.start()
            load.wait_for_acked(load.acked_count + ACKED_BETWEEN_KILLS)
        assert load.acked_count == load.sent * PARTITIONS
        for partition in range(PARTITIONS):
            check_log(load, read_all(client, partition), partition, idempotent=idempotent)


@pytest.mark.parametrize(
    ("idempotent", "kills"),
    [(True, in_soak(15, soak=50)), (False, 10)],
    ids=["idempotent", "plain"],
)
def test_nothing_acknowledged_is_lost_in_many_kills(
    tmp_path: Path, idempotent: bool, kills: int
) -> None:
    kill_again_and_again(tmp_path, kills, idempotent=idempotent)


def test_topics_acknowledged_before_a_kill_are_there_after_it(tmp_path: Path) -> None:
    with NodeProcess(tmp_path) as node:
        client = Confluent(node.bootstrap_servers)
        expected = {}
        for number in range(8):
            client.create_topic(f"t{number}", 1 + number)
            expected[f"t{number}"] = 1 + number
            if number % 2:
                client.delete_topic(f"t{number - 1}")
                del expected[f"t{number - 1}"]
            node.kill()
            node.start()
            assert client.partition_counts() == expected


def children_of(pid: int) -> set[int]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return {int(child) for each in threads for child in (each / "children").read_text().split()}


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PROGRESS_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)  # between questions


def test_processes_of_a_node_end_with_it(tmp_path: Path) -> None:
    """The cleaner's: it waits for tasks, and nobody is left to tell it that there are none."""
    with NodeProcess(tmp_path, ("--override", "log.cleaner.backoff.ms=100")) as node:
        client = Confluent(node.bootstrap_servers)
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        client.create_topic("t", 1, {**configs, "segment.bytes": SEGMENT_BYTES})
        client.produce("t", [Sent(b"key", bytes(100_000)) for _ in range(40)])
        wait_until(lambda: children_of(node.process.pid) != set(), "nothing is cleaned")
        children = children_of(node.process.pid)
        node.kill()
        wait_until(
            lambda: not any(Path(f"/proc/{each}").exists() for each in children),
            f"some of {children} are left",
        )
