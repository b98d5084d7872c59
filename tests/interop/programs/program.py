"""A client written in another language: a process that answers JSON lines with JSON lines.

Each program is told one thing to do per line and says how it went in one line:

    {"do": "create", "servers": …, "topic": …, "partitions": 3, "configs": {…}}
        → {}
    {"do": "produce", "servers": …, "topic": …, "records": […], "partition": 0 or null,
     "codec": "lz4", "acks": -1, "idempotent": true}
        → {"places": [[partition, offset]]}
    {"do": "open", …}, {"do": "send", …}, {"do": "close", …}
        the same with a producer that stays open
    {"do": "consume", "servers": …, "topic": …, "partition": 0, "start": 0, "count": 9}
        → {"records": […]}
    {"do": "group", "servers": …, "topic": …, "group": …, "protocol": "classic", "count": 9}
        the same as a member of a group, which commits what it read and leaves

A record is {"key", "value", "headers": [[name, value]], "timestamp"}, and one that was read has
"partition" and "offset"; bytes are base64 or null. What Kafka refuses is answered with
{"code": Kafka's error code, "message"}. Anything else the program says goes to stderr.
"""

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from tests.interop.clients import DEADLINE_SECONDS, Place, ProduceError, Seen, Sent
from tests.interop.kafka_peer.jvm import until_parent_ends
from tests.readable import is_readable

ANSWER_SECONDS_MAX = 3 * DEADLINE_SECONDS
ANSWER_BYTES_MAX = 64_000_000
END_SECONDS_MAX = 60


class Target(NamedTuple):
    """A broker, ours or Kafka itself; both lay out their data in the same way."""

    servers: str
    data_dir: Path


class Program:
    """Runs until its `with` block is left."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            [*until_parent_ends(), *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def ask(self, do: str, **fields: Any) -> Any:
        """Give the answer to one line.

        Raises:
            ProduceError: Kafka's error codes, as the client reports them.
        """
        asked = json.dumps({"do": do, **fields}).encode() + b"\n"
        _pipe(self._process.stdin).write(asked)
        _pipe(self._process.stdin).flush()
        answer = json.loads(self._read_line())
        if "code" in answer:
            raise ProduceError(answer["code"], answer["message"])
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _pipe(self._process.stdin).close()
        try:
            self._process.wait(END_SECONDS_MAX)
        finally:
            self._process.kill()
            self._process.wait()
            _pipe(self._process.stdout).close()

    def _read_line(self) -> bytes:
        output, said = _pipe(self._process.stdout).fileno(), bytearray()
        deadline = time.monotonic() + ANSWER_SECONDS_MAX
        while not said.endswith(b"\n"):
            ready = is_readable(output, deadline - time.monotonic())
            assert ready, f"no answer within {ANSWER_SECONDS_MAX} s"
            chunk = os.read(output, 1 << 20)
            assert chunk, "the program ended; its last words are on stderr"
            said += chunk
            assert len(said) <= ANSWER_BYTES_MAX
        return bytes(said)


class ProgramClient:
    """The program, pointed at a broker."""

    def __init__(self, program: Program, servers: str) -> None:
        self._program = program
        self._servers = servers

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        self._ask("create", topic=topic, partitions=partitions, configs=dict(configs or {}))

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
        answer = self._ask(
            "produce",
            topic=topic,
            records=[_as_json(record) for record in records],
            partition=partition,
            codec=codec,
            acks=acks,
            idempotent=idempotent,
        )
        return [Place(*place) for place in answer["places"]]

    @contextmanager
    def producer(self, topic: str) -> Iterator[Callable[[Iterable[Sent]], list[Place]]]:
        """Give the `send` of an idempotent producer of partition 0, which stays open."""
        settings = {"topic": topic, "partition": 0, "codec": "none", "acks": -1, "idempotent": True}

        def send(records: Iterable[Sent]) -> list[Place]:
            answer = self._ask("send", records=list(map(_as_json, records)), **settings)
            return [Place(*place) for place in answer["places"]]

        self._ask("open", **settings)
        try:
            yield send
        finally:
            self._ask("close")

    def consume(self, topic: str, count: int, *, partition: int = 0, start: int = 0) -> list[Seen]:
        answer = self._ask("consume", topic=topic, partition=partition, start=start, count=count)
        return [_from_json(record) for record in answer["records"]]

    def consume_as_member(
        self, topic: str, group: str, count: int, *, protocol: str = "classic"
    ) -> dict[int, list[Seen]]:
        """Read until `count` records are there, commit and leave; gives them by partition."""
        answer = self._ask("group", topic=topic, group=group, count=count, protocol=protocol)
        found: dict[int, list[Seen]] = {}
        for record in answer["records"]:
            found.setdefault(record["partition"], []).append(_from_json(record))
        return found

    def _ask(self, do: str, **fields: Any) -> Any:
        return self._program.ask(do, servers=self._servers, **fields)


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None
    return pipe


def _as_json(record: Sent) -> dict[str, Any]:
    return {
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
        "timestamp": record.timestamp,
    }


def _from_json(found: Mapping[str, Any]) -> Seen:
    headers = tuple((name, _bytes(value)) for name, value in found["headers"])
    sent = Sent(_bytes(found["key"]), _bytes(found["value"]), headers, found["timestamp"])
    return Seen(found["offset"], sent)


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
