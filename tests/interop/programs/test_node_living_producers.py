"""Producers that stay open while the broker dies or their topic is replaced under them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.clients.confluent import Confluent
from tests.interop.node_process import NodeProcess
from tests.interop.programs.contract import NUMBERED, first_places, seen
from tests.interop.programs.program import Program, ProgramClient, Target
from tests.interop.programs.witness import wait_until

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["java", "franz-go", "sarama", "kafkajs"])
def test_a_killed_broker_comes_back_and_the_producer_goes_on(
    program: Callable[[str], Program], tmp_path: Path, name: str
) -> None:
    running = program(name)
    # The records are of 2023: retention would take them 30 s after the node has started.
    with NodeProcess(tmp_path, ["--override=log.retention.ms=-1"]) as node:
        witness = Confluent(node.bootstrap_servers)
        witness.create_topic("t")
        with ProgramClient(running, node.bootstrap_servers).producer("t") as send:
            assert first_places(send(NUMBERED)) == {0: 0}
            node.kill()
            node.start()
            assert first_places(send(NUMBERED)) == {0: 10}
        assert witness.consume("t", 20) == seen([*NUMBERED, *NUMBERED])
        assert witness.watermarks("t") == (0, 20)


# franz-go is not among them: it gives up with UNKNOWN_TOPIC_ID, whatever the broker.
@pytest.mark.parametrize("name", ["java", "sarama", "kafkajs"])
def test_a_topic_is_made_anew_and_the_producer_goes_on(
    program: Callable[[str], Program], target: Target, witness: Confluent, topic: str, name: str
) -> None:
    witness.create_topic(topic)
    with ProgramClient(program(name), target.servers).producer(topic) as send:
        send([*NUMBERED, *NUMBERED])
        witness.delete_topic(topic)
        # A broker that has not heard of it yet would take the records, and forget them.
        wait_until(lambda: topic not in witness.partition_counts())
        witness.create_topic(topic)
        assert first_places(send(NUMBERED)) == {0: 0}
    assert witness.consume(topic, 10) == seen(NUMBERED)
    assert witness.watermarks(topic) == (0, 10)
