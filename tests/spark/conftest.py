"""One Spark session for all tests of a worker: it takes seconds to start and 1 GB of memory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from odradek.spark import session
from tests.interop.kafka_peer import PeerUnavailableError
from tests.spark.connector import connector_jars
from tests.spark.quick_java import QUICK_JAVA

CONF = {"spark.sql.shuffle.partitions": "2", "spark.driver.memory": "1g"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    try:
        jars = connector_jars()
    except (PeerUnavailableError, RuntimeError):
        jars = []  # told by the tests that need them
    conf = {**CONF, "spark.jars": ",".join(map(str, jars))}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("JAVA_TOOL_OPTIONS", QUICK_JAVA)
        started = session("odradek-tests", master="local[2]", conf=conf)
    yield started
    started.stop()


@pytest.fixture(scope="session")
def kafka_connector() -> list[Path]:
    """The jars behind ``format("kafka")``, which the session has where they are to be had."""
    try:
        return connector_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
