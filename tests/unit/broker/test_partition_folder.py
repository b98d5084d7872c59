"""What lies in the folder of a partition, and what consumers leave there: nothing."""

from pathlib import Path

import pytest

from odradek.client import BlockingConsumer
from odradek.protocol.generated.produce import ProduceResponse
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.record_requests import PRODUCE_VERSION, produce_request
from tests.transaction_requests import TransactionalProducer


def produce(connection: BrokerConnection, *values: bytes) -> None:
    answer = connection.ask(produce_request("t", *values), ProduceResponse, PRODUCE_VERSION)
    assert not answer.responses[0].partition_responses[0].error_code


@pytest.mark.seed_row("1.1", "3.3")
def test_it_has_kafkas_files(tmp_path: Path) -> None:
    """A segment that is full, with a transaction that was aborted, and the next one."""
    with Broker(data_dir=str(tmp_path)) as broker:
        broker.create_topic("t", segment_bytes="1048576")
        with BrokerConnection(broker.port) as connection:
            producer = TransactionalProducer(connection).begin()
            assert not producer.produce(b"aborted")
            assert not producer.end(commit=False)
            for _ in range(3):
                produce(connection, bytes(500_000))
    # Offset 1 is the marker of the abort.
    first, second = f"{0:020d}", f"{4:020d}"
    assert sorted(path.name for path in (tmp_path / "t-0").iterdir()) == sorted(
        [
            *(first + kind for kind in (".log", ".index", ".timeindex", ".txnindex")),
            *(second + kind for kind in (".log", ".index", ".timeindex", ".snapshot")),
            f"{5:020d}.snapshot",  # of the clean stop
            "leader-epoch-checkpoint",
            "partition.metadata",
        ]
    )


@pytest.mark.seed_row("0.1")
def test_consumers_leave_nothing_in_the_log_that_they_read(tmp_path: Path) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        with BrokerConnection(broker.port) as connection:
            produce(connection, b"a", b"b")
        before = contents(tmp_path / "t-0")
        for number in range(3):
            with BlockingConsumer(
                "t",
                bootstrap_servers=broker.bootstrap_servers,
                group_id=f"group-{number}",
                auto_offset_reset="earliest",
            ) as consumer:
                assert sum(map(len, consumer.poll(60).values())) == 2
                consumer.commit()
        assert contents(tmp_path / "t-0") == before


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}
