"""Pipelines for tests: files with a broker's address in them, and records for them to read."""

from collections.abc import Iterable
from pathlib import Path

from odradek.client import BlockingConsumer, BlockingProducer, TopicPartition
from odradek.spark import pipeline


def write_definition(folder: Path, servers: str, text: str, name: str = "pipeline.yaml") -> Path:
    """Write a file with what all have in common; the rest is ``text``."""
    path = folder / name
    head = f"name: p\nbrokers: {servers}\ntrigger: available_now\ncheckpoint: state\n"
    path.write_text(head + text)
    return path


def load_definition(folder: Path, servers: str, text: str) -> pipeline.Definition:
    return pipeline.load(write_definition(folder, servers, text))


def send(servers: str, topic: str, values: Iterable[bytes]) -> None:
    with BlockingProducer(bootstrap_servers=servers) as producer:
        sent = [producer.send(topic, value) for value in values]
        producer.flush()
        for each in sent:
            each.result()


def consume(servers: str, topic: str, partitions: int = 1) -> list[tuple[bytes, dict[str, bytes]]]:
    """Return value and headers of all that was committed."""
    found: list[tuple[bytes, dict[str, bytes]]] = []
    with BlockingConsumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        all_of_it = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(all_of_it)
        consumer.seek_to_beginning(all_of_it)
        ends = consumer.end_offsets(all_of_it)
        while any(consumer.position(each) < ends[each] for each in all_of_it):
            for records in consumer.poll(1.0).values():
                for record in records:
                    headers = {key: value or b"" for key, value in record.headers}
                    found.append((record.value or b"", headers))
    return found
