"""The two Go clients that most of the Go world uses: franz-go and Sarama."""

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

FNV_OFFSET_BASIS = 2166136261
FNV_PRIME = 16777619


class TestFranzGo(TopicContract, NullHeaderContract, TimestampContract, ConsumerContract):
    @pytest.fixture
    def client(self, program: Callable[[str], Program], target: Target) -> ProgramClient:
        return ProgramClient(program("franz-go"), target.servers)


class TestSarama(TopicContract, NullHeaderContract, TimestampContract, ConsumerContract):
    @pytest.fixture
    def client(self, program: Callable[[str], Program], target: Target) -> ProgramClient:
        return ProgramClient(program("sarama"), target.servers)

    @staticmethod
    def home(key: bytes, partitions: int) -> int:
        """FNV-1a as a signed number, Go's remainder, and its sign dropped."""
        hashed = FNV_OFFSET_BASIS
        for byte in key:
            hashed = (hashed ^ byte) * FNV_PRIME & 0xFFFFFFFF
        signed = hashed - (1 << 32) if hashed >> 31 else hashed
        return abs(signed) % partitions
