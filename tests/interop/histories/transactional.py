"""librdkafka's transactional producers: on their own, and between two topics."""

import time
from collections.abc import Iterable
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaException

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Outcome, Source
from odradek.testing.anomalies.recorder import Recording, Sending
from tests.interop.histories.abandoned import AbandonedError, call_in_thread
from tests.interop.histories.load import INPUTS, OUTPUTS, Client, Load
from tests.interop.histories.reading import (
    CALL_SECONDS,
    PATIENCE_SECONDS,
    TRANSACTION_SECONDS,
    TRANSIENT,
    record_polls,
)


class Transactional(Client):
    """Whoever has a transactional id; ``open`` makes a new producer, which fences the old one."""

    producer: confluent_kafka.Producer

    def open(self) -> bool:
        self.producer = confluent_kafka.Producer(
            self.load.config(
                transactional_id=self.name,
                linger_ms=1,
                transaction_timeout_ms=int(TRANSACTION_SECONDS * 1000),
                message_timeout_ms=15_000,
            )
        )
        self.process = self.recorder.new_process()
        return self._until_done(lambda: self.producer.init_transactions(CALL_SECONDS))

    def send(
        self, recording: Recording, key: TopicPartition, source: Source | None = None
    ) -> Sending:
        value = self.load.value(self.process)
        sending = recording.sends(key, value, source)

        def delivered(error: Any, message: confluent_kafka.Message) -> None:
            if error is None:
                sending.acknowledged(message.offset())

        self.producer.produce(key.topic, value, partition=key.partition, on_delivery=delivered)
        self.producer.poll(0)
        return sending

    def commit(self, recording: Recording) -> bool:
        """Tell whether it is committed; the outcome is recorded."""
        recording.commits()
        try:
            if self._until_done(lambda: self.producer.commit_transaction(CALL_SECONDS)):
                recording.end(Outcome.OK)
                return True
        except KafkaException as error:
            if error.args[0].txn_requires_abort() and self._abort():
                recording.end(Outcome.FAIL)
                return False
        recording.end(Outcome.INFO)
        self.open()
        return False

    def abort(self, recording: Recording) -> None:
        """Its commit was never asked for: whatever becomes of the abort, it has failed."""
        if not self._abort():
            self.open()
        recording.end(Outcome.FAIL)

    def _abort(self) -> bool:
        try:
            return self._until_done(lambda: self.producer.abort_transaction(CALL_SECONDS))
        except KafkaException:
            return False

    def _until_done(self, call: Any) -> bool:
        """Again and again while the client says that it may help; False: that took too long."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                call()
                return True
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
        return False


class Transactor(Transactional):
    crashing = 0.05
    """How many of its transactions end with a new producer in its place."""

    def work(self) -> None:
        self.open()
        while not self.load.stopped.is_set():
            recording = self.recorder.transaction(self.process)
            try:
                self.producer.begin_transaction()
                for _ in range(self.chance.randint(1, 5)):
                    self.send(recording, self.chance.choice(INPUTS))
                    if self.chance.random() < 0.3:
                        self.producer.flush(CALL_SECONDS)  # else all goes in one request
            except KafkaException:
                self.abort(recording)
                continue
            self._end(recording)
            self.rest(self.chance.random() * 0.02)

    def _end(self, recording: Recording) -> None:
        dice = self.chance.random()
        if dice < 0.80:
            self.commit(recording)
        elif dice < 1 - self.crashing:
            if dice < 0.90:
                self.producer.flush(CALL_SECONDS)  # so that there is something to abort
            self.abort(recording)
        elif self.chance.random() < 0.6:
            self.open()  # a crash; the coordinator aborts it for the new producer
            recording.end(Outcome.FAIL)
        else:
            self._become_zombie(recording)

    def _become_zombie(self, recording: Recording) -> None:
        """Another producer has taken over when this one tries to commit."""
        zombie = self.producer
        self.open()
        recording.commits()
        try:
            zombie.commit_transaction(CALL_SECONDS)
            recording.end(Outcome.OK)
        except KafkaException:
            recording.end(Outcome.INFO)


class Copier(Transactional):
    """A member of ``group``; reads ``in``, and writes what it makes of it to ``out``."""

    leaving = 0.01
    """How many of its transactions end with a new consumer in its place."""

    def __init__(self, load: Load, name: str, group: str, *, subscribes: bool) -> None:
        super().__init__(load, name)
        self.group = group
        self.subscribes = subscribes
        self.recording: Recording | None = None

    def work(self) -> None:
        self._open_both()
        while not self.load.stopped.is_set():
            recording = self.recording = self.recorder.transaction(self.process)
            messages = self.consumer.consume(self.chance.randint(1, 10), timeout=0.2)
            found = record_polls(recording, messages, Isolation.READ_COMMITTED)
            self.recording = None
            if not found:
                recording.end(Outcome.FAIL)
            elif not self._copy(recording, found):
                self._go_back()
            if self.chance.random() < self.leaving:
                self.consumer.close()  # the group must rebalance; others may go on with its work
                self._open_both()
        self.consumer.close()

    def _open_both(self) -> None:
        self.consumer = confluent_kafka.Consumer(
            self.load.config(
                group_id=self.group,
                isolation_level="read_committed",
                enable_auto_commit=False,
                auto_offset_reset="earliest",
                session_timeout_ms=6000,
                heartbeat_interval_ms=500,
            )
        )
        self.open()
        if self.subscribes:
            self.consumer.subscribe(
                ["in"], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
        else:
            self._assign(INPUTS)

    def _copy(
        self, recording: Recording, found: dict[TopicPartition, list[tuple[int, str]]]
    ) -> bool:
        ends = [
            confluent_kafka.TopicPartition(*key, records[-1][0] + 1)
            for key, records in found.items()
        ]
        try:
            self.producer.begin_transaction()
            for key, records in found.items():
                for offset, _ in records:
                    source = Source(self.group, key, offset)
                    self.send(recording, self.chance.choice(OUTPUTS), source)
            for each in ends:
                key = TopicPartition(each.topic, each.partition)
                recording.commits_offset(self.group, key, each.offset)
            members = self.consumer.consumer_group_metadata()
            producer = self.producer

            def send_offsets() -> None:
                producer.send_offsets_to_transaction(ends, members, CALL_SECONDS)

            is_complete = self._until_done(lambda: call_in_thread(send_offsets, CALL_SECONDS))
        except KafkaException:
            self.abort(recording)
            return False
        except AbandonedError:
            self.load.abandoned += 1
            self.open()  # fences what may come back some day
            recording.end(Outcome.FAIL)
            return False
        # Without its offsets a commit would have others copy the same again.
        if not is_complete or self.chance.random() < 0.15:
            self.abort(recording)
            return False
        return self.commit(recording)

    def _go_back(self) -> None:
        """Start again from what is committed, in all partitions."""
        owned = self.consumer.assignment()
        if owned:
            self._assign(TopicPartition(each.topic, each.partition) for each in owned)

    def _assign(self, keys: Iterable[TopicPartition]) -> None:
        wanted = [confluent_kafka.TopicPartition(*key) for key in keys]
        committed = self._committed(wanted)
        for each in committed:
            each.offset = max(each.offset, 0)
            # Within a poll nobody can say which of its records came before this.
            if self.recording is None:
                key = TopicPartition(each.topic, each.partition)
                self.recorder.sought(self.process, key, each.offset)
        self.consumer.assign(committed)

    def _committed(
        self, wanted: list[confluent_kafka.TopicPartition]
    ) -> list[confluent_kafka.TopicPartition]:
        committed: list[confluent_kafka.TopicPartition] = []

        def ask() -> None:
            with self.recorder.operation(self.process) as asked:
                committed[:] = self.consumer.committed(wanted, CALL_SECONDS)
                for each in committed:
                    if each.error is not None:
                        raise KafkaException(each.error)
                for each in committed:
                    key = TopicPartition(each.topic, each.partition)
                    offset = each.offset if each.offset >= 0 else None
                    asked.fetched_offset(self.group, key, offset)

        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                ask()
                return committed
            except KafkaException as error:
                if error.args[0].code() not in TRANSIENT or time.monotonic() > deadline:
                    raise

    def _assigned(self, _: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        keys = [TopicPartition(each.topic, each.partition) for each in partitions]
        self._rebalances(keys)
        self.recorder.assigned(self.process, keys, is_subscription=True)
        self._assign(keys)

    def _revoked(self, _: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._rebalances(TopicPartition(each.topic, each.partition) for each in partitions)
        self.recorder.assigned(self.process, (), is_subscription=True)

    def _rebalances(self, keys: Iterable[TopicPartition]) -> None:
        if self.recording is not None:
            self.recording.rebalances(keys)
