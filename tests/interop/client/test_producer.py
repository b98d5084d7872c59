"""The producer against Odradek and real Kafka: what it sends is there, as librdkafka reads it."""

import asyncio
import re
import time
from itertools import pairwise

import pytest
from confluent_kafka import Producer as ConfluentProducer

from odradek.client.errors import BrokerError, ConfigurationError, KafkaTimeoutError
from odradek.client.producer import Producer, ProducerRecord, RecordMetadata, RoundRobin
from odradek.client.settings import as_settings
from odradek.core.errors import ErrorCode
from tests.interop.client.produced_records import new_topic, read_topic, values_in


@pytest.mark.seed_row("2.6")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_arrive_as_they_were_sent(cluster_address: str, codec: str) -> None:
    topic = new_topic(cluster_address)
    headers = [("trace", b"1"), ("none", None), ("trace", b"2")]

    async def produce() -> list[RecordMetadata]:
        async with Producer(
            {"bootstrap.servers": cluster_address, "compression.type": codec}
        ) as producer:
            sent = [
                await producer.send(topic, b"plain", timestamp=1_700_000_000_000),
                await producer.send(topic, b"keyed", b"key", headers=headers),
                await producer.send(topic, None, b"tombstone"),
                await producer.send(topic, bytearray(b"view"), memoryview(b"key")),
            ]
            return [await each for each in sent]

    before_ms = int(time.time() * 1000)
    told = asyncio.run(produce())
    found = read_topic(cluster_address, topic)
    assert [(each.key, each.value) for each in found] == [
        (None, b"plain"),
        (b"key", b"keyed"),
        (b"tombstone", None),
        (b"key", b"view"),
    ]
    assert [each.headers for each in found] == [(), tuple(headers), (), ()]
    assert found[0].timestamp == 1_700_000_000_000
    assert before_ms <= found[1].timestamp <= int(time.time() * 1000)
    assert told == [RecordMetadata(topic, 0, each.offset, each.timestamp) for each in found]


def test_a_broker_that_sets_the_time_tells_which(cluster_address: str) -> None:
    topic = new_topic(cluster_address, configs={"message.timestamp.type": "LogAppendTime"})

    async def produce() -> RecordMetadata:
        async with Producer(bootstrap_servers=cluster_address) as producer:
            return await (await producer.send(topic, b"x", timestamp=1))

    told = asyncio.run(produce())
    assert told.timestamp == read_topic(cluster_address, topic)[0].timestamp > 1


@pytest.mark.seed_row("2.6")
def test_keys_go_where_java_and_librdkafka_put_them(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=7)
    keys = [b"key-%d" % number for number in range(60)] + [b"", b"\xff" * 5]
    other = ConfluentProducer(
        {"bootstrap.servers": cluster_address, "partitioner": "murmur2_random"}
    )
    for key in keys:
        other.produce(topic, b"theirs", key)
    assert other.flush(90) == 0

    async def produce() -> None:
        async with Producer(bootstrap_servers=cluster_address) as producer:
            for key in keys:
                await producer.send(topic, b"ours", key)

    asyncio.run(produce())
    places: dict[bytes | None, dict[bytes | None, int]] = {b"ours": {}, b"theirs": {}}
    for each in read_topic(cluster_address, topic):
        places[each.value][each.key] = each.partition
    # librdkafka takes an empty key for none; Java hashes it.
    assert places[b"theirs"].pop(b"", None) is not None
    assert places[b"ours"].pop(b"") == 2  # murmur2 of nothing, over 7
    assert places[b"ours"] == places[b"theirs"]


def test_partitions_can_be_named_or_chosen_by_functions(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=3)

    async def produce() -> list[int]:
        async with Producer(
            bootstrap_servers=cluster_address, partitioner=RoundRobin()
        ) as producer:
            sent = [await producer.send(topic, b"x", b"same key") for _ in range(6)]
            sent.append(await producer.send(topic, b"x", partition=1))
            return [(await each).partition for each in sent]

    assert asyncio.run(produce()) == [0, 1, 2, 0, 1, 2, 1]


def test_records_without_a_key_fill_a_batch_before_they_move_on(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=3)

    async def produce() -> list[int]:
        async with Producer(
            bootstrap_servers=cluster_address, batch_size=2000, linger_ms=60_000
        ) as producer:
            sent = [await producer.send(topic, b"x" * 100) for _ in range(600)]
            await producer.flush()
            return [each.result().partition for each in sent]

    places = asyncio.run(produce())
    moves = sum(before != after for before, after in pairwise(places))
    assert set(places) == {0, 1, 2}
    assert moves <= 600 // 14  # 14 such records and more fit


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_all_acks(cluster_address: str, acks: str) -> None:
    topic = new_topic(cluster_address)

    async def produce() -> list[RecordMetadata]:
        async with Producer(bootstrap_servers=cluster_address, acks=acks) as producer:
            sent = [await producer.send(topic, b"%d" % number) for number in range(1000)]
            return [await each for each in sent]

    told = asyncio.run(produce())
    expected = [-1] * 1000 if acks == "0" else list(range(1000))
    assert [each.offset for each in told] == expected
    if acks != "0":
        assert values_in(cluster_address, topic) == [b"%d" % number for number in range(1000)]


def test_a_batch_that_is_too_large_is_split(cluster_address: str) -> None:
    topic = new_topic(cluster_address, configs={"max.message.bytes": "2000"})

    async def produce() -> tuple[list[RecordMetadata], BaseException | None]:
        async with Producer(bootstrap_servers=cluster_address, linger_ms=50) as producer:
            sent = [await producer.send(topic, b"%0100d" % number) for number in range(200)]
            hopeless = await producer.send(topic, b"x" * 3000)
            after = [await producer.send(topic, b"%0100d" % number) for number in range(200, 300)]
            told = [await each for each in [*sent, *after]]
            await asyncio.wait([hopeless])
            return told, hopeless.exception()

    told, refused = asyncio.run(produce())
    assert values_in(cluster_address, topic) == [b"%0100d" % number for number in range(300)]
    assert [each.offset for each in told] == list(range(300))
    assert isinstance(refused, BrokerError)
    assert refused.code is ErrorCode.MESSAGE_TOO_LARGE


def test_a_record_that_no_request_can_carry_is_refused_at_once(cluster_address: str) -> None:
    topic = new_topic(cluster_address)

    async def produce() -> None:
        async with Producer(bootstrap_servers=cluster_address, max_request_size=5000) as producer:
            with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE.*max\.request\.size"):
                await producer.send(topic, b"x" * 5000)
            await (await producer.send(topic, b"fits"))

    asyncio.run(produce())
    assert values_in(cluster_address, topic) == [b"fits"]


@pytest.mark.slow
def test_topics_and_partitions_that_are_not_there_take_max_block_ms(cluster_address: str) -> None:
    topic = new_topic(cluster_address)

    async def produce() -> tuple[object, ...]:
        async with Producer(
            bootstrap_servers=cluster_address,
            max_block_ms=5_000,  # also for a machine that has much to do: it is to hear why
            allow_auto_create_topics=False,
        ) as producer:
            return await asyncio.gather(
                producer.send("no-such-topic", b"x"),
                producer.send(topic, b"x", partition=5),
                producer.send("no/such/name", b"x"),
                return_exceptions=True,
            )

    no_topic, no_partition, no_name = asyncio.run(produce())
    assert isinstance(no_topic, KafkaTimeoutError)
    assert re.search("UNKNOWN_TOPIC_OR_PARTITION.*create", str(no_topic))
    assert isinstance(no_partition, KafkaTimeoutError)
    assert f"{topic}-5 is not known" in str(no_partition)
    assert isinstance(no_name, BrokerError)
    assert no_name.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_serializers_and_interceptors(cluster_address: str) -> None:
    topic = new_topic(cluster_address)
    seen: list[object] = []

    class Upper:
        def serialize(self, topic: str, data: str) -> bytes:
            return f"{topic}:{data}".upper().encode()

    class Watch:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return record._replace(headers=[("seen", b"yes")])

        def on_acknowledgement(
            self, metadata: RecordMetadata | None, error: BaseException | None
        ) -> None:
            seen.append(metadata or error)

    class Broken(Watch):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            raise ValueError("must not disturb")

    async def produce() -> None:
        async with Producer(
            bootstrap_servers=cluster_address,
            key_serializer=str.encode,
            value_serializer=Upper(),
            interceptors=[Broken(), Watch()],
        ) as producer:
            await (await producer.send(topic, "value", "key"))
            await asyncio.sleep(0)  # callbacks of the future

    asyncio.run(produce())
    (found,) = read_topic(cluster_address, topic)
    assert (found.key, found.value) == (b"key", f"{topic}:value".upper().encode())
    assert found.headers == (("seen", b"yes"),)
    assert len(seen) == 2
    assert isinstance(seen[0], RecordMetadata)


def test_what_is_not_bytes_is_a_type_error_and_harms_nothing(cluster_address: str) -> None:
    topic = new_topic(cluster_address)

    async def produce() -> None:
        async with Producer(bootstrap_servers=cluster_address) as producer:
            for value in ("text", 5, [1]):
                with pytest.raises(TypeError, match="serializer"):
                    await producer.send(topic, value)
            with pytest.raises(TypeError):
                await producer.send(topic, b"x", headers=[("h", "text")])  # type: ignore[list-item]
            await (await producer.send(topic, b"good"))

    asyncio.run(produce())
    assert values_in(cluster_address, topic) == [b"good"]


@pytest.mark.parametrize("ending", ["flush", "close"])
def test_callbacks_of_all_records_have_been_called_by_then(
    cluster_address: str, ending: str
) -> None:
    topic = new_topic(cluster_address)

    async def produce() -> list[bytes]:
        called: list[bytes] = []
        async with Producer(bootstrap_servers=cluster_address, linger_ms=100) as producer:
            first = await producer.send(topic, b"first")
            second = await producer.send(topic, b"second")
            second.add_done_callback(lambda _: called.append(b"second"))
            # Both are done, but whoever waits for the first goes on before the other is called.
            await first
            assert not called
            await (producer.flush() if ending == "flush" else producer.close())
            return list(called)

    assert asyncio.run(produce()) == [b"second"]


@pytest.mark.seed_row("4.7")
def test_many_tasks_may_send_at_once(cluster_address: str) -> None:
    topic = new_topic(cluster_address, partitions=4)

    async def one(producer: Producer, number: int) -> None:
        for count in range(50):
            await (await producer.send(topic, b"%d" % count, b"%d" % number))

    async def produce() -> None:
        async with Producer(bootstrap_servers=cluster_address, linger_ms=0) as producer:
            await asyncio.gather(*(one(producer, number) for number in range(20)))

    asyncio.run(produce())
    found = read_topic(cluster_address, topic)
    for number in range(20):
        values = [each.value for each in found if each.key == b"%d" % number]
        assert values == [b"%d" % count for count in range(50)]


def test_settings_that_do_not_go_together_are_refused() -> None:
    for wrong in (
        {"enable.idempotence": True, "acks": "1"},
        {"transactional.id": "t", "enable.idempotence": False},
        {"transactional.id": "t", "acks": "0"},
        {"enable.idempotence": True, "max.in.flight.requests.per.connection": 6},
        {"delivery.timeout.ms": 10, "linger.ms": 5},
        {"compression.type": "gzip", "compression.gzip.level": 12},
        {"linger_mss": 5},
    ):
        with pytest.raises(ConfigurationError):
            Producer(as_settings({"bootstrap.servers": "localhost:1", **wrong}))
    assert not Producer(bootstrap_servers="localhost:1", acks=1).options.idempotent
    assert Producer(bootstrap_servers="localhost:1").options.idempotent
