"""The brokers that client programs are pointed at, and the programs, each started once."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from itertools import count

import pytest

from tests.interop.kafka_peer import KafkaNode
from tests.interop.node_process import NodeProcess
from tests.interop.programs.commands import command
from tests.interop.programs.program import Program, Target
from tests.interop.programs.witness import Witness

pytest.register_assert_rewrite("tests.interop.programs.contract")

OVERRIDES = {
    # A group of one need not wait for others who might join, nor for its next heartbeat.
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    # The records are of 2023: retention would take them from under a test, 30 s after the start.
    "log.retention.ms": "-1",
}
_numbers = count(1)


# The real Kafka is there to prove the tests: what it does not do, they must not ask for.
@pytest.fixture(
    scope="session", params=["odradek", pytest.param("kafka", marks=[pytest.mark.kafka])]
)
def target(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Target]:
    data_dir = tmp_path_factory.mktemp(request.param) / "data"
    if request.param == "kafka":
        request.getfixturevalue("kafka_libs")
        with KafkaNode(data_dir, OVERRIDES) as kafka:
            yield Target(kafka.bootstrap_servers, data_dir)
            kafka.kill()  # nobody reads what is left: a clean stop flushes every log, one by one
    else:
        options = [f"--override={name}={value}" for name, value in OVERRIDES.items()]
        with NodeProcess(data_dir, options) as node:
            yield Target(node.bootstrap_servers, data_dir)


@pytest.fixture(scope="session")
def program() -> Iterator[Callable[[str], Program]]:
    """Gives the running program of a client, started when first asked for."""
    with ExitStack() as stack:

        @cache
        def start(client: str) -> Program:
            return stack.enter_context(Program(command(client)))

        yield start


@pytest.fixture
def topic() -> str:
    """A name that no other test uses."""
    return f"topic-{next(_numbers)}"


@pytest.fixture
def witness(target: Target) -> Witness:
    return Witness(target.servers)
