"""kcat, which most people reach for first to see what is in a topic."""

import zlib
from typing import ClassVar

import pytest

from tests.interop.clients.confluent import Confluent
from tests.interop.programs.contract import (
    NUMBERED,
    RECORDS,
    ConsumerContract,
    KeyContract,
    NullHeaderContract,
)
from tests.interop.programs.kcat import Kcat
from tests.interop.programs.kcat_package import kcat_program
from tests.interop.programs.program import Target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def kcat() -> list[str]:
    return kcat_program()


class TestKcat(NullHeaderContract, ConsumerContract):
    records: ClassVar = [each for each in RECORDS if (each.key, each.value) != (None, None)]
    has_timestamps: ClassVar = False

    @pytest.fixture
    def client(self, kcat: list[str], target: Target) -> Kcat:
        return Kcat(kcat, target.servers)

    @staticmethod
    def home(key: bytes, partitions: int) -> int:
        """Return where librdkafka's default partitioner sends a key."""
        return zlib.crc32(key) % partitions

    def test_a_topic_is_listed(self, client: Kcat, witness: Confluent, topic: str) -> None:
        witness.create_topic(topic, 2)
        listed = client.list_metadata(topic)
        (found,) = listed["topics"]
        assert found["topic"] == topic
        assert [each["partition"] for each in found["partitions"]] == [0, 1]
        assert {each["leader"] for each in found["partitions"]} == {1}
        assert [each["name"] for each in listed["brokers"]] == [witness.servers]

    def test_an_offset_is_found_by_timestamp(
        self, client: Kcat, witness: Confluent, topic: str
    ) -> None:
        witness.create_topic(topic)
        witness.produce(topic, NUMBERED, partition=0)
        wanted = NUMBERED[3].timestamp + 1
        assert client.query_offset(topic, wanted) == f"{topic} [0] offset 4"


class TestKcatWithJavasPartitioner(KeyContract):
    @pytest.fixture
    def client(self, kcat: list[str], target: Target) -> Kcat:
        return Kcat(kcat, target.servers, "-X", "topic.partitioner=murmur2_random")
