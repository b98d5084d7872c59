"""Tables produced and read back, by Odradek and by Kafka; and what is told when they cannot be."""

import asyncio
import dataclasses
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from odradek.client import BlockingProducer, Consumer, TopicPartition
from odradek.client.errors import BrokerError, KafkaTimeoutError
from odradek.client.producer import (
    OffsetRange,
    Producer,
    RoundRobin,
    RowsMetadata,
    RowsNotDeliveredError,
    TransactionFailedError,
)
from odradek.client.settings import as_settings
from odradek.core.errors import ErrorCode
from odradek.testing.broker import Broker
from tests.interop.client.produced_records import (
    new_topic,
    read_topic,
    values_in,
    wait_for_topic,
)

SECONDS_MAX = 180
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS_MAX):
            await main()

    asyncio.run(bounded())


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as started:
        yield started


@pytest.fixture
def topic(broker: Broker) -> Iterator[str]:
    yield new_topic(broker.bootstrap_servers, partitions=3)
    broker.clear_faults()


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def poll_all(consumer: Consumer, topic: str, partitions: int, rows: int) -> pa.Table:
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    consumer.seek_to_beginning()
    tables: list[pa.Table] = []
    while sum(table.num_rows for table in tables) < rows:
        tables.append(await consumer.poll_arrow(SECONDS_MAX))
    return pa.concat_tables(tables).sort_by([("partition", "ascending"), ("offset", "ascending")])


def test_what_is_polled_can_be_sent_on_and_is_the_same(cluster_address: str) -> None:
    source = new_topic(cluster_address, partitions=3)
    target = new_topic(cluster_address, partitions=3)
    headers = [[{"key": "h", "value": b"v"}, {"key": "n", "value": None}], None, []]
    table = pa.table(
        {
            "key": pa.array([b"a", None, b"\xff" * 5] * 500),
            "value": pa.array([b"1", b"2", None] * 500),
            "headers": pa.array(headers * 500, HEADERS),
            "timestamp": pa.array(range(1_700_000_000_000, 1_700_000_001_500), pa.int64()),
        }
    )

    async def main() -> None:
        async with (
            Producer(bootstrap_servers=cluster_address) as producer,
            Consumer(bootstrap_servers=cluster_address) as consumer,
        ):
            told = await (await producer.send_arrow(source, table))
            assert told.rows == 1500
            first = await poll_all(consumer, source, 3, 1500)
            found = {
                partition: (OffsetRange(0, first["partition"].to_pylist().count(partition)),)
                for partition in set(first["partition"].to_pylist())
            }
            assert dict(told.partitions) == found
            await (await producer.send_arrow(target, first))
            second = await poll_all(consumer, target, 3, 1500)
        columns = ["key", "value", "partition", "offset", "timestamp", "headers"]
        assert second.select(columns).equals(first.select(columns))

    run(main)
    seen = read_topic(cluster_address, target)
    assert sorted(each.timestamp for each in seen) == list(
        range(1_700_000_000_000, 1_700_000_001_500)
    )


def test_rows_go_where_single_records_with_their_keys_go(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=7)
    keys = [b"key-%d" % number for number in range(200)] + [b""]

    async def main() -> None:
        async with Producer(bootstrap_servers=cluster_address) as producer:
            for key in keys:
                await producer.send(topic, b"one", key)
            rows = pa.table({"key": keys, "value": [b"many"] * len(keys)})
            await (await producer.send_arrow(topic, rows))

    run(main)
    found: dict[bytes | None, dict[bytes | None, int]] = {b"one": {}, b"many": {}}
    for each in read_topic(cluster_address, topic):
        found[each.value][each.key] = each.partition
    assert found[b"one"] == found[b"many"]
    assert len(found[b"many"]) == len(keys)


def test_a_partition_keeps_the_order_of_what_is_sent_one_by_one_and_by_the_table(
    cluster_address: str,
) -> None:
    topic = new_topic(cluster_address)
    values = numbers(3000)

    async def main() -> None:
        async with Producer(bootstrap_servers=cluster_address, linger_ms=100) as producer:
            for start in range(0, 3000, 300):
                for value in values[start : start + 100]:
                    await producer.send(topic, value)
                rows = pa.table({"value": values[start + 100 : start + 300]})
                await producer.send_arrow(topic, rows, partition=0)

    run(main)
    assert values_in(cluster_address, topic) == values


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_a_table_larger_than_memory_goes_out_in_order(cluster_address: str, codec: str) -> None:
    topic = new_topic(cluster_address, partitions=2)
    values = [b"%06d" % number * 40 for number in range(20_000)]  # 4.8 MB through 1
    settings: dict[str, Any] = {"buffer.memory": 1_000_000, "compression.type": codec}

    async def main() -> None:
        async with Producer(as_settings(settings), bootstrap_servers=cluster_address) as producer:
            rows = pa.table({"value": values, "partition": [0, 1] * 10_000})
            sent = await producer.send_arrow(topic, rows)
            told = await sent
            pool = producer._accumulator.pool
            assert pool.free_bytes == pool.total_bytes
        expected = {0: (OffsetRange(0, 10_000),), 1: (OffsetRange(0, 10_000),)}
        assert told == RowsMetadata(topic, 20_000, expected)

    run(main)
    assert values_in(cluster_address, topic) == values[::2] + values[1::2]


def test_batches_that_a_topic_finds_too_large_are_split(cluster_address: str) -> None:
    topic = new_topic(cluster_address, configs={"max.message.bytes": "20000"})
    values = [b"%05d" % number * 20 for number in range(2000)]

    async def main() -> None:
        async with Producer(bootstrap_servers=cluster_address) as producer:
            told = await (await producer.send_arrow(topic, pa.table({"value": values})))
            assert told.partitions == {0: (OffsetRange(0, 2000),)}

    run(main)
    assert values_in(cluster_address, topic) == values


def test_a_table_is_in_a_transaction_or_is_not_there(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=3)
    rows = pa.table({"key": numbers(500), "value": numbers(500)})

    async def main() -> None:
        async with Producer(
            bootstrap_servers=cluster_address, transactional_id=f"arrow-{topic}"
        ) as producer:
            await producer.init_transactions()
            with pytest.raises(RuntimeError, match="in transactions"):
                await producer.send_arrow(topic, rows)
            async with producer.transaction():
                await producer.send_arrow(topic, rows)
            await producer.begin_transaction()
            await (await producer.send_arrow(topic, rows))
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send_arrow(topic, rows.slice(0, 10))

    run(main)
    found = sorted(map(str, values_in(cluster_address, topic)))
    assert found == sorted(map(str, numbers(500) + numbers(10)))


def test_records_without_keys_are_spread_batch_by_batch(broker: Broker, topic: str) -> None:
    rows = pa.table({"value": numbers(5000)})

    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500) as producer:
            told = await (await producer.send_arrow(topic, rows))
            assert set(told.partitions) == {0, 1, 2}

    run(main)
    assert sorted(values_in(broker.bootstrap_servers, topic), key=str) == sorted(
        numbers(5000), key=str
    )


def test_a_partitioner_of_ones_own_is_asked(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, partitioner=RoundRobin()
        ) as producer:
            told = await (await producer.send_arrow(topic, pa.table({"value": numbers(9)})))
        assert told.partitions == {number: (OffsetRange(0, 3),) for number in range(3)}

    run(main)


def test_nothing_is_sent_of_a_table_with_a_row_that_cannot_be(broker: Broker, topic: str) -> None:
    large = pa.table({"value": [b"fine", b"x" * 2_000_000]})
    bad_headers = pa.array([[], [{"key": None, "value": b""}]], HEADERS)
    nameless = pa.table({"value": [b"fine", b"fine"], "headers": bad_headers})
    nowhere = pa.table({"value": [b"fine", b"fine"], "partition": [0, 99]})

    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, max_block_ms=300
        ) as producer:
            await wait_for_topic(producer, topic)
            with pytest.raises(BrokerError) as told:
                await producer.send_arrow(topic, large)
            assert told.value.code is ErrorCode.MESSAGE_TOO_LARGE
            assert "row 1" in told.value.__notes__[0]
            with pytest.raises(ValueError, match="no key"):
                await producer.send_arrow(topic, nameless)
            with pytest.raises(KafkaTimeoutError, match="99 is not known"):
                await producer.send_arrow(topic, nowhere)
            with pytest.raises(KafkaTimeoutError, match="77 is not known"):
                await producer.send_arrow(topic, large.slice(0, 1), partition=77)

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == []


def test_serializers_and_interceptors_would_not_see_the_rows(broker: Broker, topic: str) -> None:
    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, value_serializer=str.encode
        ) as producer:
            with pytest.raises(RuntimeError, match="serializers"):
                await producer.send_arrow(topic, pa.table({"value": ["text"]}))

    run(main)


def test_rows_that_are_refused_are_named_and_can_be_sent_again(broker: Broker, topic: str) -> None:
    rows = pa.table({"value": numbers(3000)})

    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, batch_size=5000, retry_backoff_ms=5
        ) as producer:
            await (await producer.send(topic, b"warm", partition=1))
            broker.fail("Produce", "INVALID_RECORD", times=1, topic=topic)
            sent = await producer.send_arrow(topic, rows, partition=1)
            with pytest.raises(RowsNotDeliveredError) as told:
                await sent
            refused = len(told.value.rows)
            assert 0 < refused < 1000
            assert told.value.rows == list(range(refused))
            assert told.value.delivered.partitions == {1: (OffsetRange(1, 3001 - refused),)}
            assert isinstance(told.value.__cause__, BrokerError)
            again = await producer.send_arrow(topic, rows.take(told.value.rows), partition=1)
            assert (await again).partitions == {1: (OffsetRange(3001 - refused, 3001),)}

    run(main)


def test_memory_that_stays_full_is_told_with_the_rows_it_was_full_for(
    broker: Broker, topic: str
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "buffer.memory": 60_000,
        "max.block.ms": 300,
        "batch.size": 20_000,
    }

    async def main() -> None:
        async with Producer(as_settings(settings)) as producer:
            await wait_for_topic(producer, topic)
            await (await producer.send(topic, b"warm", partition=0))
            held = broker.delay("Produce", 600, times=None, topic=topic)
            rows = pa.table({"value": [b"x" * 1000] * 300})
            sent = await producer.send_arrow(topic, rows, partition=0)
            held.clear()
            with pytest.raises(RowsNotDeliveredError, match=r"buffer\.memory") as told:
                await sent
            first = told.value.rows[0]
            assert 0 < first < 100
            assert told.value.rows == list(range(first, 300))
            assert told.value.delivered.partitions == {0: (OffsetRange(1, 1 + first),)}

    run(main)


def test_a_transaction_of_which_rows_are_missing_cannot_be_committed(
    broker: Broker, topic: str
) -> None:
    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id=f"missing-{topic}"
        ) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            rows = pa.table({"value": numbers(9), "partition": [0, 1, 2] * 3})
            broker.fail("Produce", "INVALID_RECORD", times=1, topic=topic)
            sent = await producer.send_arrow(topic, rows)
            with pytest.raises(RowsNotDeliveredError):
                await sent
            with pytest.raises(TransactionFailedError):
                await producer.commit_transaction()
            await producer.abort_transaction()

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == []


def test_a_transaction_for_whose_rows_there_was_no_memory_cannot_be_committed(
    broker: Broker, topic: str
) -> None:
    settings: dict[str, Any] = {
        "bootstrap.servers": broker.bootstrap_servers,
        "transactional.id": f"full-{topic}",
        "buffer.memory": 60_000,
        "batch.size": 20_000,
    }

    async def main() -> None:
        async with Producer(as_settings(settings)) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            await (await producer.send(topic, b"warm", partition=0))
            held = broker.delay("Produce", 600, times=None, topic=topic)
            producer.intake._options = dataclasses.replace(producer.options, max_block_ms=300)
            rows = pa.table({"value": [b"x" * 1000] * 300})
            await producer.send_arrow(topic, rows, partition=0)
            held.clear()
            with pytest.raises(TransactionFailedError):
                await producer.commit_transaction()
            await producer.abort_transaction()

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == []


def test_connections_that_break_lose_and_double_nothing(broker: Broker, topic: str) -> None:
    settings: dict[str, Any] = {"retry.backoff.ms": 5, "reconnect.backoff.ms": 5}
    values = numbers(30_000)

    async def main() -> None:
        async with Producer(
            as_settings(settings), bootstrap_servers=broker.bootstrap_servers, batch_size=20_000
        ) as producer:
            broker.drop("Produce", times=3, after=True, topic=topic)
            told = await (
                await producer.send_arrow(topic, pa.table({"value": values}), partition=0)
            )
            assert told.partitions == {0: (OffsetRange(0, 30_000),)}

    run(main)
    assert values_in(broker.bootstrap_servers, topic) == values


def test_programs_without_a_loop_send_tables_too(broker: Broker, topic: str) -> None:
    rows = pa.table({"value": numbers(1000)})
    with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
        before = producer.send(topic, b"before", partition=0)
        sent = producer.send_arrow(topic, rows, partition=0)
        after = producer.send(topic, b"after", partition=0)
        assert sent.result(SECONDS_MAX).partitions == {0: (OffsetRange(1, 1001),)}
        assert before.result(SECONDS_MAX).offset == 0
        assert after.result(SECONDS_MAX).offset == 1001
        with pytest.raises(TypeError):
            producer.send_arrow(topic, [b"no table"])


def test_without_pyarrow_all_else_works_and_this_says_what_is_missing(
    broker: Broker, topic: str
) -> None:
    code = """
import asyncio, sys
sys.modules["pyarrow"] = None
from odradek.client import Producer

async def main():
    async with Producer(bootstrap_servers=sys.argv[1]) as producer:
        await (await producer.send(sys.argv[2], b"one"))
        try:
            await producer.send_arrow(sys.argv[2], None)
        except ImportError as error:
            print(error)

asyncio.run(main())
"""
    arguments = [sys.executable, "-c", code, broker.bootstrap_servers, topic]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.stdout == "send_arrow needs pyarrow: pip install odradek[arrow]\n", done.stderr
