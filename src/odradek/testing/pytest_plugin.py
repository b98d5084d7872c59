"""Fixtures for users' own tests; pytest finds them when the package is installed.

``odradek_broker``  one broker for the whole session
``odradek_topic``   the name of a fresh topic in it, for each test
"""

from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker import Broker

_numbers = count(1)


@pytest.fixture(scope="session")
def odradek_broker() -> Iterator["Broker"]:
    """A broker in this process; ``odradek_broker.bootstrap_servers`` is where clients find it."""
    # Imported when first used: every pytest run of every user imports this module.
    from odradek.testing.broker import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture
def odradek_topic(odradek_broker: "Broker") -> str:
    """The name of a topic with one partition that no other test has."""
    name = f"test-{next(_numbers)}"
    odradek_broker.create_topic(name)
    return name
