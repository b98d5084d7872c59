"""Our own client: an idempotent producer, a transactional one, a reader."""

from odradek.client import BlockingConsumer, BlockingProducer, KafkaError, RecordMetadata
from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Isolation, Outcome
from odradek.testing.anomalies.recorder import Recording, Sending
from tests.interop.histories.load import INPUTS, Client, Load
from tests.interop.histories.plain import IN_FLIGHT_MAX
from tests.interop.histories.reading import PATIENCE_SECONDS, TRANSACTION_SECONDS


class OdradekSender(Client):
    """Our own idempotent producer, as ``PlainSender`` is librdkafka's."""

    def work(self) -> None:
        self.in_flight = 0
        with BlockingProducer(
            bootstrap_servers=self.load.servers,
            acks="all",
            linger_ms=2,
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
            delivery_timeout_ms=int(PATIENCE_SECONDS * 1000),
        ) as producer:
            while not self.load.stopped.is_set():
                if self.in_flight < IN_FLIGHT_MAX:
                    self._send(producer)
                self.rest(self.chance.random() * 0.01)

    def _send(self, producer: BlockingProducer) -> None:
        key, value = self.chance.choice(self.load.inputs), self.load.value(self.process)
        recording = self.recorder.operation(self.process)
        sending = recording.sends(key, value)
        self.in_flight += 1
        future = producer.send(key.topic, value.encode(), partition=key.partition)

        def delivered(_: object) -> None:
            self.in_flight -= 1
            error = future.exception()
            if error is None:
                found: RecordMetadata = future.result()
                sending.acknowledged(found.offset)
            recording.end(Outcome.OK if error is None else Outcome.INFO)

        future.add_done_callback(delivered)


class OdradekTransactor(Client):
    """Our own transactional producer, as ``AioTransactor`` is aiokafka's."""

    def work(self) -> None:
        producer = self._open()
        while producer is not None:
            recording = self.recorder.transaction(self.process)
            try:
                self._transact(producer, recording)
            except (KafkaError, TimeoutError):
                recording.abandon()
                producer.close(0)
                producer = self._open()
            self.rest(self.chance.random() * 0.02)
            if self.load.stopped.is_set() and producer is not None:
                producer.close()
                producer = None

    def _transact(self, producer: BlockingProducer, recording: Recording) -> None:
        producer.begin_transaction()
        for _ in range(self.chance.randint(1, 5)):
            key = self.chance.choice(INPUTS)
            value = self.load.value(self.process)
            self._send(producer, key, recording.sends(key, value))
        if self.chance.random() < 0.2:
            producer.abort_transaction()
            recording.end(Outcome.FAIL)
        else:
            recording.commits()
            producer.commit_transaction()
            recording.end(Outcome.OK)

    def _send(self, producer: BlockingProducer, key: TopicPartition, sending: Sending) -> None:
        future = producer.send(key.topic, str(sending.value).encode(), partition=key.partition)

        def delivered(_: object) -> None:
            if future.exception() is None:
                sending.acknowledged(future.result().offset)

        future.add_done_callback(delivered)

    def _open(self) -> BlockingProducer | None:
        """Return a producer that has fenced the one before; None when the run ends."""
        self.process = self.recorder.new_process()
        while not self.load.stopped.is_set():
            producer: BlockingProducer = BlockingProducer(
                bootstrap_servers=self.load.servers,
                transactional_id=self.name,
                transaction_timeout_ms=int(TRANSACTION_SECONDS * 1000),
                delivery_timeout_ms=int(PATIENCE_SECONDS * 1000),
                retry_backoff_ms=20,
                reconnect_backoff_ms=20,
                reconnect_backoff_max_ms=200,
            )
            try:
                producer.init_transactions()
            except (KafkaError, TimeoutError):  # no coordinator just now
                producer.close(0)
            else:
                return producer
        return None


class OdradekPoller(Client):
    """Reads everything with our own consumer."""

    def __init__(self, load: Load, name: str, isolation: Isolation) -> None:
        super().__init__(load, name)
        self.isolation = isolation

    def work(self) -> None:
        with BlockingConsumer(
            bootstrap_servers=self.load.servers,
            isolation_level=self.isolation.value,
            auto_offset_reset="none",
            retry_backoff_ms=20,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=200,
        ) as consumer:
            consumer.assign(list(self.load.starts))
            self.recorder.assigned(self.process, self.load.starts)
            for key, offset in self.load.starts.items():
                consumer.seek(key, offset)
                self.recorder.sought(self.process, key, offset)
            while not self.load.stopped.is_set():
                with self.recorder.operation(self.process) as polled:
                    records = consumer.poll(0.2, max_records=self.chance.randint(1, 50))
                    for key, found in records.items():
                        values = [(each.offset, (each.value or b"").decode()) for each in found]
                        polled.polled(key, values, self.isolation)
