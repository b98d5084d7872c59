"""Fixtures of the tests that need other people's software."""

from pathlib import Path

import pytest

from tests.interop.kafka_peer import PeerUnavailableError, resolve_jars


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """Kafka's jars; the first use on a machine lets Maven download them (56 MB)."""
    try:
        return resolve_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
