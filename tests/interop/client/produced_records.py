"""Topics for producers, and what is in them in the eyes of librdkafka."""

import itertools
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from confluent_kafka import Consumer, IsolationLevel, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec  # type: ignore[attr-defined]

from odradek.client.errors import KafkaTimeoutError
from odradek.client.producer import Producer

TIMEOUT_SECONDS = 90
_numbers = itertools.count()


class Produced(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int


def new_topic(servers: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> str:
    """Create a topic with a name of its own, and wait until it can be used."""
    name = f"produced-{next(_numbers)}"
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(name, partitions, 1, config=dict(configs or {}))
    admin.create_topics([topic])[name].result(TIMEOUT_SECONDS)
    return name


async def wait_for_topic(producer: Producer, topic: str) -> None:
    """Have the producer know a topic: ``max.block.ms`` may be too short for that."""
    while True:
        with suppress(KafkaTimeoutError):
            await producer.partitions_for(topic)
            return


def read_topic(servers: str, topic: str, *, isolation: str = "read_committed") -> list[Produced]:
    """Read everything that is there now, in the order of partitions and offsets.

    Who reads what is committed waits for the transactions that are open: a broker may answer a
    commit before its markers are written.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"reader-{next(_numbers)}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    known = consumer.list_topics(topic, timeout=TIMEOUT_SECONDS).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in known])
    found: list[Produced] = []
    ends = end_offsets(servers, topic, list(known))
    ended: set[int | None] = set()
    while len(ended) < len(known):
        message: Any = consumer.poll(TIMEOUT_SECONDS)
        assert message is not None, f"{topic}: the end did not come"
        if message.error():
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            if message.offset() >= ends[message.partition()]:
                ended.add(message.partition())
            continue
        found.append(
            Produced(
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
                message.timestamp()[1],
            )
        )
    consumer.close()
    return sorted(found, key=lambda each: (each.partition, each.offset))


def end_offsets(servers: str, topic: str, partitions: Collection[int]) -> dict[int, int]:
    """Return where the partitions end, open transactions and all."""
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    places = {TopicPartition(topic, partition): latest for partition in partitions}
    admin = AdminClient({"bootstrap.servers": servers})
    found = admin.list_offsets(places, isolation_level=IsolationLevel.READ_UNCOMMITTED)
    return {
        place.partition: int(future.result(TIMEOUT_SECONDS).offset)
        for place, future in found.items()
    }


def values_in(servers: str, topic: str, *, isolation: str = "read_committed") -> list[bytes | None]:
    return [each.value for each in read_topic(servers, topic, isolation=isolation)]
