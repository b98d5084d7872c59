"""aiokafka's transactional producer, on an event loop in a thread."""

import asyncio
from typing import Any, Final

import aiokafka
from aiokafka.errors import KafkaError

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies import Outcome
from odradek.testing.anomalies.recorder import Recording, Sending
from tests.interop.histories.load import INPUTS, Client
from tests.interop.histories.reading import PATIENCE_SECONDS, TRANSACTION_SECONDS

TIMEOUT_MS: Final = int(TRANSACTION_SECONDS * 1000)


class AioTransactor(Client):
    producer: Any

    def work(self) -> None:
        asyncio.run(self._work())

    async def _work(self) -> None:
        await self._open()
        while not self.load.stopped.is_set():
            recording = self.recorder.transaction(self.process)
            try:
                await asyncio.wait_for(self._transact(recording), PATIENCE_SECONDS)
            except (KafkaError, TimeoutError):
                recording.abandon()
                await self.producer.stop()
                await self._open()
            await asyncio.sleep(self.chance.random() * 0.02)
        await self.producer.stop()

    async def _transact(self, recording: Recording) -> None:
        await self.producer.begin_transaction()
        for _ in range(self.chance.randint(1, 5)):
            key = self.chance.choice(INPUTS)
            sending = recording.sends(key, self.load.value(self.process))
            await self._send(key, sending)
        if self.chance.random() < 0.2:
            await self.producer.abort_transaction()
            recording.end(Outcome.FAIL)
        else:
            recording.commits()
            await self.producer.commit_transaction()
            recording.end(Outcome.OK)

    async def _send(self, key: TopicPartition, sending: Sending) -> None:
        value = str(sending.value).encode()
        sent = await self.producer.send_and_wait(key.topic, value, partition=key.partition)
        sending.acknowledged(sent.offset)

    async def _open(self) -> None:
        self.process = self.recorder.new_process()
        while not self.load.stopped.is_set():
            self.producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self.load.servers,
                transactional_id=self.name,
                transaction_timeout_ms=TIMEOUT_MS,
                request_timeout_ms=TIMEOUT_MS,
            )
            try:
                await self.producer.start()
            except KafkaError:  # the broker is down just now
                await self.producer.stop()
            else:
                return
