"""A cluster goes from Kafka to Odradek and back while its clients work: ``examples/migration``."""

from pathlib import Path

import pytest

from examples.migration.journey import Journey

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]

SEED = 15


def test_no_client_notices_that_all_nodes_are_replaced_and_come_back(tmp_path: Path) -> None:
    """One node of each kind; ``python -m examples.migration`` has three."""
    assert Journey(tmp_path, 1, SEED).run() == []
