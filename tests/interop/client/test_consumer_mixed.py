"""One group of our consumer, Java's and librdkafka's: they agree, whoever leads."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from odradek.client.consumer import Consumer, TopicPartition
from tests.interop.client.consumer_session import fresh, make_topic, partitions_of, run
from tests.interop.group_members import Kind, Member, MemberProcess

PARTITIONS = 9
SECONDS_MAX = 300
SESSION_MS = 300_000  # nobody is taken for dead because the machine had other things to do
JAVA = pytest.param("java", marks=[pytest.mark.kafka, pytest.mark.slow])

Start = Callable[[str], MemberProcess]


@pytest.fixture
def start(cluster_address: str, request: pytest.FixtureRequest) -> Iterator[Start]:
    with ExitStack() as stack:

        def begin(client: str) -> MemberProcess:
            if client == "java":
                request.getfixturevalue("kafka_libs")
            return stack.enter_context(MemberProcess(Kind(client), cluster_address))

        yield begin


def ours(servers: str, group: str, assignor: str) -> Consumer:
    return Consumer(
        bootstrap_servers=servers,
        group_id=group,
        partition_assignment_strategy=assignor,
        heartbeat_interval_ms=100,
        session_timeout_ms=SESSION_MS,
        metadata_max_age_ms=500,
        fetch_max_wait_ms=50,
        auto_offset_reset="earliest",
    )


async def settle(topic: str, consumers: list[Consumer], members: list[Member]) -> None:
    """Poll ours until everybody together has each partition once, as fair as can be."""
    least, extra = divmod(PARTITIONS, len(consumers) + len(members))
    while True:
        for consumer in consumers:
            await consumer.poll(0.02)
        if not consumers:
            await asyncio.sleep(0.02)
        assert not any(each.errors for each in members), [each.errors for each in members]
        shares = [set(each.assignment()) for each in consumers]
        shares += [{TopicPartition(*p) for p in set(each.assigned)} for each in members]
        if sorted(p for share in shares for p in share) != partitions_of(topic, PARTITIONS):
            continue
        if all(least <= len(share) <= least + bool(extra) for share in shares):
            return


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("client", ["confluent", JAVA])
def test_a_mixed_group_agrees_whoever_leads(
    cluster_address: str, start: Start, client: str, assignor: str
) -> None:
    topic, group = make_topic(cluster_address, PARTITIONS), fresh("mixed")
    process = start(client)
    chosen = None if client == "java" and assignor == "range" else assignor

    async def scenario() -> None:
        async with ours(cluster_address, group, assignor) as first:
            first.subscribe([topic])
            await settle(topic, [first], [])  # we lead
            theirs = process.join(group, [topic], assignor=chosen, session_ms=SESSION_MS)
            await settle(topic, [first], [theirs])
            async with ours(cluster_address, group, assignor) as second:
                second.subscribe([topic])
                await settle(topic, [first, second], [theirs])
                await first.close()  # now somebody else leads
                await settle(topic, [second], [theirs])
        async with ours(cluster_address, group, assignor) as third:
            await settle(topic, [], [theirs])  # they lead
            third.subscribe([topic])
            await settle(topic, [third], [theirs])
            await asyncio.to_thread(theirs.leave)
            await settle(topic, [third], [])

    run(scenario, SECONDS_MAX)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_all_three_share(cluster_address: str, start: Start, assignor: str) -> None:
    topic, group = make_topic(cluster_address, PARTITIONS), fresh("mixed")
    java, rdkafka = start("java"), start("confluent")

    async def scenario() -> None:
        async with ours(cluster_address, group, assignor) as consumer:
            consumer.subscribe([topic])
            chosen = None if assignor == "range" else assignor
            members = [
                java.join(group, [topic], assignor=chosen, session_ms=SESSION_MS),
                rdkafka.join(group, [topic], assignor=assignor, session_ms=SESSION_MS),
            ]
            await settle(topic, [consumer], members)

    run(scenario, SECONDS_MAX)
