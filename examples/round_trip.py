"""Starts a broker in this process, sends it records with confluent-kafka and reads them back.

$ python -m examples.round_trip
"""

import time

import confluent_kafka
from confluent_kafka.admin import AdminClient

from odradek.testing.broker import Broker

RECORDS = 10_000
DEADLINE_SECONDS = 30


def main() -> None:
    began = time.perf_counter()
    with Broker(topics={"orders": 3}) as broker:
        servers = broker.bootstrap_servers
        print(f"broker on {servers}, ready in {(time.perf_counter() - began) * 1000:.0f} ms")
        show_topics(servers)
        produce(servers)
        consume(servers)
    print("stopped cleanly")


def show_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for name, topic in admin.list_topics(timeout=DEADLINE_SECONDS).topics.items():
        print(f"topic {name}: {len(topic.partitions)} partitions")


def produce(servers: str) -> None:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 5,
        }
    )
    for number in range(RECORDS):
        producer.produce("orders", key=b"customer %d" % (number % 100), value=b"order %d" % number)
        producer.poll(0)
    left = producer.flush(DEADLINE_SECONDS)
    print(f"produced {RECORDS - left} records, exactly once, zstd")


def consume(servers: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": servers, "group.id": "example", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition("orders", number, 0) for number in range(3)])
    values: set[bytes | None] = set()
    while len(values) < RECORDS:
        messages = consumer.consume(RECORDS, timeout=1)
        values |= {message.value() for message in messages if message.error() is None}
    consumer.close()
    print(f"consumed {len(values)} records")


if __name__ == "__main__":
    main()
