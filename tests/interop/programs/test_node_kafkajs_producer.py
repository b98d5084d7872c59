"""kafkajs makes topics and writes. How it reads, which needs groups, is in test_node_kafkajs.py."""

from collections.abc import Callable

import pytest

from tests.interop.programs.contract import ProducerContract, TimestampContract, TopicContract
from tests.interop.programs.program import Program, ProgramClient, Target

pytestmark = pytest.mark.slow


class TestKafkajs(TopicContract, ProducerContract, TimestampContract):
    @pytest.fixture
    def client(self, program: Callable[[str], Program], target: Target) -> ProgramClient:
        return ProgramClient(program("kafkajs"), target.servers)
