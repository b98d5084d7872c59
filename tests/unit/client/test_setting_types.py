"""Settings have one form in all clients, and type checkers know their names."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.client import (
    Admin,
    BlockingAdmin,
    BlockingConsumer,
    BlockingProducer,
    ConfigurationError,
    Consumer,
    Producer,
)
from tools import setting_types

SECONDS_MAX = 600
ROOT = Path(__file__).parents[3]
CLIENTS: list[Any] = [
    Admin,
    BlockingAdmin,
    Consumer,
    BlockingConsumer,
    Producer,
    BlockingProducer,
]
SNIPPET = """\
from odradek.client import Admin, BlockingConsumer, BlockingProducer, Consumer, Producer
from odradek.client import ProducerSettings, as_settings

Producer(bootstrap_servers="a:1", linger_mss=5)
Producer(settings={"bootstrap.servers": "a:1", "linger.mss": 5})
Consumer("t", bootstrap_servers=["a:1"], group="g")
Consumer(settings={"bootstrap.servers": "a:1", "group": "g"})
Admin(bootstrap_server="a:1")
Admin(settings={"linger.ms": 5})
BlockingProducer(linger_ms=5.5)
BlockingConsumer(fetch_min_byte=1)
wrong: ProducerSettings = {"acks": "all", "bathc.size": 5}

Producer(settings={"bootstrap.servers": "a:1", "linger.ms": "5", "acks": 1})
Producer(bootstrap_servers="a:1", enable_idempotence=False)
Consumer("t", settings={"bootstrap.servers": "a:1", "group.id": "g"}, max_poll_records=5)
BlockingProducer({"bootstrap.servers": "a:1"}, retries=3)
loaded: dict[str, str] = {}
Admin(settings=as_settings(loaded))
"""

TYPED_SNIPPET = """\
import json
from typing import Any, assert_type

from odradek.client import BlockingConsumer, Consumer, ConsumerRecord


class Order:
    def __init__(self, data: bytes) -> None: ...


class Decimals:
    def deserialize(self, topic: str, data: bytes, /) -> float: ...  # type: ignore[empty-body]


def text(data: bytes) -> str:
    return data.decode()


async def read() -> None:
    plain = Consumer("t", bootstrap_servers="a:1")
    assert_type(plain, Consumer[bytes, bytes])
    typed = Consumer("t", key_deserializer=text, value_deserializer=Order, bootstrap_servers="a:1")
    assert_type(typed, Consumer[str, Order])
    async for record in typed:
        assert_type(record, ConsumerRecord[str, Order])
        assert_type(record.key, str | None)
    for records in (await typed.poll()).values():
        assert_type(records, list[ConsumerRecord[str, Order]])
    blocking = BlockingConsumer("t", value_deserializer=Decimals(), bootstrap_servers="a:1")
    assert_type(next(blocking).value, float | None)
    assert_type(Consumer("t", value_deserializer=json.loads), Consumer[bytes, Any])


def take(consumer: Consumer, record: ConsumerRecord) -> None:
    assert_type(record.value, bytes | None)


record: ConsumerRecord[str, Order]
record.value.total  # error: Order has none
Consumer[str, Order]("t", key_deserializer=Order)  # error: not a str
"""


@pytest.mark.parametrize("client", CLIENTS)
def test_settings_are_a_mapping_keywords_or_both(client: Any) -> None:
    client(settings={"bootstrap.servers": "a:1"})
    client(bootstrap_servers="a:1")
    client(settings={"bootstrap.servers": "a:1"}, client_id="me")
    with pytest.raises(ConfigurationError, match=r"did you mean 'bootstrap\.servers'"):
        client(settings={"bootstrap.server": "a:1"})
    with pytest.raises(ConfigurationError, match=r"client\.id is given twice"):
        client(settings={"bootstrap.servers": "a:1", "client.id": "me"}, client_id="you")


@pytest.mark.parametrize("client", [Consumer, BlockingConsumer])
def test_settings_in_the_place_of_topics_are_answered_with_where_they_go(client: Any) -> None:
    with pytest.raises(TypeError, match=r"topics are names, not dict; .* settings=…"):
        client({"bootstrap.servers": "a:1"}, bootstrap_servers="a:1")


def test_an_admin_begins_with_brokers_or_controllers() -> None:
    with pytest.raises(ConfigurationError, match=r"bootstrap.servers and bootstrap.controllers"):
        Admin(bootstrap_servers="a:1", bootstrap_controllers="a:2")
    with pytest.raises(ConfigurationError, match=r"bootstrap.controllers\) is missing"):
        Admin()
    with pytest.raises(ConfigurationError, match=r"bootstrap.controllers names no server"):
        Admin(bootstrap_controllers="")
    with pytest.raises(ConfigurationError, match=r"unknown setting"):
        Producer({"bootstrap.controllers": "a:1"})  # type: ignore[arg-type]


def test_the_types_are_what_the_definitions_give() -> None:
    assert setting_types.PATH.read_text() == setting_types.write(), (
        "run: python -m tools.setting_types"
    )


@pytest.mark.slow
def test_a_type_checker_finds_names_that_do_not_exist(tmp_path: Path) -> None:
    found, told = checked(tmp_path, SNIPPET)
    assert found == set(range(4, 13)), told
    assert 'did you mean "linger_ms"?' in told


@pytest.mark.slow
def test_a_type_checker_knows_what_the_records_of_a_consumer_hold(tmp_path: Path) -> None:
    found, told = checked(tmp_path, TYPED_SNIPPET)
    lines = TYPED_SNIPPET.splitlines()
    assert found == {at for at, line in enumerate(lines, 1) if "# error" in line}, told


def checked(folder: Path, program: str) -> tuple[set[int], str]:
    """Return the lines in which mypy finds something, and all that it says."""
    file = folder / "snippet.py"
    file.write_text(program)
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    told = ran.stdout.splitlines()
    found = {int(line.split(":")[1]) for line in told if ": error:" in line}
    return found, ran.stdout + ran.stderr
