"""The consumer in a group: sharing, listeners, commits; with both protocols and both clusters."""

import asyncio
import re
from collections.abc import Callable, Collection
from typing import Any

import pytest

from odradek.client.consumer import (
    CommitFailedError,
    Consumer,
    FencedError,
    OffsetAndMetadata,
    RebalanceListener,
    SubscriptionPattern,
    TopicPartition,
)
from odradek.client.errors import ConfigurationError
from odradek.client.settings import as_settings
from tests.interop.client.consumer_session import (
    add_partitions,
    fill,
    fresh,
    make_topic,
    partitions_of,
    poll_until,
    produce,
    read,
    run,
)

PROTOCOLS = ["classic", "consumer"]
ASSIGNORS = ["range", "roundrobin", "sticky", "cooperative-sticky"]


class Listener(RebalanceListener):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, frozenset[TopicPartition]]] = []

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("assigned", frozenset(partitions)))

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        await asyncio.sleep(0)
        self.heard.append(("revoked", frozenset(partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.heard.append(("lost", frozenset(partitions)))


def member(address: str, group: str, protocol: str = "classic", **settings: Any) -> Consumer:
    if protocol == "classic":
        # A coordinator that hears nothing for a session tells a member that it has lost all. No
        # test here waits for that, and a machine may stand still for longer than 45 s.
        settings = {"heartbeat_interval_ms": 100, "session_timeout_ms": 600_000, **settings}
    return Consumer(
        settings=as_settings(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "metadata.max.age.ms": 300,
                "fetch.max.wait.ms": 50,
                "max.poll.interval.ms": 600_000,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
    )


def is_shared(topic: str, partitions: int, *consumers: Consumer) -> Callable[[], bool]:
    """Whether these have all partitions between them, as fair as can be."""

    def check() -> bool:
        shares = [each.assignment() for each in consumers]
        least, extra = divmod(partitions, len(consumers))
        return sorted(p for share in shares for p in share) == partitions_of(
            topic, partitions
        ) and all(least <= len(share) <= least + bool(extra) for share in shares)

    return check


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_was(cluster_address: str, protocol: str) -> None:
    topic, group = make_topic(cluster_address, 2), fresh("group")
    fill(cluster_address, topic, 10, 2)

    async def scenario() -> None:
        async with member(cluster_address, group, protocol) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 20)
            metadata = consumer.group_metadata()
            assert metadata.group_id == group
            assert metadata.generation_id > 0
            assert metadata.member_id
        # It left: closing has committed, and the next one need not wait for its session to end.
        produce(cluster_address, topic, [b"new"])
        async with member(cluster_address, group, protocol) as consumer:
            consumer.subscribe([topic])
            assert [each.value for each in await read(consumer, 1)] == [b"new"]
            committed = await consumer.committed(partitions_of(topic, 2))
            assert [each and each.offset for each in committed.values()] == [10, 10]

    run(scenario)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_members_share_and_take_over(cluster_address: str, assignor: str) -> None:
    topic, group = make_topic(cluster_address, 6), fresh("group")
    fill(cluster_address, topic, 5, 6)

    async def scenario() -> None:
        settings: dict[str, Any] = {"partition_assignment_strategy": assignor}
        listeners = [Listener(), Listener()]
        async with member(cluster_address, group, **settings) as first:
            first.subscribe([topic], listeners[0])
            records = await poll_until(is_shared(topic, 6, first), first)
            async with member(cluster_address, group, **settings) as second:
                second.subscribe([topic], listeners[1])
                records += await poll_until(is_shared(topic, 6, first, second), first, second)
                kept = first.assignment()
            records += await poll_until(is_shared(topic, 6, first), first)
            while len(records) < 30:
                records += await poll_until(lambda: True, first) or await read(first, 1)
        assert len({(each.partition, each.offset) for each in records}) == 30
        check_story(listeners[0], topic, kept, is_cooperative=assignor == "cooperative-sticky")

    run(scenario)


def check_story(
    listener: Listener, topic: str, kept: Collection[TopicPartition], *, is_cooperative: bool
) -> None:
    """What the first member heard: all of it, part of it taken, all of it again."""
    everything = frozenset(partitions_of(topic, 6))
    told = [each for each in listener.heard if each[1]]
    taken = everything - frozenset(kept) if is_cooperative else everything
    assert told[:2] == [("assigned", everything), ("revoked", taken)]
    assert not any(what == "lost" for what, _ in told)
    if is_cooperative:
        assert told[2] == ("assigned", taken)
    assert told[-1] == ("revoked", everything), "closing revokes what there is"


def test_members_of_the_consumer_protocol_share_and_take_over(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address, 6), fresh("group")

    async def scenario() -> None:
        listener = Listener()
        async with member(cluster_address, group, "consumer") as first:
            first.subscribe([topic], listener)
            await poll_until(is_shared(topic, 6, first), first)
            async with member(cluster_address, group, "consumer") as second:
                second.subscribe([topic])
                await poll_until(is_shared(topic, 6, first, second), first, second)
                kept = first.assignment()
            await poll_until(is_shared(topic, 6, first), first)
        everything = frozenset(partitions_of(topic, 6))
        told = [each for each in listener.heard if each[1]]
        assert told[:2] == [("assigned", everything), ("revoked", everything - kept)]
        assert told[-1] == ("revoked", everything)

    run(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_pattern_follows_the_topics(cluster_address: str, protocol: str) -> None:
    prefix, group = fresh("pattern"), fresh("group")
    topic = make_topic(cluster_address)

    async def scenario() -> None:
        async with member(cluster_address, group, protocol) as consumer:
            consumer.subscribe(re.compile(f"{topic}|{prefix}.*"))
            await poll_until(lambda: consumer.assignment() == {TopicPartition(topic, 0)}, consumer)
            assert consumer.subscription() == {topic}
            produce(cluster_address, f"{prefix}-new", [b"v"])  # creates it
            await poll_until(
                lambda: TopicPartition(f"{prefix}-new", 0) in consumer.assignment(), consumer
            )

    run(scenario)


def test_the_coordinator_looks_after_a_pattern(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address, 2), fresh("group")

    async def scenario() -> None:
        async with member(cluster_address, group, "consumer") as consumer:
            consumer.subscribe(SubscriptionPattern(f"{topic}.*"))
            everything = frozenset(partitions_of(topic, 2))
            await poll_until(lambda: consumer.assignment() == everything, consumer)

    run(scenario)


def test_more_partitions_make_the_group_rebalance(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")

    async def scenario() -> None:
        async with member(cluster_address, group) as consumer:
            consumer.subscribe([topic])
            await poll_until(lambda: len(consumer.assignment()) == 1, consumer)
            add_partitions(cluster_address, topic, 3)
            await poll_until(lambda: len(consumer.assignment()) == 3, consumer)

    run(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_another_subscription_takes_effect(cluster_address: str, protocol: str) -> None:
    first, second, group = make_topic(cluster_address), make_topic(cluster_address), fresh("group")

    async def scenario() -> None:
        async with member(cluster_address, group, protocol) as consumer:
            consumer.subscribe([first])
            await poll_until(lambda: consumer.assignment() == {TopicPartition(first, 0)}, consumer)
            consumer.subscribe([second])
            await poll_until(lambda: consumer.assignment() == {TopicPartition(second, 0)}, consumer)
            await consumer.unsubscribe()
            assert consumer.assignment() == frozenset()
            consumer.assign(partitions_of(first, 1))
            assert await consumer.position(TopicPartition(first, 0)) == 0

    run(scenario)


@pytest.mark.seed_row("0.16")
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_on_request_with_metadata_and_soon(cluster_address: str, protocol: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    fill(cluster_address, topic, 10, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with member(cluster_address, group, protocol, enable_auto_commit=False) as consumer:
            consumer.subscribe([topic])
            await read(consumer, 4)
            await consumer.commit()
            assert await committed() == OffsetAndMetadata(4, "", 0)
            await consumer.commit({partition: OffsetAndMetadata(2, "why not")})
            assert (await committed())[:2] == (2, "why not")
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            consumer.commit_soon(
                {partition: OffsetAndMetadata(3)}, lambda _, error: done.set_result(error)
            )
            assert await done is None
            await read(consumer, 1)
        assert (await committed())[0] == 3, "nothing is committed by itself"

    async def committed() -> OffsetAndMetadata:
        async with Consumer(bootstrap_servers=cluster_address, group_id=group) as witness:
            found = (await witness.committed([partition]))[partition]
            assert found is not None
            return found

    run(scenario)


def test_automatic_commits_follow_what_was_handed_out(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    fill(cluster_address, topic, 10, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with member(cluster_address, group, auto_commit_interval_ms=50) as consumer:
            consumer.subscribe([topic])
            async for record in consumer:
                await asyncio.sleep(0.06)  # time for a commit, but not of this one: it is not done
                found = (await consumer.committed([partition]))[partition]
                assert found is None or found.offset <= record.offset
                if record.offset == 9:
                    break
            while found is None or found.offset < 9:  # it is committed as we go, sooner or later
                assert not await consumer.poll(0.05)
                found = (await consumer.committed([partition]))[partition]

    run(scenario)


@pytest.mark.seed_row("4.10")
def test_a_committed_offset_is_stronger_than_the_reset(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    fill(cluster_address, topic, 10, 1)
    partition = TopicPartition(topic, 0)

    async def scenario() -> None:
        async with member(cluster_address, group) as consumer:
            consumer.assign([partition])
            await consumer.commit({partition: OffsetAndMetadata(7)})
        async with member(cluster_address, group, auto_offset_reset="latest") as consumer:
            consumer.assign([partition])
            assert [each.offset for each in await read(consumer, 3)] == [7, 8, 9]

    run(scenario)


def test_a_member_that_does_not_poll_loses_its_partitions(
    cluster_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = make_topic(cluster_address, 2), fresh("group")
    fill(cluster_address, topic, 3, 2)

    async def scenario() -> None:
        listener = Listener()
        async with (
            member(cluster_address, group, max_poll_interval_ms=2_000) as lazy,
            member(cluster_address, group) as busy,
        ):
            lazy.subscribe([topic], listener)
            await read(lazy, 1)
            busy.subscribe([topic])
            # The lazy one is not polled meanwhile.
            await poll_until(lambda: len(busy.assignment()) == 2, busy)
            with pytest.raises(CommitFailedError):
                await lazy.commit()
            await poll_until(is_shared(topic, 2, lazy, busy), lazy, busy)
            assert ("lost", frozenset(partitions_of(topic, 2))) in listener.heard
        assert f"group {group}: 2 partitions are lost: the application did not poll" in caplog.text

    run(scenario)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_static_member_comes_back_to_what_it_had(cluster_address: str, protocol: str) -> None:
    topic, group = make_topic(cluster_address, 4), fresh("group")

    async def scenario() -> None:
        async with member(cluster_address, group, protocol, group_instance_id="one") as one:
            one.subscribe([topic])
            async with member(cluster_address, group, protocol, group_instance_id="two") as two:
                two.subscribe([topic])
                await poll_until(is_shared(topic, 4, one, two), one, two)
                had, kept = two.assignment(), one.assignment()
            async with member(cluster_address, group, protocol, group_instance_id="two") as again:
                again.subscribe([topic])
                await poll_until(lambda: again.assignment() == had, one, again)
                assert one.assignment() == kept

    run(scenario)


def test_two_with_the_same_instance_id_do_not_live_together(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")

    async def scenario() -> None:
        async with (
            member(cluster_address, group, group_instance_id="i") as old,
            member(cluster_address, group, group_instance_id="i") as new,
        ):
            old.subscribe([topic])
            await poll_until(lambda: bool(old.assignment()), old)
            new.subscribe([topic])
            await poll_until(lambda: bool(new.assignment()), new)
            with pytest.raises(FencedError):
                await poll_until(lambda: False, old)

    run(scenario)


def test_a_listener_may_seek(cluster_address: str) -> None:
    topic, group = make_topic(cluster_address), fresh("group")
    fill(cluster_address, topic, 10, 1)

    async def scenario() -> None:
        async with member(cluster_address, group) as consumer:

            class Seeking(RebalanceListener):
                async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
                    for each in partitions:
                        assert await consumer.position(each) == 0
                        consumer.seek(each, 8)

            consumer.subscribe([topic], Seeking())
            assert [each.offset for each in await read(consumer, 2)] == [8, 9]

    run(scenario)


def test_only_one_task_polls(cluster_address: str) -> None:
    topic = make_topic(cluster_address)

    async def scenario() -> None:
        async with Consumer(bootstrap_servers=cluster_address) as consumer:
            consumer.assign(partitions_of(topic, 1))
            polling = asyncio.create_task(consumer.poll(10))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="another task"):
                await consumer.poll(0)
            polling.cancel()
            await asyncio.gather(polling, return_exceptions=True)
            assert await consumer.poll(0) == {}

    run(scenario)


def test_the_classic_protocol_knows_no_patterns_of_the_coordinator(cluster_address: str) -> None:
    with pytest.raises(ConfigurationError, match=r"group\.protocol"):
        member(cluster_address, "g").subscribe(SubscriptionPattern("a.*"))
