"""A node on a disk that is really full: reads go on, writes are refused, and it comes back."""

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Timer
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from odradek.protocol.generated.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker_connection import BrokerConnection
from tests.interop.clients import Sent
from tests.interop.clients.confluent import Confluent
from tests.interop.node_process import NodeProcess
from tests.interop.ports import free_ports
from tests.interop.small_disk import fill, small_disk
from tests.storage_batches import make_batch

DISK_MIB = 12
VALUE_BYTES = 50_000
SECONDS_MAX = 120
PRODUCE_VERSION = 12  # the last one that names topics


class SmallNode:
    """A node on a small disk, and what it acknowledged."""

    def __init__(self, disk: Path, log_file: Path) -> None:
        self.disk = disk
        self.metrics_port = free_ports(1)[0]
        options = ["--metrics-port", str(self.metrics_port)]
        options += ["--override", "offsets.topic.num.partitions=1"]
        options += ["--override", "log.segment.bytes=1048576"]
        self.process = NodeProcess(disk / "data", options, log_file=log_file)
        self.log_file = log_file
        self.acknowledged: list[bytes] = []
        self.other_program = disk / "other-program"
        self._sent = 0

    @property
    def client(self) -> Confluent:
        return Confluent(self.process.bootstrap_servers)

    def produce(self, topic: str = "t") -> tuple[ErrorCode, str | None]:
        """Send one batch, once; remember it if it was acknowledged."""
        self._sent += 1
        value = b"%08d" % self._sent * (VALUE_BYTES // 8)
        batch = make_batch([value], timestamp=time.time_ns() // 1_000_000)
        data = PartitionProduceData(index=0, records=bytes(batch))
        topics = [TopicProduceData(name=topic, partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics)
        with BrokerConnection(self.process.port) as connection:
            answer = connection.ask(request, ProduceResponse, PRODUCE_VERSION)
        (told,) = answer.responses[0].partition_responses
        if not told.error_code and topic == "t":
            self.acknowledged.append(value)
        return ErrorCode(told.error_code), told.error_message

    def produce_until_full(self) -> str:
        code, message = ErrorCode.NONE, None
        while code is ErrorCode.NONE:
            code, message = self.produce()
        assert code is ErrorCode.KAFKA_STORAGE_ERROR
        assert message is not None
        return message

    def check_reads(self) -> None:
        seen = self.client.consume("t", len(self.acknowledged))
        assert [each.record.value for each in seen] == self.acknowledged

    def health(self) -> tuple[int, str]:
        try:
            with urlopen(f"http://127.0.0.1:{self.metrics_port}/healthz") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()

    def metric(self, name: str) -> float:
        with urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        (line,) = [each for each in lines if each.startswith(f"{name}{{")]
        return float(line.rpartition(" ")[2])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[SmallNode]:
    """Have 3 MB of a topic ``other``, and as much of another program's."""
    with small_disk(tmp_path / "disk", DISK_MIB) as disk:
        node = SmallNode(disk, tmp_path / "log")
        node.other_program.write_bytes(bytes(3_000_000))
        with node.process:
            node.client.create_topic("t")
            node.client.create_topic("other")
            for _ in range(3_000_000 // VALUE_BYTES):
                assert node.produce("other")[0] is ErrorCode.NONE
            yield node


def wait_until(what: str, is_so: Callable[[], bool]) -> float:
    """Return how many seconds it took."""
    begun = time.monotonic()
    while not is_so():
        assert time.monotonic() - begun < SECONDS_MAX, what
        time.sleep(0.05)
    return time.monotonic() - begun


def create_topic(node: SmallNode) -> tuple[ErrorCode, str | None]:
    topic = CreatableTopic(name="new", num_partitions=3, replication_factor=1)
    with BrokerConnection(node.process.port) as connection:
        answer = connection.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse)
    return ErrorCode(answer.topics[0].error_code), answer.topics[0].error_message


@pytest.mark.slow
def test_a_full_disk_refuses_writes_goes_on_with_reads_and_comes_back(
    node: SmallNode,
) -> None:
    assert node.health() == (200, "ok\n")
    said = node.produce_until_full()
    assert f"log directory {node.disk}/data is full (No space left on device)" in said
    assert len(node.acknowledged) > 50
    node.check_reads()
    status, reason = node.health()
    assert (status, "is full" in reason) == (503, True)
    assert node.metric("odradek_log_directory_full") == 1
    code, message = create_topic(node)
    assert (code, "is full" in (message or "")) == (ErrorCode.KAFKA_STORAGE_ERROR, True)
    assert "new" not in node.client.partition_counts()

    node.client.delete_topic("other")
    seconds = wait_until("writes are accepted", lambda: node.produce()[0] is ErrorCode.NONE)
    print(f"writes were accepted {seconds:.1f} s after the deletion")
    assert node.health() == (200, "ok\n")
    assert node.metric("odradek_log_directory_full") == 0
    assert node.metric("odradek_log_directory_full_times_total") == 1
    assert create_topic(node)[0] is ErrorCode.NONE
    node.check_reads()
    assert node.process.end(signal.SIGTERM) == 0
    told = node.log_file.read_text()
    assert told.count("log directory full") == told.count("log directory has space again") == 1
    assert "clean=true" in told
    node.process.start()
    node.check_reads()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_node_stops_and_starts_on_a_full_disk_and_comes_back_when_others_leave(
    node: SmallNode, number: signal.Signals
) -> None:
    node.produce_until_full()
    other = node.other_program
    fill(other)
    for _ in range(2):
        code = node.process.end(number)
        assert code == (0 if number is signal.SIGTERM else -number)
        fill(other)
        node.process.start()
        node.check_reads()
        assert node.produce()[0] is ErrorCode.KAFKA_STORAGE_ERROR
        node.check_reads()
    assert ("clean=true" in node.log_file.read_text()) == (number is signal.SIGTERM)
    assert node.client.partition_counts()["other"] == 1
    other.unlink()
    seconds = wait_until("writes are accepted", lambda: node.produce()[0] is ErrorCode.NONE)
    print(f"writes were accepted {seconds:.1f} s after there was space")
    node.check_reads()


@pytest.mark.slow
def test_a_producer_waits_for_space_and_loses_nothing(node: SmallNode) -> None:
    node.produce_until_full()
    other = node.other_program
    fill(other)
    values = [b"%d" % number for number in range(20)]
    Timer(3, other.unlink).start()  # long after the first try
    receipts = node.client.produce("t", [Sent(b"k", value) for value in values])
    assert [each.offset for each in receipts] == [len(node.acknowledged) + n for n in range(20)]
    node.acknowledged += values
    node.check_reads()
