"""Clients without transactions: an idempotent producer, a reader."""

from typing import Any, Final

import confluent_kafka

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Outcome
from tests.interop.histories.load import Client, Load
from tests.interop.histories.reading import PATIENCE_SECONDS, record_polls

IN_FLIGHT_MAX: Final = 50


class PlainSender(Client):
    def work(self) -> None:
        self.in_flight = 0
        producer = confluent_kafka.Producer(
            self.load.config(
                enable_idempotence=True,
                linger_ms=2,
                message_timeout_ms=int(PATIENCE_SECONDS * 1000),
            )
        )
        while not self.load.stopped.is_set():
            if self.in_flight < IN_FLIGHT_MAX:
                self._send(producer)
            producer.poll(0 if self.in_flight < IN_FLIGHT_MAX else 0.01)
            self.rest(self.chance.random() * 0.01)
        producer.flush(PATIENCE_SECONDS)

    def _send(self, producer: confluent_kafka.Producer) -> None:
        key, value = self.chance.choice(self.load.inputs), self.load.value(self.process)
        recording = self.recorder.operation(self.process)
        sending = recording.sends(key, value)
        self.in_flight += 1

        def delivered(error: Any, message: confluent_kafka.Message) -> None:
            self.in_flight -= 1
            if error is None:
                sending.acknowledged(message.offset())
            recording.end(Outcome.OK if error is None else Outcome.INFO)

        producer.produce(key.topic, value, partition=key.partition, on_delivery=delivered)


class Poller(Client):
    def __init__(self, load: Load, name: str, isolation: Isolation) -> None:
        super().__init__(load, name)
        self.isolation = isolation

    def work(self) -> None:
        consumer = confluent_kafka.Consumer(
            self.load.config(
                group_id=self.name,
                isolation_level=self.isolation.value,
                enable_auto_commit=False,
                auto_offset_reset="error",
            )
        )
        starts = self.load.starts
        consumer.assign([confluent_kafka.TopicPartition(*key, at) for key, at in starts.items()])
        self.recorder.assigned(self.process, starts)
        for key, offset in starts.items():
            self.recorder.sought(self.process, key, offset)
        while not self.load.stopped.is_set():
            with self.recorder.operation(self.process) as polled:
                messages = consumer.consume(self.chance.randint(1, 50), timeout=0.2)
                found = record_polls(polled, messages, self.isolation)
            if found and self.chance.random() < 0.02:
                self._seek_back(consumer, found)
        consumer.close()

    def _seek_back(
        self,
        consumer: confluent_kafka.Consumer,
        found: dict[TopicPartition, list[tuple[int, str]]],
    ) -> None:
        key = self.chance.choice(sorted(found))
        offset = self.chance.randint(
            max(found[key][0][0] - 100, self.load.starts[key]), found[key][0][0]
        )
        consumer.seek(confluent_kafka.TopicPartition(*key, offset))
        self.recorder.sought(self.process, key, offset)
