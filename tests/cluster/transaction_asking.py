"""Where transactions have their coordinators, how they stand, and what of them may be read."""

from collections.abc import Collection
from typing import Any

from odradek.client import BlockingConsumer
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from odradek.protocol.generated.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.broker_connection import BrokerConnection
from tests.cluster.processes import ClusterNode, wait_until

SECONDS_MAX = 180
KEYS_MAX = 200
FIND_VERSION = 4
DESCRIBE_VERSION = 0


def coordinator_of(node: ClusterNode, key: str, key_type: int) -> int:
    """Return the broker that is the coordinator of a key, when there is one."""
    found = -1

    def is_known() -> bool:
        nonlocal found
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        with BrokerConnection(node.port) as connection:
            (answer,) = connection.ask(request, FindCoordinatorResponse, FIND_VERSION).coordinators
        found = answer.node_id
        return answer.error_code == ErrorCode.NONE

    wait_until(is_known, f"{key} has a coordinator", SECONDS_MAX)
    return found


def keys_by_coordinator(
    node: ClusterNode, brokers: Collection[int], prefix: str, key_type: int
) -> dict[int, str]:
    """Return a key for each of these brokers that it coordinates."""
    found: dict[int, str] = {}
    for number in range(KEYS_MAX):
        key = f"{prefix}-{number}"
        found.setdefault(coordinator_of(node, key, key_type), key)
        if len(found) == len(brokers):
            break
    assert len(found) == len(brokers), found
    return found


def state_of(node: ClusterNode, transactional_id: str) -> str:
    request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    with BrokerConnection(node.port) as connection:
        (found,) = connection.ask(
            request, DescribeTransactionsResponse, DESCRIBE_VERSION
        ).transaction_states
    return found.transaction_state or ErrorCode(found.error_code).name


def read_committed(servers: str, topic: str, partitions: int) -> list[bytes]:
    """Read all that is committed, when no transaction is open any more."""
    consumer: Any = BlockingConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    plain: Any = BlockingConsumer(bootstrap_servers=servers)
    values: list[bytes] = []
    places = [TopicPartition(topic, number) for number in range(partitions)]
    with consumer, plain:
        wait_until(
            lambda: consumer.end_offsets(places) == plain.end_offsets(places),
            f"no transaction is open in {topic}",
            SECONDS_MAX,
        )
        ends = consumer.end_offsets(places)
        consumer.assign(places)

        def poll() -> bool:
            for records in consumer.poll(0.5).values():
                values.extend(record.value for record in records)
            return all(consumer.position(each) >= ends[each] for each in places)

        wait_until(poll, f"{topic} is read", SECONDS_MAX)
    return values
