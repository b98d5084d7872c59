"""Our tools and Kafka's with ``--bootstrap-controller``, against our controllers and Kafka's."""

import re
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from odradek.cli.main import main
from tests.cluster.flavours import address
from tests.cluster.processes import Cluster
from tests.interop.kafka_peer import KafkaQuorum, kafka_tool

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.usefixtures("kafka_libs")]


@pytest.fixture(scope="module", params=["kafka", "odradek"])
def controllers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "kafka":
        real: KafkaQuorum = request.getfixturevalue("kafka_controller")
        yield real.bootstrap_controllers
        return
    with Cluster(tmp_path_factory.mktemp("ours"), {1: "controller"}) as cluster:
        cluster.start()
        yield address(cluster.nodes[1].places["CONTROLLER"].relay_port)


def said_by_ours(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, without_offsets(result.stdout)


def said_by_kafkas(*arguments: str) -> tuple[int, str]:
    result = kafka_tool(*arguments, check=False)
    return result.returncode, without_offsets(result.stdout)


def without_offsets(text: str) -> str:
    """The metadata log grows by itself."""
    return re.sub(r"(  Epoch:|HighWatermark:) *\d+$", r"\1", text, flags=re.MULTILINE)


def test_both_tools_say_the_same(controllers: str) -> None:
    to = ("--bootstrap-controller", controllers)
    for asked in [
        ("cluster", "cluster-id", *to),
        ("cluster", "list-endpoints", *to),
        ("configs", *to, "--alter", "--broker-defaults", "--add-config", "log.roll.ms=54321"),
        ("configs", *to, "--describe", "--broker-defaults"),
        ("features", *to, "describe"),
        ("metadata-quorum", *to, "describe", "--status"),
    ]:
        assert said_by_ours(*asked) == said_by_kafkas(*asked), asked


def test_reassignments_are_listed_by_controllers_that_move_partitions(
    kafka_controller: KafkaQuorum,
) -> None:
    to = ("--bootstrap-controller", kafka_controller.bootstrap_controllers)
    asked = ("reassign-partitions", *to, "--list")
    assert said_by_ours(*asked) == said_by_kafkas(*asked)
