"""Admin on a bad day: coordinators that move, connections that break, brokers that are silent."""

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.partitions import OffsetSpec
from odradek.client.errors import BrokerError, ClosedError, KafkaTimeoutError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.testing.broker import Broker
from tests.interop.client.admin_session import with_admin

PARTITION = TopicPartition("orders", 0)


def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    async def work(admin: Admin) -> None:
        (await admin.alter_group_offsets("readers", {PARTITION: 3})).unwrap()
        with (
            broker.fail("OffsetCommit", "NOT_COORDINATOR") as moved,
            broker.fail("FindCoordinator", "COORDINATOR_NOT_AVAILABLE", times=2) as unknown,
        ):
            (await admin.alter_group_offsets("readers", {PARTITION: 5})).unwrap()
            assert (moved.fired, unknown.fired) == (1, 2)
        with broker.fail("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS", times=2) as loading:
            found = await admin.list_group_offsets(["readers"])
            assert found["readers"].unwrap()[PARTITION].offset == 5
            assert loading.fired == 2

    with Broker(topics=["orders"], memory=True) as broker:
        with_admin(broker.bootstrap_servers, work, retry_backoff_ms=1)


@pytest.mark.slow
def test_one_bad_partition_does_not_hold_up_its_neighbours() -> None:
    other = TopicPartition("payments", 0)

    async def work(admin: Admin) -> None:
        with broker.fail("ListOffsets", "NOT_LEADER_OR_FOLLOWER", topic="orders", times=None):
            found = await admin.list_offsets(
                {PARTITION: OffsetSpec.LATEST, other: OffsetSpec.LATEST}, timeout_ms=10_000
            )
        assert found[other].unwrap().offset == 0
        with pytest.raises(KafkaTimeoutError, match="NOT_LEADER_OR_FOLLOWER") as late:
            found.unwrap()
        assert isinstance(late.value.__cause__, BrokerError)

    with Broker(topics=["orders", "payments"], memory=True) as broker:
        with_admin(broker.bootstrap_servers, work, retry_backoff_ms=1)


def test_a_broken_connection_is_made_again() -> None:
    async def work(admin: Admin) -> None:
        with broker.drop("ListGroups", times=2) as broken:
            assert await admin.list_groups() == []
        assert broken.fired == 2
        with broker.drop("CreateTopics", after=True):
            results = await admin.create_topics(["made"])
        # The first try was carried out, and its answer was lost.
        assert isinstance(results["made"].error, BrokerError)
        assert results["made"].error.code is ErrorCode.TOPIC_ALREADY_EXISTS

    with Broker(memory=True) as broker:
        with_admin(broker.bootstrap_servers, work, retry_backoff_ms=1, reconnect_backoff_ms=1)


def test_a_broker_that_does_not_answer_costs_no_more_than_the_deadline() -> None:
    async def work(admin: Admin) -> None:
        with broker.delay("DescribeCluster", 300), pytest.raises(KafkaTimeoutError):
            await admin.describe_cluster(timeout_ms=200)
        assert await admin.list_groups() == []

    with Broker(memory=True) as broker:
        with_admin(broker.bootstrap_servers, work)


def test_a_controller_that_changed_is_asked_where_it_is_now() -> None:
    async def work(admin: Admin) -> None:
        with broker.fail("CreateTopics", "NOT_CONTROLLER", times=2) as elsewhere:
            (await admin.create_topics(["orders"])).unwrap()
        assert elsewhere.fired == 2

    with Broker(memory=True) as broker:
        with_admin(broker.bootstrap_servers, work, retry_backoff_ms=1)


def test_what_is_closed_stays_closed() -> None:
    async def work(admin: Admin) -> None:
        await admin.close()
        with pytest.raises(ClosedError):
            await admin.list_topics()

    with Broker(memory=True) as broker:
        with_admin(broker.bootstrap_servers, work)
