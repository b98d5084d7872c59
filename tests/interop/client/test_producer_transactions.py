"""Transactions of the producer against Odradek and real Kafka, in both versions of the protocol.

A cluster of today has transaction.version 2. Clients that do not know it are served all the same,
so version 1 is tried by not letting the producer know.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from odradek.client.errors import BrokerError
from odradek.client.producer import (
    Producer,
    ProducerFencedError,
    TransactionAbortedError,
    TransactionFailedError,
)
from odradek.client.producer.coordination import Coordination
from odradek.core.ids import TopicPartition
from tests.interop.client.produced_records import new_topic, values_in

_numbers = itertools.count()


class Group(NamedTuple):
    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@pytest.fixture(params=["version 2", "version 1"])
def transaction_version(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    if request.param == "version 2":
        return 2

    async def has_version_2(self: Coordination, transactional_id: str) -> bool:
        return False

    monkeypatch.setattr(Coordination, "has_version_2", has_version_2)
    return 1


def run(
    servers: str, work: Callable[[Producer], Awaitable[None]], transactional_id: str | None = None
) -> None:
    async def main() -> None:
        async with Producer(
            bootstrap_servers=servers,
            transactional_id=transactional_id or f"tx-{next(_numbers)}",
        ) as producer:
            await producer.init_transactions()
            await work(producer)

    asyncio.run(asyncio.wait_for(main(), 180))


def committed(servers: str, group_id: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group_id})
    (found,) = consumer.committed([ConfluentPartition(topic, 0)], timeout=90)
    consumer.close()
    assert isinstance(found.offset, int)
    return found.offset


def test_committed_records_are_seen_and_aborted_ones_are_not(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address, partitions=2)

    async def work(producer: Producer) -> None:
        for number in range(5):
            async with producer.transaction():
                for partition in (0, 1):
                    await producer.send(topic, b"kept %d" % number, partition=partition)
            with pytest.raises(ValueError, match="on purpose"):
                await fail(producer, number)

    async def fail(producer: Producer, number: int) -> None:
        async with producer.transaction():
            sent = await producer.send(topic, b"dropped %d" % number, partition=0)
            if number % 2:
                await sent  # it is in the log; else it may not even be sent
            raise ValueError("on purpose")

    run(cluster_address, work)
    assert values_in(cluster_address, topic) == [b"kept %d" % n for n in range(5)] * 2
    assert b"dropped 1" in values_in(cluster_address, topic, isolation="read_uncommitted")


def test_empty_transactions_are_fine(cluster_address: str, transaction_version: int) -> None:
    async def work(producer: Producer) -> None:
        for _ in range(3):
            async with producer.transaction():
                pass
            await producer.begin_transaction()
            await producer.abort_transaction()

    run(cluster_address, work)


def test_what_was_not_sent_when_a_transaction_is_aborted_never_is(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address)

    async def work(producer: Producer) -> None:
        await producer.begin_transaction()
        sent = await producer.send(topic, b"dropped")
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await sent
        async with producer.transaction():
            await producer.send(topic, b"kept")

    run(cluster_address, work)
    assert values_in(cluster_address, topic, isolation="read_uncommitted") == [b"kept"]


def test_the_second_producer_of_an_id_fences_the_first(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address)
    transactional_id = f"tx-{next(_numbers)}"

    async def work(first: Producer) -> None:
        await first.begin_transaction()
        await (await first.send(topic, b"of the first"))
        async with Producer(
            bootstrap_servers=cluster_address, transactional_id=transactional_id
        ) as second:
            await second.init_transactions()
            with pytest.raises(ProducerFencedError, match="PRODUCER_FENCED"):
                await first.commit_transaction()
            with pytest.raises(ProducerFencedError):
                await first.begin_transaction()
            with pytest.raises(ProducerFencedError):
                await first.send(topic, b"more")
            async with second.transaction():
                await second.send(topic, b"of the second")

    run(cluster_address, work, transactional_id)
    assert values_in(cluster_address, topic) == [b"of the second"]


def test_offsets_are_committed_with_the_transaction_or_not_at_all(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address)
    group_id = f"group-{next(_numbers)}"
    partition = TopicPartition(topic, 0)

    async def work(producer: Producer) -> None:
        async with producer.transaction():
            await producer.send(topic, b"kept")
            await producer.send_offsets_to_transaction({partition: 7}, Group(group_id))
        await producer.begin_transaction()
        await producer.send_offsets_to_transaction({partition: 9}, Group(group_id))
        await producer.abort_transaction()

    run(cluster_address, work)
    assert committed(cluster_address, group_id, topic) == 7


def test_offsets_of_a_member_that_is_not_there_abort_the_transaction(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address)
    group = Group(f"group-{next(_numbers)}", generation_id=3, member_id="nobody")

    async def work(producer: Producer) -> None:
        await producer.begin_transaction()
        await producer.send(topic, b"dropped")
        with pytest.raises(BrokerError):
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 1}, group)
        with pytest.raises(TransactionFailedError, match="abort"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send(topic, b"kept")

    run(cluster_address, work)
    assert values_in(cluster_address, topic) == [b"kept"]


def test_a_record_that_cannot_be_delivered_has_its_transaction_aborted(
    cluster_address: str, transaction_version: int
) -> None:
    topic = new_topic(cluster_address, configs={"max.message.bytes": "1000"})

    async def work(producer: Producer) -> None:
        await producer.begin_transaction()
        await producer.send(topic, b"dropped")
        lost = await producer.send(topic, b"x" * 5000)
        await producer.send(topic, b"dropped too")
        with pytest.raises(TransactionFailedError, match="MESSAGE_TOO_LARGE"):
            await producer.commit_transaction()
        assert isinstance(lost.exception(), BrokerError)
        await producer.abort_transaction()
        for number in range(3):
            async with producer.transaction():
                await producer.send(topic, b"kept %d" % number)

    run(cluster_address, work)
    assert values_in(cluster_address, topic) == [b"kept 0", b"kept 1", b"kept 2"]


def test_closing_aborts_what_is_not_committed(cluster_address: str) -> None:
    topic = new_topic(cluster_address)
    transactional_id = f"tx-{next(_numbers)}"

    async def leave(producer: Producer) -> None:
        await producer.begin_transaction()
        await (await producer.send(topic, b"left open"))

    run(cluster_address, leave, transactional_id)
    assert values_in(cluster_address, topic) == []
    assert values_in(cluster_address, topic, isolation="read_uncommitted") == [b"left open"]


def test_a_cluster_that_is_upgraded_is_noticed_between_transactions(
    cluster_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(cluster_address)
    answers = iter([False, False, True])

    async def has_version_2(self: Coordination, transactional_id: str) -> bool:
        return next(answers)

    monkeypatch.setattr(Coordination, "has_version_2", has_version_2)

    async def work(producer: Producer) -> None:
        for number in range(4):
            async with producer.transaction():
                await producer.send(topic, b"%d" % number)

    run(cluster_address, work)
    assert values_in(cluster_address, topic) == [b"0", b"1", b"2", b"3"]


def test_calls_out_of_order_are_told_apart(cluster_address: str) -> None:
    topic = new_topic(cluster_address)

    async def main() -> None:
        async with Producer(
            bootstrap_servers=cluster_address, transactional_id=f"tx-{next(_numbers)}"
        ) as producer:
            with pytest.raises(RuntimeError, match="init_transactions"):
                await producer.begin_transaction()
            await producer.init_transactions()
            with pytest.raises(RuntimeError, match="in transactions"):
                await producer.send(topic, b"outside")
            with pytest.raises(RuntimeError):
                await producer.commit_transaction()
            await producer.begin_transaction()
            with pytest.raises(RuntimeError):
                await producer.begin_transaction()
        async with Producer(bootstrap_servers=cluster_address) as plain:
            with pytest.raises(RuntimeError, match=r"transactional\.id"):
                await plain.init_transactions()

    asyncio.run(main())
