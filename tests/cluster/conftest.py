"""The servers that clusters of processes are made of: Odradek's, or Kafka's.

``make cluster-kafka`` runs the tests with Kafka's, which shows that they ask for what Kafka does.
That takes longer than their own purpose is worth in every run.
"""

import os

import pytest

from tests.cluster.flavours import Flavour, Kafka, Odradek
from tests.interop.kafka_peer import PeerUnavailableError, resolve_jars

FLAVOURS = os.environ.get("ODRADEK_CLUSTER_FLAVOURS", "odradek").split(",")


@pytest.fixture(scope="session", params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Flavour:
    if request.param == "odradek":
        return Odradek()
    try:
        resolve_jars()
    except PeerUnavailableError as missing:
        pytest.skip(str(missing))
    return Kafka()
