"""A consumer that its group has expelled commits nothing until it has joined again.

Each test expels a consumer that has read one record of ten, lets another member commit 10 and
leave, and then has the expelled one commit in one of the ways there are. The group is empty by
then, so a coordinator would take a commit without a member id: the group would go back to 1.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.consumer import (
    CommitFailedError,
    Consumer,
    FencedError,
    OffsetAndMetadata,
    RebalanceInProgressError,
    RebalanceListener,
    TopicPartition,
)
from odradek.client.consumer.records import Offsets
from odradek.client.errors import BrokerError, KafkaError
from odradek.client.producer import Producer
from odradek.testing.broker import Broker
from tests.interop.client.consumer_session import poll_until, produce, read, run

PLACE = TopicPartition("t", 0)
ONE = {PLACE: OffsetAndMetadata(1)}
CONFIGS = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
}
pytestmark = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 1}, config=CONFIGS, memory=True) as started:
        produce(started.bootstrap_servers, "t", [b"%d" % n for n in range(10)])
        yield started


@pytest.fixture
def group(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


def member(broker: Broker, group: str, protocol: str, **settings: Any) -> Consumer:
    if protocol == "classic":
        settings = {"heartbeat_interval_ms": 50, **settings}
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **settings}
    servers = broker.bootstrap_servers
    return Consumer(bootstrap_servers=servers, group_id=group, group_protocol=protocol, **settings)


@asynccontextmanager
async def expelled(
    broker: Broker,
    group: str,
    protocol: str,
    listener: RebalanceListener | None = None,
    **settings: Any,
) -> AsyncIterator[Consumer]:
    """Give a consumer that has read one record and did not poll again in time."""
    async with member(broker, group, protocol, max_poll_interval_ms=1_000, **settings) as late:
        late.subscribe("t", listener)
        await read(late, 1)
        async with member(broker, group, protocol) as other:
            other.subscribe("t")
            assert len(await read(other, 10)) == 10
            await other.commit()
        await until_empty(broker, group)
        yield late


async def until_empty(broker: Broker, group: str) -> None:
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        while (await admin.describe_groups([group]))[group].unwrap().members:
            await asyncio.sleep(0.02)


async def committed(broker: Broker, group: str) -> int:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as asking:
        found = (await asking.committed([PLACE]))[PLACE]
        assert found is not None
        return found.offset


async def rejoin(late: Consumer) -> None:
    before = late.group_metadata()
    await poll_until(lambda: late.group_metadata() != before and PLACE in late.assignment(), late)


async def commit_again(late: Consumer, offsets: Offsets) -> None:
    """Commit as a member; on a busy machine it may take several attempts to poll in time."""
    while True:
        await rejoin(late)
        try:
            return await late.commit(offsets)
        except CommitFailedError:
            continue


def test_its_commit_fails_and_the_group_stays_where_it_is(
    broker: Broker, group: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with expelled(broker, group, protocol) as late:
            with pytest.raises(CommitFailedError, match=r"max\.poll\.interval\.ms"):
                await late.commit()
            with pytest.raises(CommitFailedError):
                await late.commit(ONE)
            assert await committed(broker, group) == 10
            await commit_again(late, {PLACE: OffsetAndMetadata(7)})
            assert await committed(broker, group) == 7

    run(scenario)


def test_a_commit_made_before_the_member_is_back_is_not_made_up_for(
    broker: Broker, group: str, protocol: str
) -> None:
    async def scenario() -> None:
        heard: list[KafkaError | None] = []

        def hear(_: Offsets, failure: KafkaError | None) -> None:
            heard.append(failure)

        async with expelled(broker, group, protocol) as late:
            late.commit_soon(callback=hear)
            late.commit_soon(ONE, hear)
            await rejoin(late)
            await poll_until(lambda: len(heard) == 2, late)
            assert all(isinstance(each, CommitFailedError) for each in heard)
            assert await committed(broker, group) == 10

    run(scenario)


def test_a_commit_under_way_ends_with_the_membership(
    broker: Broker, group: str, protocol: str
) -> None:
    """The coordinator takes no commits until the member was expelled and is back."""

    async def scenario() -> None:
        heard: list[KafkaError | None] = []
        refused = broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
        # So long a back-off that the commit is not tried again while the consumer is no member.
        settings = {"max_poll_interval_ms": 500, "retry_backoff_ms": 2_000}
        async with member(broker, group, protocol, **settings) as late:
            late.subscribe("t")
            await read(late, 1)
            with refused as fault:
                late.commit_soon(ONE, lambda _, failure: heard.append(failure))
                await until_empty(broker, group)
                assert fault.fired
                await rejoin(late)
            await poll_until(lambda: bool(heard), late)
            assert isinstance(heard[0], CommitFailedError)
            assert (await late.committed([PLACE]))[PLACE] is None

    run(scenario)


def test_its_automatic_commit_fails(
    broker: Broker, group: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "odradek.client")

    async def scenario() -> None:
        settings: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
        async with expelled(broker, group, protocol, **settings) as late:
            await rejoin(late)
            assert await committed(broker, group) == 10

    run(scenario)
    assert "did not poll for 1000 ms (max.poll.interval.ms)" in caplog.text


def test_closing_it_commits_nothing(broker: Broker, group: str, protocol: str) -> None:
    heard: list[str] = []

    class Listener(RebalanceListener):
        def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            heard.append("revoked")

        def on_lost(self, partitions: Collection[TopicPartition]) -> None:
            heard.append("lost")

    async def scenario() -> None:
        settings: dict[str, Any] = {"enable_auto_commit": True, "auto_commit_interval_ms": 600_000}
        async with expelled(broker, group, protocol, Listener(), **settings) as late:
            await late.close()
            assert await committed(broker, group) == 10

    run(scenario)
    assert heard == ["lost"]


def test_a_listener_that_commits_fails_once(broker: Broker, group: str, protocol: str) -> None:
    """``on_lost`` is ``on_revoked`` if a listener has only that: its commit comes out of poll."""

    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
            await consumers[0].commit(ONE)

    consumers: list[Consumer] = []

    async def scenario() -> None:
        async with expelled(broker, group, protocol, Listener()) as late:
            consumers.append(late)
            with pytest.raises(CommitFailedError):
                await poll_until(lambda: False, late)
            await rejoin(late)
            assert await committed(broker, group) == 10

    run(scenario)


def test_its_metadata_is_good_for_no_transaction(broker: Broker, group: str, protocol: str) -> None:
    async def scenario() -> None:
        async with (
            expelled(broker, group, protocol) as late,
            Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=group) as sender,
        ):
            await sender.init_transactions()
            with pytest.raises(BrokerError, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION|STALE"):
                async with sender.transaction():
                    await sender.send_offsets_to_transaction(ONE, late.group_metadata())
            assert await committed(broker, group) == 10

    run(scenario)


def test_one_that_never_joined_commits_nothing_either(
    broker: Broker, group: str, protocol: str
) -> None:
    async def scenario() -> None:
        async with member(broker, group, protocol) as consumer:
            consumer.subscribe("t")
            with pytest.raises((CommitFailedError, RebalanceInProgressError)):
                await consumer.commit(ONE)
            assert (await consumer.committed([PLACE]))[PLACE] is None
            # Outside of a group's assignment nobody has to be a member.
            await consumer.unsubscribe()
            consumer.assign([PLACE])
            await consumer.commit(ONE)
            assert await committed(broker, group) == 1

    run(scenario)


def test_a_fenced_one_commits_nothing(broker: Broker, group: str, protocol: str) -> None:
    async def scenario() -> None:
        settings = {"group_instance_id": "i"}
        beat = "Heartbeat" if protocol == "classic" else "ConsumerGroupHeartbeat"
        async with member(broker, group, protocol, **settings) as old:
            old.subscribe("t")
            await read(old, 1)
            with broker.fail(beat, "FENCED_INSTANCE_ID"), pytest.raises(FencedError):
                await poll_until(lambda: False, old)
            with pytest.raises((CommitFailedError, FencedError)):
                await old.commit(ONE)
            assert (await old.committed([PLACE]))[PLACE] is None

    run(scenario)


def test_waiting_for_records_is_polling(broker: Broker, group: str, protocol: str) -> None:
    async def scenario() -> None:
        async with member(broker, group, protocol, max_poll_interval_ms=1_000) as idle:
            idle.subscribe("t")
            await read(idle, 10)
            before = idle.group_metadata()
            assert await idle.poll(3) == {}
            await idle.commit()
            assert idle.group_metadata() == before

    run(scenario)
