"""Makes producers' cores."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from tests.unit.client.producer.producer_core import Core


@pytest.fixture
def make_core() -> Iterator[Callable[..., Core]]:
    loop = asyncio.new_event_loop()
    yield lambda **settings: Core(loop, **settings)
    loop.close()
