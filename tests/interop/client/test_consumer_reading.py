"""The consumer alone: reading, positions, offsets of the log, transactions; with both clusters."""

import asyncio
import time

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from odradek.client.consumer import (
    Consumer,
    NoOffsetError,
    OffsetAndTimestamp,
    SubscriptionPattern,
    TopicPartition,
)
from tests.interop.client.consumer_session import (
    SECONDS_MAX,
    fill,
    fresh,
    make_topic,
    new_producer,
    partitions_of,
    produce,
    read,
    run,
)


def test_records_come_one_by_one_in_the_order_of_their_partition(cluster_address: str) -> None:
    topic = make_topic(cluster_address, 3)
    fill(cluster_address, topic, 50, 3)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign(partitions_of(topic, 3))
            consumer.seek_to_beginning()
            records = await read(consumer, 150)
            for number in range(3):
                values = [each.value for each in records if each.partition == number]
                assert values == [b"%d-%d" % (number, n) for n in range(50)]
            positions = [await consumer.position(each) for each in partitions_of(topic, 3)]
            assert positions == [50, 50, 50]

    run(scenario)


def test_poll_gives_at_most_so_many_and_goes_on_from_there(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    fill(cluster_address, topic, 25, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([partition])
            consumer.seek(partition, 3)
            offsets: list[int] = []
            while len(offsets) < 22:
                polled = await consumer.poll(60, max_records=4)
                assert len(polled[partition]) <= 4
                offsets += [each.offset for each in polled[partition]]
                assert await consumer.position(partition) == offsets[-1] + 1
            assert offsets == list(range(3, 25))
            assert await consumer.poll(0.05) == {}

    run(scenario)


def test_one_by_one_lists_and_tables_go_on_from_each_other(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    fill(cluster_address, topic, 40, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            first = [each.offset for each in await read(consumer, 7)]
            assert await consumer.position(partition) == 7
            polled = (await consumer.poll(60, max_records=5))[partition]
            second = [each.offset for each in polled]
            third = [each.offset for each in await read(consumer, 3)]
            rest: list[int] = []
            while len(rest) < 25:
                table = await consumer.poll_arrow(60)
                rest += table.column("offset").to_pylist()
            assert first + second + third + rest == list(range(40))

    run(scenario)


def test_a_table_has_the_columns_of_a_record(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    producer = new_producer(cluster_address, **{"compression.type": "lz4"})
    headers: list[tuple[str, str | bytes | None]] = [("h", b"1"), ("h", None)]
    producer.produce(topic, b"v", b"k", 0, headers=headers, timestamp=1_700_000_000_123)
    producer.produce(topic, None, None, 0, timestamp=1_700_000_000_124)
    assert producer.flush(SECONDS_MAX) == 0

    async def scenario() -> pa.Table:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([(TopicPartition(topic, 0))])
            consumer.seek_to_beginning()
            return await consumer.poll_arrow(60)

    table = run(scenario)
    rows = table.to_pylist()
    assert [row["key"] for row in rows] == [b"k", None]
    assert [row["value"] for row in rows] == [b"v", None]
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, 0)] * 2
    assert [row["timestamp"].timestamp() for row in rows] == [1_700_000_000.123, 1_700_000_000.124]
    assert rows[0]["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert table.schema.names[-2:] == ["timestampType", "headers"]


def test_nothing_in_time_is_an_empty_table(cluster_address: str) -> None:
    topic = make_topic(cluster_address)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign(partitions_of(topic, 1))
            table = await consumer.poll_arrow(0.05)
            assert table.num_rows == 0
            assert "headers" in table.schema.names

    run(scenario)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(cluster_address: str, codec: str) -> None:
    topic = make_topic(cluster_address)
    produce(cluster_address, topic, [b"x" * 100] * 30, compression_type=codec, linger_ms=50)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign(partitions_of(topic, 1))
            consumer.seek_to_beginning()
            assert [each.value for each in await read(consumer, 30)] == [b"x" * 100] * 30

    run(scenario)


@pytest.mark.seed_row("2.4")
def test_a_paused_partition_stalls_alone(cluster_address: str) -> None:
    topic = make_topic(cluster_address, 2)
    fill(cluster_address, topic, 30, 2)
    first, second = partitions_of(topic, 2)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([first, second])
            consumer.seek_to_beginning()
            consumer.pause([first])
            assert consumer.paused() == {first}
            assert {each.partition for each in await read(consumer, 30)} == {1}
            assert await consumer.poll(0.1) == {}
            consumer.resume([first])
            assert [each.offset for each in await read(consumer, 30)] == list(range(30))

    run(scenario)


def test_a_pause_amid_a_list_loses_nothing(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    fill(cluster_address, topic, 20, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            before = [each.offset for each in await read(consumer, 5)]
            consumer.pause([partition])
            assert await consumer.poll(0.1) == {}
            assert await consumer.position(partition) == 5
            consumer.resume([partition])
            after = [each.offset for each in await read(consumer, 15)]
            assert before + after == list(range(20))
            assert await consumer.position(partition) == 20, "nothing comes twice"

    run(scenario)


def test_marks_and_times_have_offsets(cluster_address: str) -> None:
    topic = make_topic(cluster_address, 2)
    producer = new_producer(cluster_address)
    for n in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1_700_000_000_000 + n * 1000)
    assert producer.flush(SECONDS_MAX) == 0
    first, second = partitions_of(topic, 2)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            assert await consumer.beginning_offsets([first, second]) == {first: 0, second: 0}
            assert await consumer.end_offsets([first, second]) == {first: 10, second: 0}
            found = await consumer.offsets_for_times(
                {first: 1_700_000_003_500, second: 1_700_000_000_000}
            )
            assert found[second] is None
            at = found[first]
            assert isinstance(at, OffsetAndTimestamp)
            assert (at.offset, at.timestamp) == (4, 1_700_000_004_000)
            late = await consumer.offsets_for_times({first: 1_800_000_000_000})
            assert late == {first: None}

    run(scenario)


def test_lag_is_known_once_something_was_fetched(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    fill(cluster_address, topic, 10, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            assert consumer.current_lag(partition) is None
            await read(consumer, 4)
            assert consumer.current_lag(partition) == 6

    run(scenario)


@pytest.mark.seed_row("4.10")
@pytest.mark.parametrize(
    ("reset", "offset"), [("earliest", 0), ("latest", 10), ("by_duration:PT1H", 5)]
)
def test_without_a_valid_offset_the_reset_decides(
    cluster_address: str, reset: str, offset: int
) -> None:
    topic = make_topic(cluster_address)
    producer = new_producer(cluster_address)
    now_ms = int(time.time() * 1000)
    for n in range(10):
        age_ms = 7_200_000 if n < 5 else 1_000
        producer.produce(topic, b"v", partition=0, timestamp=now_ms - age_ms)
    assert producer.flush(SECONDS_MAX) == 0
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address, auto_offset_reset=reset) as consumer:
            consumer.assign([partition])
            assert await consumer.position(partition) == offset
            consumer.seek(partition, 500)
            while await consumer.position(partition) == 500:
                await consumer.poll(0.05)
            assert await consumer.position(partition) in (offset, 10)

    run(scenario)


def test_with_no_reset_the_application_is_told(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    fill(cluster_address, topic, 3, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(
            bootstrap_servers=cluster_address, auto_offset_reset="none"
        ) as consumer:
            consumer.assign([partition])
            with pytest.raises(NoOffsetError):
                await consumer.poll(60)
            consumer.seek(partition, 99)
            with pytest.raises(NoOffsetError, match="out of range"):
                await consumer.poll(60)
            consumer.seek(partition, 1)
            assert [each.offset for each in await read(consumer, 2)] == [1, 2]

    run(scenario)


def test_a_seek_takes_back_what_the_next_poll_was_to_raise(cluster_address: str) -> None:
    """A blocking consumer looks for positions between ``assign`` and ``seek``, too."""
    topic = make_topic(cluster_address, 2)
    fill(cluster_address, topic, 3, 2)
    partitions = partitions_of(topic, 2)

    async def scenario() -> None:
        async with Consumer(
            bootstrap_servers=cluster_address, auto_offset_reset="none"
        ) as consumer:
            consumer.assign(partitions)
            with pytest.raises(NoOffsetError):  # of one; that of the other waits
                await consumer.poll(60)
            for partition in partitions:
                consumer.seek(partition, 0)
            assert len(await read(consumer, 6)) == 6

    run(scenario)


def transactional(servers: str, topic: str, values: list[bytes], *, commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": servers, "transactional.id": fresh("transaction"), "linger.ms": 0}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(SECONDS_MAX)
    if commit:
        producer.commit_transaction(SECONDS_MAX)
    else:
        producer.abort_transaction(SECONDS_MAX)


@pytest.mark.seed_row("0.3")
@pytest.mark.parametrize("way", ["one by one", "lists", "tables"])
def test_what_was_aborted_is_not_read_by_those_who_read_committed(
    cluster_address: str, way: str
) -> None:
    topic = make_topic(cluster_address)
    transactional(cluster_address, topic, [b"a1", b"a2"], commit=True)
    transactional(cluster_address, topic, [b"b1", b"b2"], commit=False)
    produce(cluster_address, topic, [b"c"])
    transactional(cluster_address, topic, [b"d1"], commit=True)
    partition = TopicPartition(topic, 0)

    async def values(isolation: str, number: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        async with Consumer(
            bootstrap_servers=cluster_address, isolation_level=isolation
        ) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            while len(found) < number:
                if way == "one by one":
                    found += [each.value for each in await read(consumer, number)]
                elif way == "lists":
                    polled = await consumer.poll(60, max_records=2)
                    found += [each.value for share in polled.values() for each in share]
                else:
                    found += (await consumer.poll_arrow(60)).column("value").to_pylist()
            # The last marker may come after the answer to the commit, and is nothing to hand out.
            while await consumer.position(partition) < end:
                assert await consumer.poll(0.05) == {}
            assert await consumer.poll(0.05) == {}
            assert await consumer.position(partition) == end
        return found

    end = 9  # each of the three transactions has a marker
    everything = [b"a1", b"a2", b"b1", b"b2", b"c", b"d1"]
    assert run(lambda: values("read_uncommitted", 6)) == everything
    assert run(lambda: values("read_committed", 4)) == [b"a1", b"a2", b"c", b"d1"]


def test_cancelling_loses_no_record(cluster_address: str) -> None:
    topic = make_topic(cluster_address)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign([partition])
            consumer.seek_to_beginning()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.__anext__(), 0.1)
            await asyncio.to_thread(produce, cluster_address, topic, [b"1", b"2"])
            assert [each.value for each in await read(consumer, 2)] == [b"1", b"2"]

    run(scenario)


def test_prefetching_stays_within_its_bytes(cluster_address: str) -> None:
    topic = make_topic(cluster_address, 2)
    for number in range(2):
        produce(cluster_address, topic, [b"x" * 10_000] * 100, partition=number)
    first, second = partitions_of(topic, 2)

    async def scenario() -> None:
        async with Consumer(
            bootstrap_servers=cluster_address,
            max_partition_fetch_bytes=30_000,
            queued_max_bytes=60_000,
        ) as consumer:
            consumer.assign([first, second])
            consumer.seek_to_beginning()
            records = []
            machinery = consumer._running()
            async for record in consumer:
                records.append(record)
                assert machinery.fetcher.buffer.bytes <= 60_000 + 2 * 40_000
                machinery.fetcher.buffer.check_invariants()
                if len(records) == 50:
                    consumer.pause([first])  # what it has fetched must not keep the others out
                if sum(each.partition for each in records) == 100:
                    break
            consumer.resume([first])
            rest = 100 - sum(each.partition == 0 for each in records)
            records += await read(consumer, rest)
            for number in range(2):
                offsets = [each.offset for each in records if each.partition == number]
                assert offsets == list(range(100))

    run(scenario)


def test_what_cannot_be_is_refused_in_words(cluster_address: str) -> None:
    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            with pytest.raises(RuntimeError, match="subscribe to topics"):
                await consumer.poll(0)
            with pytest.raises(ValueError, match=r"group\.id"):
                consumer.subscribe(SubscriptionPattern("t"))
            with pytest.raises(ValueError, match="not assigned"):
                consumer.seek(TopicPartition("t", 0), 1)
            with pytest.raises(ValueError, match=r"group\.id"):
                await consumer.commit()
        with pytest.raises(Exception, match="closed"):
            await consumer.poll(0)

    run(scenario)
