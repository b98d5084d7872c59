"""kafkajs reads, always as a member of a group."""

from collections.abc import Callable

import pytest

from tests.interop.programs.contract import ConsumerContract
from tests.interop.programs.program import Program, ProgramClient, Target

pytestmark = pytest.mark.slow


class TestKafkajsConsumer(ConsumerContract):
    @pytest.fixture
    def client(self, program: Callable[[str], Program], target: Target) -> ProgramClient:
        return ProgramClient(program("kafkajs"), target.servers)
