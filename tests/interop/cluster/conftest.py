"""Real Kafka controllers, shared by the tests that only add to what is in their log."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from odradek.core.ids import Uuid
from odradek.raft.messages import ReplicaKey
from tests.cluster.processes import Cluster
from tests.interop.cluster.observer import Observer
from tests.interop.cluster.our_controller import OurController
from tests.interop.cluster.registrations import Asked
from tests.interop.kafka_peer import KafkaQuorum
from tests.interop.kafka_peer.node import CLUSTER_ID

OBSERVER_ID: Final = 9_000
SETTINGS: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "a secret of the tests",
    # Nobody is fenced because the machine stood still for a while.
    "broker.session.timeout.ms": "600000",
}


@pytest.fixture(scope="session")
def kafka_controller(
    kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaQuorum]:
    """One real controller, its voters recorded in the log."""
    scram = ["--add-scram", "SCRAM-SHA-256=[name=formatted,password=secret]"]
    folder = tmp_path_factory.mktemp("controller")
    with KafkaQuorum(folder, overrides=SETTINGS, format_arguments=scram) as quorum:
        yield quorum


_observers = count(OBSERVER_ID)


def new_replica() -> ReplicaKey:
    number = next(_observers)
    return ReplicaKey(number, Uuid(number.to_bytes(16, "big")))


@pytest.fixture
def observer(kafka_controller: KafkaQuorum) -> Iterator[Observer]:
    """A new replica of that controller's log, with nothing fetched yet."""
    ports = [each.port for each in kafka_controller.voters]
    with Observer(ports, CLUSTER_ID, new_replica()) as created:
        yield created


@pytest.fixture(scope="session")
def our_controllers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three controllers of ours, as processes, their voters recorded in the log."""
    roles = dict.fromkeys((1, 2, 3), "controller")
    settings = {"broker.session.timeout.ms": SETTINGS["broker.session.timeout.ms"]}
    folder = tmp_path_factory.mktemp("our-controllers")
    cluster = Cluster(folder, roles, quorum="dynamic", configs=settings)
    cluster.cluster_id = CLUSTER_ID
    with cluster:
        cluster.start()
        yield cluster


@pytest.fixture
def our_observer(our_controllers: Cluster) -> Iterator[Observer]:
    """A new replica of our controllers' log, with one of them active."""
    ports = [each.controller_port for each in our_controllers.controllers]
    with Observer(ports, CLUSTER_ID, new_replica()) as created:
        created.wait_for_controller(other_than=None)
        yield created


class Site(NamedTuple):
    """Controllers, by an observer of their log."""

    is_kafka: bool
    observer: Observer
    ports: dict[int, int]
    """Where each says that it listens."""


@pytest.fixture(params=["kafka", "odradek"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """What is asked of it is asked of real controllers and of ours."""
    if request.param == "kafka":
        quorum: KafkaQuorum = request.getfixturevalue("kafka_controller")
        ports = {each.node_id: each.port for each in quorum.voters}
        yield Site(True, request.getfixturevalue("observer"), ports)
        return
    cluster: Cluster = request.getfixturevalue("our_controllers")
    ports = {each.id: each.places["CONTROLLER"].relay_port for each in cluster.controllers}
    yield Site(False, request.getfixturevalue("our_observer"), ports)


@pytest.fixture
def controller(site: Site) -> Observer:
    return site.observer


@pytest.fixture(params=["kafka", "odradek"])
def planner(request: pytest.FixtureRequest) -> Asked:
    """A controller that answers requests, beside Kafka's: brokers are only registered with it."""
    if request.param == "kafka":
        real: Observer = request.getfixturevalue("observer")
        return real
    return OurController(CLUSTER_ID)
