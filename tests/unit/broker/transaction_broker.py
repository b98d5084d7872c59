"""A broker with transactions, as tests look into it from outside and from inside."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import T0

SMALL = {"transaction.state.log.num.partitions": "1", "offsets.topic.num.partitions": "1"}
DAY_SECONDS = 86_400


@contextmanager
def running(
    config: dict[str, str] | None = None, data_dir: Path | None = None
) -> Iterator[tuple[Broker, BrokerConnection]]:
    folder = None if data_dir is None else str(data_dir)
    with (
        Broker(
            topics={"t": 2}, config=config or SMALL, data_dir=folder, memory=data_dir is None
        ) as broker,
        BrokerConnection(broker.port) as connection,
    ):
        yield broker, connection


def state_of(connection: BrokerConnection, transactional_id: str = "tx") -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    (found,) = connection.ask(request, DescribeTransactionsResponse).transaction_states
    return found.transaction_state or ErrorCode(found.error_code).name


def offsets(broker: Broker, partition: TopicPartition = T0) -> tuple[int, int]:
    """Return the last stable offset and the end of the log of a broker that rests."""
    log = broker.node.broker.replicas.leader(partition).log
    return log.last_stable_offset, log.log_end_offset
