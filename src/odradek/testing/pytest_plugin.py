"""Fixtures for users' own tests; pytest finds them when the package is installed.

``odradek_broker``          one broker for the whole session
``odradek_topic``           the name of a fresh topic in it, for each test
``odradek_broker_factory``  starts brokers that are a test's own, and stops them after it
``odradek_cluster``         three nodes, healed after each test that breaks them
``odradek_cluster_factory`` starts clusters that are a test's own, and stops them after it

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
    from odradek.testing.cluster.cluster import Cluster

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


@pytest.fixture(scope="session")
def odradek_session_cluster(pytestconfig: pytest.Config) -> Iterator["Cluster"]:
    """The cluster behind ``odradek_cluster``; nothing is mended after those who take it here."""
    with _make_cluster(pytestconfig, {}) as cluster:
        yield cluster


@pytest.fixture
def odradek_cluster(odradek_session_cluster: "Cluster") -> Iterator["Cluster"]:
    """A cluster of three nodes in this process, the same one for all tests of a session.

    A test may kill, pause and cut off its nodes and break their disks: that is undone after it.
    Who moves clocks is better off with a cluster of their own.
    """
    yield odradek_session_cluster
    odradek_session_cluster.mend()


@pytest.fixture
def odradek_cluster_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., "Cluster"]]:
    """Starts a cluster with the arguments of ``Cluster``; it is stopped when the test is over."""
    with ExitStack() as started:
        yield lambda **arguments: started.enter_context(_make_cluster(pytestconfig, arguments))


def _make(pytestconfig: pytest.Config, arguments: dict[str, Any]) -> "Broker":
    from odradek.testing.broker import Broker

    return Broker(**_with_config(pytestconfig, arguments))


def _make_cluster(pytestconfig: pytest.Config, arguments: dict[str, Any]) -> "Cluster":
    from odradek.testing.cluster.cluster import Cluster

    return Cluster(**_with_config(pytestconfig, arguments))


def _with_config(pytestconfig: pytest.Config, arguments: dict[str, Any]) -> dict[str, Any]:
    config = {}
    for line in pytestconfig.getini("odradek_config"):
        name, is_pair, value = line.partition("=")
        if not is_pair:
            raise pytest.UsageError(f"odradek_config: {line!r} is not name=value")
        config[name.strip()] = value.strip()
    return {**arguments, "config": {**config, **(arguments.get("config") or {})}}
