"""Kafka's Java client, in a JVM of its own: a transactional producer, and a consumer beside it.

The program is ``Transactions.java``. One thing is asked of it at a time, so that what was begun
and what has ended is known here.
"""

from collections import defaultdict
from pathlib import Path
from typing import Any, Final

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Outcome
from odradek.testing.anomalies.recorder import Recording, Sending
from tests.interop.clients import ProduceError
from tests.interop.histories.load import INPUTS, KEYS, Client, Load
from tests.interop.histories.reading import TRANSACTION_SECONDS
from tests.interop.kafka_peer.tools import java_command
from tests.interop.programs.program import Program
from tests.interop.transaction_clients import JAVA_SOURCE

HEAP_MIB: Final = 96
SETTINGS: Final = {
    "delivery.timeout.ms": "30000",
    "request.timeout.ms": "10000",
    "max.block.ms": "30000",
    "retry.backoff.ms": "20",
    "reconnect.backoff.ms": "20",
    "reconnect.backoff.max.ms": "200",
}


class JavaTransactor(Client):
    """Does a transaction, then polls, and so on; the reader is a process of its own."""

    def __init__(self, load: Load, name: str, libs: Path) -> None:
        super().__init__(load, name)
        self.libs = libs
        self.reader = self.recorder.new_process()

    def work(self) -> None:
        command = java_command(str(JAVA_SOURCE), heap_mib=HEAP_MIB, log_level="OFF", libs=self.libs)
        with Program(command) as self.program:
            self._assign()
            self._open()
            while not self.load.stopped.is_set():
                recording = self.recorder.transaction(self.process)
                try:
                    self._transact(recording)
                except ProduceError:
                    recording.abandon()
                    self._ask("drop")
                    self._open()
                self._poll()
                self.rest(self.chance.random() * 0.02)

    def _transact(self, recording: Recording) -> None:
        self._ask("begin")
        for key in self.chance.sample(INPUTS, self.chance.randint(1, len(INPUTS))):
            values = [self.load.value(self.process) for _ in range(self.chance.randint(1, 3))]
            self._send(key, [recording.sends(key, value) for value in values])
        if self.chance.random() < 0.2:
            self._ask("abort")
            recording.end(Outcome.FAIL)
        else:
            recording.commits()
            self._ask("commit")
            recording.end(Outcome.OK)

    def _send(self, key: TopicPartition, sendings: list[Sending]) -> None:
        values = [str(each.value) for each in sendings]
        answer = self._ask("send", topic=key.topic, partition=key.partition, values=values)
        for sending, offset in zip(sendings, answer["offsets"], strict=True):
            sending.acknowledged(offset)

    def _open(self) -> None:
        self.process = self.recorder.new_process()
        while not self.load.stopped.is_set():
            try:
                self._ask(
                    "open",
                    servers=self.load.servers,
                    transactional_id=self.name,
                    timeout_ms=int(TRANSACTION_SECONDS * 1000),
                    settings=SETTINGS,
                )
            except ProduceError:  # no coordinator just now
                self._ask("drop")
            else:
                return

    def _assign(self) -> None:
        self._ask("assign", servers=self.load.servers, committed=True, places=list(map(list, KEYS)))
        self.recorder.assigned(self.reader, KEYS)
        for key in KEYS:
            self.recorder.sought(self.reader, key, 0)

    def _poll(self) -> None:
        with self.recorder.operation(self.reader) as polled:
            found: dict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
            for topic, partition, offset, value in self._ask("poll")["records"]:
                found[TopicPartition(topic, partition)].append((offset, value))
            for key, records in found.items():
                polled.polled(key, records, Isolation.READ_COMMITTED)

    def _ask(self, do: str, **fields: Any) -> Any:
        return self.program.ask(do, producer=self.name, **fields)
