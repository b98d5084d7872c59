"""Other people's Python clients behind one blocking interface, so that one test judges them all.

Each call makes a client of its own and closes it, except `tail`, which goes on reading. Nothing
here imports odradek: a fault of ours cannot hide in the measuring instrument.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

DEADLINE_SECONDS = 90
# Older ones retention takes from under a test, 30 s after its broker has started.
NOW_MS = int(time.time()) * 1000
MURMUR2_KEYS = {
    # From Kafka's own UtilsTest.java: the hash as Java's signed int.
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NOW_MS


class Seen(NamedTuple):
    offset: int
    record: Sent


class Place(NamedTuple):
    partition: int
    offset: int


class Tls(NamedTuple):
    """PEM files of a client: whom it trusts, and what it shows if it is asked."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


class Sasl(NamedTuple):
    """How a client proves who it is."""

    mechanism: str
    username: str
    password: str


class ProduceError(Exception):
    """A record was refused; `code` is Kafka's error code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class Tail(Protocol):
    """A consumer at the end of a partition."""

    def poll(self, seconds: float) -> list[Seen]:
        """Return what has come, waiting for it at most so long."""


class Client(ABC):
    """One kind of client, pointed at a broker."""

    name: str

    def __init__(self, servers: str, tls: Tls | None = None, sasl: Sasl | None = None) -> None:
        self.servers = servers
        self.tls = tls
        self.sasl = sasl

    @property
    def security_protocol(self) -> str:
        plain = "PLAINTEXT" if self.tls is None else "SSL"
        return plain if self.sasl is None else f"SASL_{plain}"

    @abstractmethod
    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None: ...

    @abstractmethod
    def delete_topic(self, topic: str) -> None: ...

    @abstractmethod
    def grow_topic(self, topic: str, partitions: int) -> None: ...

    @abstractmethod
    def delete_records(self, topic: str, before_offset: int) -> int:
        """Delete from partition 0; gives the new log start offset."""

    @abstractmethod
    def partition_counts(self) -> dict[str, int]: ...

    @abstractmethod
    def topic_error(self, topic: str) -> int:
        """Return the error code with which Metadata answers for a topic, 0 for none."""

    @abstractmethod
    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        partition: int | None = None,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> list[Place]:
        """Send all and wait for all; offsets mean nothing with acks=0.

        Raises:
            ProduceError: One was refused.
        """

    @abstractmethod
    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        """Read `count` records from an offset on, by `assign`."""

    @abstractmethod
    def tail(
        self, topic: str, *, min_bytes: int, wait_ms_max: int
    ) -> AbstractContextManager[Tail]: ...

    @abstractmethod
    def watermarks(self, topic: str, partition: int = 0) -> tuple[int, int]: ...

    @abstractmethod
    def offsets_at(self, topic: str, timestamps: Sequence[int]) -> list[int | None]:
        """Return the first offset in partition 0 of a record as young as each; None at the end."""


def client_kinds() -> list[type[Client]]:
    from tests.interop.clients.aio import AioKafka
    from tests.interop.clients.confluent import Confluent
    from tests.interop.clients.kafka_python import KafkaPython

    return [Confluent, KafkaPython, AioKafka]
