"""Fixtures of the tests that need other people's software."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.kafka_peer import PeerUnavailableError, resolve_jars
from tests.interop.tool_program import ToolProgram


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """Kafka's jars; the first use on a machine lets Maven download them (56 MB)."""
    try:
        return resolve_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def tool_program(kafka_libs: Path) -> Iterator[ToolProgram]:
    with ToolProgram() as started:
        yield started
