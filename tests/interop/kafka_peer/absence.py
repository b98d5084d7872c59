"""A pytest plugin: where no real Kafka can be had, the tests that ask for one are skipped.

Its jars need Java and Maven. On a machine without them a test may find out in a fixture or on its
way, and says what is missing; on one that has both, nothing is skipped.
"""

from collections.abc import Iterator

import pytest

from tests.interop.kafka_peer.jars import PeerUnavailableError


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Iterator[None]:
    yield from _skipping()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield from _skipping()


def _skipping() -> Iterator[None]:
    try:
        return (yield)
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
