"""What the golden data directories hold: topics, and the clients that filled them.

Three steps, each against a running node: `fill`, then after a restart `go_on` (a second leader
epoch, compaction, trimming), then on a copy of that `go_on_and_leave_open`, after which the
caller kills the node.

Records carry fixed CreateTimes of 2023, so that segments roll where `segment.ms` says and not
when a clock does. Kafka stamps transaction markers with its own clock, so in a topic with
transactions the first marker rolls the segment; later records of such topics lie in the future.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.interop.kafka_peer.tools import kafka_tool

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CLIENT_SECONDS_MAX = 30
CLEANER_SECONDS_MAX = 60
BASE_MS = 1_700_000_000_000
MINUTE_MS = 60_000

BROKER = {
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "500",
    "log.initial.task.delay.ms": "200",
    "log.cleaner.backoff.ms": "200",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "metadata.max.idle.interval.ms": "0",
}
# Deleted files must still be there when the crash comes.
BROKER_THAT_CRASHES = {**BROKER, "log.segment.delete.delay.ms": "3600000"}

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": str(MINUTE_MS),
    "min.cleanable.dirty.ratio": "0.01",
}
TOPICS: dict[str, dict[str, str]] = {
    **{f"codec-{codec}": {"index.interval.bytes": "400"} for codec in CODECS},
    "segments": {"segment.ms": str(MINUTE_MS), "index.interval.bytes": "200"},
    "indexed": {"index.interval.bytes": "200"},
    "append-time": {"message.timestamp.type": "LogAppendTime"},
    "idempotent": {"segment.ms": str(MINUTE_MS)},
    "txn": {"segment.ms": str(20 * MINUTE_MS), "index.interval.bytes": "200"},
    "txn-v2": {},
    "compacted": COMPACTED,
    "compacted-expired": {**COMPACTED, "delete.retention.ms": "100"},
    "compacted-txn": COMPACTED,
    "trimmed": {"segment.ms": str(MINUTE_MS)},
    "spread": {},
    "empty": {},
    "doomed": {},
}
PARTITIONS = {"spread": 3}

Headers = Sequence[tuple[str, bytes | None]]
Row = tuple[bytes | None, bytes | None, Headers]

ODD_ROWS: list[Row] = [
    (b"key", b"value", [("h", b"1"), ("h", b""), ("n", None)]),
    (None, b"no key", []),
    (b"no value", None, []),
    (None, None, []),
    (b"", b"", [("", b"")]),
    ("ключ".encode(), "值 🦀".encode(), [("ζ", "ü".encode())]),
    (b"\xff\x01\xfe", b"\x80not UTF-8\xc3", [("raw", b"\xff")]),
]


class Client:
    """A librdkafka producer whose `send` is one batch, acknowledged."""

    def __init__(self, servers: str, **config: Any) -> None:
        settings = {name.replace("_", "."): value for name, value in config.items()}
        self.producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": servers,
                "linger.ms": 10_000,
                "acks": "all",
                "log_level": 2,  # it outlives the node, and would complain of that
                **settings,
            }
        )
        self.in_transaction: set[tuple[str, int]] = set()
        if "transactional.id" in settings:
            self.producer.init_transactions(CLIENT_SECONDS_MAX)
            self.watcher = consumer(servers, "watcher", isolation_level="read_uncommitted")

    def send(self, topic: str, rows: Sequence[Row], at_ms: int, partition: int = 0) -> None:
        errors: list[Any] = []
        for i, (key, value, headers) in enumerate(rows):
            self.producer.produce(
                topic,
                value=value,
                key=key,
                headers=list(headers),
                partition=partition,
                timestamp=at_ms + i,
                on_delivery=lambda error, _: errors.append(error) if error else None,
            )
        left = self.producer.flush(CLIENT_SECONDS_MAX)
        assert not left, f"{left} records not acknowledged"
        assert not errors, errors

        self.in_transaction.add((topic, partition))

    def begin(self) -> None:
        self.in_transaction.clear()
        self.producer.begin_transaction()

    def commit(self) -> None:
        self.wait_for_markers(self.producer.commit_transaction)

    def abort(self) -> None:
        self.wait_for_markers(self.producer.abort_transaction)

    def wait_for_markers(self, end: Callable[[float], None]) -> None:
        """The coordinator answers before it has written the markers: another client's records
        may overtake them, and then the offsets are not those that we count on.
        """
        before = self.end_offsets()
        end(CLIENT_SECONDS_MAX)
        expected = [offset + 1 for offset in before]
        wait_for("markers", lambda: self.end_offsets() == expected, CLIENT_SECONDS_MAX)

    def end_offsets(self) -> list[int]:
        partitions = [TopicPartition(*each) for each in sorted(self.in_transaction)]
        return [self.watcher.get_watermark_offsets(each)[1] for each in partitions]


def rows(prefix: str, count: int, *, repeat: int = 1) -> list[Row]:
    return [
        (f"{prefix} key {i}".encode(), f"{prefix} value {i} ".encode() * repeat, [])
        for i in range(count)
    ]


def keyed(**values: str | None) -> list[Row]:
    return [(key.encode(), value.encode() if value else None, []) for key, value in values.items()]


def padded(batch: Sequence[Row]) -> list[Row]:
    """Long enough for librdkafka to find that compressing pays."""
    return [(key, value and value + b" compress me" * 6, headers) for key, value, headers in batch]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_for(what: str, condition: Callable[[], bool], seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds_max} s: {what}"
        time.sleep(0.1)


def fill(servers: str, wait_until_cleaned: Callable[[str, int], None]) -> None:
    create_topics(servers)
    for codec in CODECS:
        client = Client(servers, compression_type=codec)
        # librdkafka sends a batch uncompressed when that is shorter.
        client.send(f"codec-{codec}", [*ODD_ROWS, *rows("press me", 15, repeat=5)], BASE_MS)
        client.send(f"codec-{codec}", rows("compress me", 10, repeat=5), BASE_MS + 1000)
        # An older timestamp: the time index must not go back.
        client.send(f"codec-{codec}", rows("older", 3), BASE_MS - 5000)
    plain = Client(servers)
    for i in range(10):
        plain.send("segments", rows(f"batch {i}", 4), BASE_MS + i * 25_000)
    for i in range(25):
        plain.send("indexed", rows(f"indexed {i}", 1 + i % 3), BASE_MS + i)
    plain.send("append-time", ODD_ROWS, BASE_MS)
    for partition in range(PARTITIONS["spread"]):
        plain.send("spread", rows(f"part {partition}", 2 + partition), BASE_MS, partition)
    for i in range(6):
        plain.send("trimmed", rows(f"trim {i}", 3), BASE_MS + i * 2 * MINUTE_MS)
    plain.send("doomed", rows("doomed", 3), BASE_MS)
    # Seven batches: a broker remembers the last five of each producer.
    idempotent = Client(servers, enable_idempotence=True)
    for i in range(7):
        idempotent.send("idempotent", rows(f"sequence {i}", 2), BASE_MS + i * 20_000)
    fill_transactions(servers)
    compact(servers, wait_until_cleaned)
    commit_offsets(servers)


def create_topics(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [
        NewTopic(topic, PARTITIONS.get(topic, 1), 1, config=config)
        for topic, config in TOPICS.items()
    ]
    for future in admin.create_topics(wanted, operation_timeout=CLIENT_SECONDS_MAX).values():
        future.result(CLIENT_SECONDS_MAX)


def fill_transactions(servers: str) -> None:
    first = Client(servers, transactional_id="first", compression_type="lz4")
    second = Client(servers, transactional_id="second")
    outside = Client(servers, enable_idempotence=True)
    first.begin()
    first.send("txn", rows("committed", 3), BASE_MS)
    first.commit()
    # Two transactions and a producer outside of any, interleaved: the one that began later ends
    # first, so the last stable offset waits for the earlier.
    first.begin()
    first.send("txn", rows("aborted", 2), BASE_MS + 100)
    outside.send("txn", rows("outside", 2), BASE_MS + 200)
    second.begin()
    second.send("txn", rows("second", 2), BASE_MS + 300)
    first.send("txn", rows("aborted more", 1), BASE_MS + 400)
    second.commit()
    outside.send("txn", rows("outside again", 1), BASE_MS + 500)
    first.abort()
    # The segment rolls inside of this one, so its abort is in the index of the later segment.
    second.begin()
    second.send("txn", rows("aborted across segments", 2), now_ms())
    second.send("txn", rows("after the roll", 2), now_ms() + 30 * MINUTE_MS)
    second.abort()
    outside.send("txn", rows("outside at last", 1), now_ms() + 30 * MINUTE_MS)
    consume_transform_produce(servers, first)
    # Kafka's own producer speaks transactions version 2, which raises the producer epoch with
    # every transaction; librdkafka does not.
    kafka_tool(
        *("producer-perf-test", "--bootstrap-server", servers, "--topic", "txn-v2"),
        *("--num-records", "5", "--record-size", "12", "--throughput", "50"),
        *("--transactional-id", "v2", "--transaction-duration-ms", "10"),
    )


def consume_transform_produce(servers: str, client: Client) -> None:
    """A transaction over two partitions that also commits a group's offset."""
    group = consumer(servers, "transactional-group")
    client.begin()
    client.send("txn", rows("derived", 1), now_ms() + 31 * MINUTE_MS)
    client.send("spread", rows("derived", 1), now_ms(), 1)
    client.producer.send_offsets_to_transaction(
        [TopicPartition("segments", 0, 12)], group.consumer_group_metadata(), CLIENT_SECONDS_MAX
    )
    client.commit()
    group.close()


def compact(servers: str, wait_until_cleaned: Callable[[str, int], None]) -> None:
    """Updates and tombstones, each batch a segment of its own, and the cleaner over them."""
    client = Client(servers, compression_type="gzip")
    plain = Client(servers, enable_idempotence=True)
    batches = [
        keyed(a="1", b="1", c="1"),
        keyed(a="2", d="1"),
        keyed(b=None, e="1"),
        keyed(a="3", c=None),
        keyed(f="active segment"),
    ]
    for topic, producer in (("compacted", client), ("compacted-expired", plain)):
        for i, batch in enumerate(batches):
            producer.send(topic, padded(batch), BASE_MS + i * 2 * MINUTE_MS)
        wait_until_cleaned(topic, 9)
    # A second round for the one whose tombstones have had their time.
    for i, batch in enumerate([keyed(d="2", g="1"), keyed(g="active segment")]):
        plain.send("compacted-expired", batch, BASE_MS + (10 + i) * 2 * MINUTE_MS)
    wait_until_cleaned("compacted-expired", 12)

    first = Client(servers, transactional_id="compacting")
    for value, end in (("1", first.commit), ("2", first.abort), ("3", first.commit)):
        first.begin()
        first.send("compacted-txn", keyed(a=value, b=value), now_ms())
        end()
    client.send("compacted-txn", keyed(c="active segment"), now_ms() + 5 * MINUTE_MS)
    wait_until_cleaned("compacted-txn", 9)


def consumer(servers: str, group: str, **config: Any) -> confluent_kafka.Consumer:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    return confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **settings,
        }
    )


def commit_offsets(servers: str) -> None:
    """Groups of both protocols, one without members, and one that is gone again."""
    for group, config in (
        ("classic-group", {"session_timeout_ms": 6000}),
        ("consumer-group", {"group_protocol": "consumer"}),
    ):
        member = consumer(servers, group, client_id="golden", **config)
        member.subscribe(["segments", "codec-none"])
        messages = member.consume(5, CLIENT_SECONDS_MAX)
        assert len(messages) == 5
        member.commit(message=messages[-1], asynchronous=False)
        member.close()
    for group in ("no-members", "gone"):
        member = consumer(servers, group)
        offset = TopicPartition("spread", 2, 3, metadata="by hand")
        member.commit(offsets=[offset], asynchronous=False)
        member.close()
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_consumer_groups(["gone"])["gone"].result(CLIENT_SECONDS_MAX)


def go_on(servers: str, wait_until_trimmed: Callable[[str, int], None]) -> None:
    """After a restart: a later leader epoch, and records deleted from the front."""
    plain = Client(servers)
    for topic in ("segments", "append-time", "trimmed", "spread"):
        plain.send(topic, rows("second epoch", 2), BASE_MS + 20 * MINUTE_MS)
    Client(servers, enable_idempotence=True).send(
        "idempotent", rows("another producer", 2), BASE_MS + 10 * MINUTE_MS
    )
    first = Client(servers, transactional_id="first")
    first.begin()
    first.send("txn", rows("aborted in the second epoch", 2), now_ms() + 55 * MINUTE_MS)
    first.abort()
    delete_records(servers, "trimmed", 7)
    wait_until_trimmed("trimmed", 7)


def go_on_and_leave_open(servers: str) -> Client:
    """The last acts before a crash; the client holds an open transaction, so keep it alive."""
    for codec in CODECS:
        client = Client(servers, compression_type=codec)
        for i in range(4):
            client.send(f"codec-{codec}", rows(f"before the crash {i}", 3), BASE_MS + 5000 + i)
    plain = Client(servers)
    for i in range(3):
        plain.send("segments", rows(f"unflushed {i}", 3), BASE_MS + (30 + i) * 2 * MINUTE_MS)
    plain.send("compacted", keyed(a="4", h="1"), BASE_MS + 30 * MINUTE_MS)
    delete_records(servers, "trimmed", 13)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics(["doomed"])["doomed"].result(CLIENT_SECONDS_MAX)
    first = Client(servers, transactional_id="first")
    first.begin()
    first.send("txn", rows("aborted before the crash", 1), now_ms() + 55 * MINUTE_MS)
    first.abort()
    left_open = Client(servers, transactional_id="left-open", transaction_timeout_ms=900_000)
    left_open.begin()
    left_open.send("txn", rows("pending", 2), now_ms() + 55 * MINUTE_MS)
    plain.send("txn", rows("after the pending", 1), now_ms() + 55 * MINUTE_MS)
    return left_open


def delete_records(servers: str, topic: str, before_offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        future.result(CLIENT_SECONDS_MAX)
