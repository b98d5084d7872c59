"""Fixtures for users' own tests; pytest finds them when the package is installed.

``odradek_broker``          one broker for the whole session
``odradek_topic``           the name of a fresh topic in it, for each test
``odradek_broker_factory``  starts brokers that are a test's own, and stops them after it

The ini option ``odradek_config`` holds lines like ``num.partitions=3`` for all of these brokers.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

# Imported when first used: every pytest run of every user imports this module.
if TYPE_CHECKING:
    from odradek.testing.broker import Broker

_numbers = count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("odradek_config", "configs of the brokers, name=value", "linelist", [])


@pytest.fixture(scope="session")
def odradek_broker(pytestconfig: pytest.Config) -> Iterator["Broker"]:
    """A broker in this process; ``odradek_broker.bootstrap_servers`` is where clients find it.

    It is everybody's: who arms faults or moves its clock is better off with one of their own.
    """
    with _make(pytestconfig, {}) as broker:
        yield broker


@pytest.fixture
def odradek_topic(odradek_broker: "Broker") -> str:
    """The name of a topic with one partition that no other test has."""
    name = f"test-{next(_numbers)}"
    odradek_broker.create_topic(name)
    return name


@pytest.fixture
def odradek_broker_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., "Broker"]]:
    """Starts a broker with the arguments of ``Broker``; it is stopped when the test is over."""
    with ExitStack() as started:
        yield lambda **arguments: started.enter_context(_make(pytestconfig, arguments))


def _make(pytestconfig: pytest.Config, arguments: dict[str, Any]) -> "Broker":
    from odradek.testing.broker import Broker

    config = {}
    for line in pytestconfig.getini("odradek_config"):
        name, is_pair, value = line.partition("=")
        if not is_pair:
            raise pytest.UsageError(f"odradek_config: {line!r} is not name=value")
        config[name.strip()] = value.strip()
    return Broker(**{**arguments, "config": {**config, **(arguments.get("config") or {})}})
