"""kcat (kafkacat), the command line on top of librdkafka.

What kcat cannot say: timestamps, topics to create, records with neither key nor value, nameless
headers, and different headers in one run, so records go out in runs of equal headers.
"""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from confluent_kafka import KafkaError

from tests.interop.clients import DEADLINE_SECONDS, Place, ProduceError, Seen, Sent

KEY_END, RECORD_END = b"<end of key>", b"<end of record>"
ERROR_CODES_MAX = 200

_DELIVERED = re.compile(rb"delivered to partition (\d+) \(offset (\d+)\)")
_FAILED = re.compile(rb"(?:Delivery failed for message|ERROR: .*?|produce message): (.*)")
_HEAD = re.compile(rb"(\d+),(-?\d+),(-?\d+),(-?\d+),")


class Kcat:
    def __init__(self, program: Sequence[str], servers: str, *options: str) -> None:
        self._program = program
        self._servers = servers
        self._options = options

    def produce(
        self,
        topic: str,
        records: Iterable[Sent],
        *,
        partition: int | None = None,
        codec: str = "none",
        acks: int = -1,
        idempotent: bool = False,
    ) -> list[Place]:
        options = [
            *("-t", topic, "-X", f"compression.codec={codec}", "-X", f"acks={acks}"),
            *("-X", "message.max.bytes=10000000", "-X", "linger.ms=20"),
            *("-X", f"enable.idempotence={str(idempotent).lower()}", *self._options),
            *(() if partition is None else ("-p", str(partition))),
        ]
        places = []
        for (headers, has_null), alike in groupby(records, _run_key):
            places += self._produce_run(options, headers, has_null=has_null, records=alike)
        return places

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        shape = f"%o,%T,%K,%S,%k%s%h{RECORD_END.decode()}"
        done = self._run(
            *("-C", "-q", "-Z", "-t", topic, "-p", str(partition), "-o", str(start)),
            *("-c", str(count), "-f", shape),
        )
        return _parse(done.stdout)

    def list_metadata(self, topic: str) -> Any:
        return json.loads(self._run("-L", "-J", "-t", topic).stdout)

    def query_offset(self, topic: str, timestamp: int) -> str:
        return self._run("-Q", "-t", f"{topic}:0:{timestamp}").stdout.decode().strip()

    def _produce_run(
        self,
        options: Sequence[str],
        headers: Sequence[tuple[str, bytes | None]],
        *,
        has_null: bool,
        records: Iterable[Sent],
    ) -> list[Place]:
        delimiters = ("-K", KEY_END.decode(), "-D", RECORD_END.decode())
        named = [_header_option(name, value) for name, value in headers]
        flags: list[str | bytes] = ["-P", "-vvv", *options, *delimiters, *named]
        done = self._run(
            *flags,
            *(["-Z"] if has_null else []),
            stdin=RECORD_END.join(map(_line, records)),
        )
        return [Place(int(p), int(offset)) for p, offset in _DELIVERED.findall(done.stderr)]

    def _run(
        self, *arguments: str | bytes, stdin: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            [*self._program, "-b", self._servers, *arguments],
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            check=False,
        )
        if done.returncode or b"Delivery failed" in done.stderr:
            raise ProduceError(_code(done.stderr), done.stderr[-2000:].decode(errors="replace"))
        return done


def _run_key(record: Sent) -> tuple[tuple[tuple[str, bytes | None], ...], bool]:
    """With -Z kcat makes null of everything empty, so null and empty are apart."""
    return record.headers, record.value is None


def _header_option(name: str, value: bytes | None) -> bytes:
    return b"-H" + name.encode() + (b"" if value is None else b"=" + value)


def _line(record: Sent) -> bytes:
    key = b"" if record.key is None else record.key + KEY_END
    return key + (record.value or b"")


def _code(stderr: bytes) -> int:
    """Kafka's error code, which kcat says in librdkafka's words."""
    words = {KafkaError(code).str(): code for code in range(1, ERROR_CODES_MAX)}
    said = [text.decode().strip() for text in _FAILED.findall(stderr)]
    return next((words[text] for text in said if text in words), -1)


def _parse(printed: bytes) -> list[Seen]:
    found, position = [], 0
    while head := _HEAD.match(printed, position):
        offset, timestamp, key_size, value_size = map(int, head.groups())
        key, position = _take(printed, head.end(), key_size)
        value, position = _take(printed, position, value_size)
        end = printed.index(RECORD_END, position)
        headers = _headers(printed[position:end])
        found.append(Seen(offset, Sent(key, value, headers, timestamp)))
        position = end + len(RECORD_END)
    assert position == len(printed), printed[position : position + 100]
    return found


def _take(printed: bytes, position: int, size: int) -> tuple[bytes | None, int]:
    """What is null has size -1; -Z prints it, and what is empty, as the word NULL."""
    if size <= 0:
        return None if size else b"", position + len(b"NULL")
    return printed[position : position + size], position + size


def _headers(text: bytes) -> tuple[tuple[str, bytes | None], ...]:
    pairs = (pair.partition(b"=") for pair in text.split(b",") if pair)
    return tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs)
