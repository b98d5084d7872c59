"""The story of ``odradek simulate``: what is acknowledged is there, and copied exactly once.

Two senders write numbers with idempotence and acks=all; a copier moves them to another topic in
transactions. All of them crash and are started again, as brokers are. In the end the copy must have
each acknowledged number once, and none twice.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from odradek.client import Consumer, Producer
from odradek.client.consumer.records import OffsetAndMetadata
from odradek.client.errors import KafkaError
from odradek.core.ids import TopicPartition
from odradek.testing.simulation.program import Process
from odradek.testing.simulation.stories import Simulation

SOURCE: Final = "numbers"
TARGET: Final = "copies"
PARTITIONS: Final = 2
SENDERS: Final = 2
GROUP: Final = "copiers"
SENDER_SETTINGS: Final[Mapping[str, Any]] = {"acks": "all", "enable_idempotence": True}
_PAUSE_SECONDS: Final = 0.5
_POLL_SECONDS: Final = 0.5
_SETTLE_SECONDS_MAX: Final = 120.0

_INPUTS: Final = tuple(TopicPartition(SOURCE, number) for number in range(PARTITIONS))
_OUTPUTS: Final = tuple(TopicPartition(TARGET, number) for number in range(PARTITIONS))


@dataclass
class ExactlyOnce:
    """Counts what happens in one run; it is what would be a database outside of the cluster."""

    sender_settings: Mapping[str, Any] = field(default_factory=lambda: SENDER_SETTINGS)
    acknowledged: set[int] = field(default_factory=set)
    sent: int = 0
    is_over: bool = False

    async def story(self, sim: Simulation) -> None:
        for topic in (SOURCE, TARGET):
            await sim.create_topic(topic, PARTITIONS, min_insync_replicas="2")
        for number in range(SENDERS):
            sim.run(f"sender-{number + 1}", self._send)
        sim.run("copier", self._copy)
        await sim.calm()
        self.is_over = True
        copies: Counter[int] = Counter()
        await self._read(sim, copies)
        twice = sorted(number for number, count in copies.items() if count > 1)
        assert not twice, f"copied more than once: {twice[:10]}"

    async def _send(self, process: Process) -> None:
        while not self.is_over:
            try:
                async with process.producer(**self.sender_settings) as producer:
                    while not self.is_over:
                        await self._send_one(process, producer)
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _send_one(self, process: Process, producer: Producer) -> None:
        self.sent += 1
        number = self.sent
        partition = process.random.randrange(PARTITIONS)
        sent = await producer.send(SOURCE, b"%d" % number, partition=partition)
        await sent
        self.acknowledged.add(number)
        await asyncio.sleep(process.random.uniform(0, 0.2))

    async def _copy(self, process: Process) -> None:
        while True:
            try:
                await self._copy_until_it_fails(process)
                return
            except KafkaError:
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _copy_until_it_fails(self, process: Process) -> None:
        reading = {"group_id": GROUP, "isolation_level": "read_committed"}
        async with (
            process.producer(transactional_id="copier", linger_ms=0) as producer,
            process.consumer(enable_auto_commit=False, **reading) as consumer,
        ):
            await producer.init_transactions()
            consumer.assign(_INPUTS)
            for key, at in (await consumer.committed(_INPUTS)).items():
                consumer.seek(key, 0 if at is None else at.offset)
            while not await self._is_copied(consumer):
                await _copy_some(producer, consumer)

    async def _is_copied(self, consumer: Consumer) -> bool:
        """Whether the senders have ended and nothing is left."""
        if not self.is_over:
            return False
        ends = await consumer.end_offsets(_INPUTS)
        return all([await consumer.position(key) >= end for key, end in ends.items()])

    async def _read(self, sim: Simulation, copies: "Counter[int]") -> None:
        """Read the copies until nothing is missing."""
        settings = {"isolation_level": "read_committed", "auto_offset_reset": "earliest"}
        end = sim.seconds + _SETTLE_SECONDS_MAX
        async with sim.process.consumer(**settings) as consumer:
            consumer.assign(_OUTPUTS)
            consumer.seek_to_beginning()
            while missing := self.acknowledged - copies.keys():
                found = await consumer.poll(timeout=_POLL_SECONDS)
                copies.update(
                    int(record.value or b"0") for records in found.values() for record in records
                )
                late = sim.seconds > end
                assert not late, f"acknowledged, and never copied: {sorted(missing)[:10]}"


async def _copy_some(producer: Producer, consumer: Consumer) -> None:
    found = await consumer.poll(timeout=_POLL_SECONDS)
    if not found:
        return
    await producer.begin_transaction()
    for key, records in found.items():
        for record in records:
            await producer.send(TARGET, record.value, partition=key.partition)
    ends = {key: OffsetAndMetadata(records[-1].offset + 1) for key, records in found.items()}
    await producer.send_offsets_to_transaction(ends, consumer.group_metadata())
    await producer.commit_transaction()
