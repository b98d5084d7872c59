"""Apache Kafka's own Java client, unmodified."""

from collections.abc import Callable

import pytest

from tests.interop.programs.contract import (
    ConsumerContract,
    NullHeaderContract,
    TimestampContract,
    TopicContract,
)
from tests.interop.programs.program import Program, ProgramClient, Target

pytestmark = pytest.mark.slow


class TestJava(TopicContract, NullHeaderContract, TimestampContract, ConsumerContract):
    @pytest.fixture
    def client(self, program: Callable[[str], Program], target: Target) -> ProgramClient:
        return ProgramClient(program("java"), target.servers)
