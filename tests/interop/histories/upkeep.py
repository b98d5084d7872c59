"""Clients that change what lies under the others: compaction, moves between disks, topic churn.

They are no part of the history that the checker judges. Each keeps its own account and compares it
with the broker in ``check_account``, when everything has come to rest.
"""

import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from odradek.client import BlockingAdmin
from odradek.client import KafkaError as ClientError
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.core.ids import TopicPartition
from tests.interop.histories.load import KEYS, Client, Load
from tests.interop.histories.reading import (
    CALL_SECONDS,
    END_SECONDS_MAX,
    TRANSIENT,
    read_to_end,
)

COMPACTED: Final = TopicPartition("compacted", 0)
COMPACTED_CONFIGS: Final = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",  # the least that Kafka allows
    "min.cleanable.dirty.ratio": "0.01",
}
_KEYS: Final = 20
_VALUE_BYTES: Final = 4_000
_BATCH: Final = 50


class KeyWriter(Client):
    """Writes ever greater numbers under a few keys of a compacted topic."""

    def __init__(self, load: Load, name: str = "key-writer") -> None:
        super().__init__(load, name)
        self.sent = 0
        self.left = 0
        self.acked: dict[int, int] = {}  # key: the greatest number acknowledged

    def work(self) -> None:
        producer = confluent_kafka.Producer(
            self.load.config(enable_idempotence=True, linger_ms=5, message_timeout_ms=0)
        )
        while not self.load.stopped.is_set():
            for _ in range(_BATCH):
                self.sent += 1
                value = (b"%d" % self.sent).ljust(_VALUE_BYTES)
                producer.produce(
                    COMPACTED.topic,
                    value,
                    key=b"%d" % (self.sent % _KEYS),
                    partition=COMPACTED.partition,
                    on_delivery=self._delivered,
                )
            producer.flush(0.05)
            while len(producer) > 10 * _BATCH and not self.load.stopped.is_set():
                producer.flush(0.1)
        assert producer.flush(END_SECONDS_MAX) == 0

    def _delivered(self, error: Any, message: confluent_kafka.Message) -> None:
        assert error is None, error
        number = int(message.value() or b"")
        key = number % _KEYS
        assert number > self.acked.get(key, 0)
        self.acked[key] = number

    def check_account(self) -> None:
        found: dict[int, list[int]] = defaultdict(list)
        for messages in read_to_end(self.load.config(), [COMPACTED]):
            for each in messages:
                if each.error() is None:
                    found[int(each.key() or b"")].append(int(each.value() or b""))
        assert all(numbers == sorted(set(numbers)) for numbers in found.values()), "out of order"
        newest = {key: numbers[-1] for key, numbers in found.items()}
        assert newest == self.acked, "the newest value of a key is lost, or comes from nowhere"
        self.left = sum(map(len, found.values()))
        assert self.left < self.sent, "nothing was ever compacted"

    def account(self) -> str:
        return f"{self.sent} records written, {self.left} left by compaction"


class Churner(Client):
    """Creates, fills and deletes topics of few names; each life of a name has other values."""

    NAMES: Final = ("churn-a", "churn-b", "churn-c")

    def __init__(self, load: Load, name: str = "churner") -> None:
        super().__init__(load, name)
        self.lives = 0
        self.alive: dict[str, str] = {}  # name: the value that its records have

    def work(self) -> None:
        self.admin = AdminClient(self.load.config())
        while not self.load.stopped.is_set():
            name = self.chance.choice(self.NAMES)
            if name in self.alive:
                self._drop(name)
                del self.alive[name]
            else:
                self._create(name)
            self.rest(self.chance.random() * 0.1)

    def _create(self, name: str) -> None:
        self.lives += 1
        new = NewTopic(name, self.chance.randint(1, 3), 1)
        self._insist(
            lambda: self.admin.create_topics([new], operation_timeout=CALL_SECONDS)[name],
            done_before=KafkaError.TOPIC_ALREADY_EXISTS,
        )
        self.alive[name] = f"life {self.lives}"
        producer = confluent_kafka.Producer(self.load.config(message_timeout_ms=0))
        for _ in range(10):
            producer.produce(name, self.alive[name])
        assert producer.flush(END_SECONDS_MAX) == 0

    def _drop(self, name: str) -> None:
        self._insist(
            lambda: self.admin.delete_topics([name], operation_timeout=CALL_SECONDS)[name],
            done_before=KafkaError.UNKNOWN_TOPIC_OR_PART,
        )

    def _insist(self, call: Any, *, done_before: int) -> None:
        """Ask until it is done; a call whose answer was lost may have been carried out."""
        deadline, is_retry = time.monotonic() + END_SECONDS_MAX, False
        while True:
            try:
                call().result(END_SECONDS_MAX)
                return
            except KafkaException as error:
                code = error.args[0].code()
                if is_retry and code == done_before:
                    return
                if code not in TRANSIENT or time.monotonic() > deadline:
                    raise
                is_retry = True

    def check_account(self) -> None:
        topics = self.admin.list_topics(timeout=CALL_SECONDS).topics
        names = {name for name in topics if name.startswith("churn-")}
        assert names == set(self.alive)
        for name, value in self.alive.items():
            keys = [TopicPartition(name, number) for number in topics[name].partitions]
            batches = read_to_end(self.load.config(), keys)
            found = [each for messages in batches for each in messages if each.error() is None]
            values = [(each.value() or b"").decode() for each in found]
            assert values == [value] * 10, "records of another life, or of none"

    def account(self) -> str:
        return f"{self.lives} topics created, {len(self.alive)} alive"


class Mover(Client):
    """Moves replicas between the log directories of the node."""

    def __init__(self, load: Load, directories: tuple[Path, Path], name: str = "mover") -> None:
        super().__init__(load, name)
        self.directories = directories
        self.begun = 0

    def work(self) -> None:
        with BlockingAdmin(bootstrap_servers=self.load.servers) as admin:
            while not self.load.stopped.is_set():
                key = self.chance.choice((*KEYS, COMPACTED))
                target = self.chance.choice(self.directories)
                replica = TopicPartitionReplica(*key, 1)
                try:
                    admin.alter_replica_log_dirs({replica: str(target)}, timeout_ms=2_000).unwrap()
                    self.begun += 1
                except ClientError:
                    pass  # the broker is down
                self.rest(self.chance.random() * 0.2)

    def check_account(self) -> None:
        """All copies come to an end, and each partition is in one directory."""
        deadline = time.monotonic() + END_SECONDS_MAX
        with BlockingAdmin(bootstrap_servers=self.load.servers) as admin:
            while (places := self._places(admin)) is None:
                assert time.monotonic() < deadline, "a move does not come to an end"
                time.sleep(0.1)  # between questions
        assert all(len(places[key]) == 1 for key in (*KEYS, COMPACTED)), places
        assert self.begun > 0

    def account(self) -> str:
        return f"{self.begun} moves"

    def _places(self, admin: BlockingAdmin) -> dict[TopicPartition, list[str]] | None:
        """Where each partition is; None while one is being moved."""
        places: dict[TopicPartition, list[str]] = defaultdict(list)
        for directories in admin.describe_log_dirs().unwrap().values():
            for path, description in directories.items():
                for key, replica in description.replicas.items():
                    if replica.is_future:
                        return None
                    places[key].append(path)
        return places
