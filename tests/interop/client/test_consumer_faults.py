"""The consumer while things break: refusals, lost connections, a killed node, a cut log."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.client.consumer import (
    CommitFailedError,
    Consumer,
    ConsumerRecord,
    CorruptRecordError,
    RebalanceListener,
    TopicPartition,
)
from odradek.client.errors import BrokerError, KafkaError, KafkaTimeoutError
from odradek.testing.broker import Broker
from tests.interop.client.consumer_session import (
    fill,
    partitions_of,
    poll_until,
    produce,
    read,
    run,
)
from tests.interop.node_process import NodeProcess

GROUP_CONFIGS = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.min.session.timeout.ms": "1000",
}
HERE = Path(__file__).parent


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(topics={"t": 2}, config=GROUP_CONFIGS) as started:
        yield started


def reader(broker: Broker, **settings: Any) -> Consumer:
    settings = {"retry_backoff_ms": 10, "fetch_max_wait_ms": 50, **settings}
    return Consumer(bootstrap_servers=broker.bootstrap_servers, **settings)


def member(broker: Broker, protocol: str = "classic", **settings: Any) -> Consumer:
    if protocol == "classic":
        settings = {"heartbeat_interval_ms": 50, **settings}
    settings = {"auto_offset_reset": "earliest", "group_protocol": protocol, **settings}
    return reader(broker, group_id="g", **settings)


@pytest.mark.seed_row("2.5")
@pytest.mark.parametrize(
    "error",
    [
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_SERVER_ERROR",
        "FETCH_SESSION_ID_NOT_FOUND",
        "INVALID_FETCH_SESSION_EPOCH",
    ],
)
def test_fetching_goes_on_after_a_refusal(broker: Broker, error: str) -> None:
    fill(broker.bootstrap_servers, "t", 10, 2)

    async def scenario() -> None:
        async with reader(broker) as consumer:
            consumer.assign(partitions_of("t", 2))
            consumer.seek_to_beginning()
            with broker.fail("Fetch", error, times=3) as fault:
                records = await read_through(consumer, 20)
                assert fault.fired >= 1
            assert len({(each.partition, each.offset) for each in records}) == 20

    run(scenario)


async def read_through(consumer: Consumer, number: int) -> list[ConsumerRecord]:
    """Read on whatever is raised: what the consumer cannot mend it says, and then goes on."""
    records: list[ConsumerRecord] = []
    while len(records) < number:
        try:
            for share in (await consumer.poll(1)).values():
                records += share
        except BrokerError:
            continue
    return records


@pytest.mark.seed_row("2.5")
def test_a_refusal_for_good_is_raised(broker: Broker) -> None:
    async def scenario() -> None:
        async with reader(broker) as consumer:
            consumer.assign(partitions_of("t", 1))
            with (
                broker.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", times=None),
                pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"),
            ):
                await consumer.poll(60)

    run(scenario)


@pytest.mark.seed_row("2.5")
def test_what_is_tried_again_is_raised_if_one_wants_to_know(broker: Broker) -> None:
    fill(broker.bootstrap_servers, "t", 3, 1)

    async def scenario() -> None:
        async with reader(broker, surface_retriable_errors=True) as consumer:
            consumer.assign(partitions_of("t", 1))
            consumer.seek_to_beginning()
            with (
                broker.fail("Fetch", "NOT_LEADER_OR_FOLLOWER", times=1),
                pytest.raises(BrokerError, match="NOT_LEADER_OR_FOLLOWER"),
            ):
                await read(consumer, 3)
            assert len(await read(consumer, 3)) == 3, "it has gone on by itself"

    run(scenario)


@pytest.mark.parametrize(
    ("api", "error"),
    [
        ("ListOffsets", "NOT_LEADER_OR_FOLLOWER"),
        ("ListOffsets", "LEADER_NOT_AVAILABLE"),
        ("OffsetFetch", "COORDINATOR_LOAD_IN_PROGRESS"),
        ("OffsetFetch", "NOT_COORDINATOR"),
        ("FindCoordinator", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "COORDINATOR_NOT_AVAILABLE"),
        ("JoinGroup", "NOT_COORDINATOR"),
        ("JoinGroup", "UNKNOWN_MEMBER_ID"),
        ("JoinGroup", "REBALANCE_IN_PROGRESS"),
        ("SyncGroup", "REBALANCE_IN_PROGRESS"),
        ("SyncGroup", "ILLEGAL_GENERATION"),
        ("SyncGroup", "UNKNOWN_MEMBER_ID"),
        ("SyncGroup", "NOT_COORDINATOR"),
    ],
)
def test_a_group_is_joined_through_refusals(broker: Broker, api: str, error: str) -> None:
    fill(broker.bootstrap_servers, "t", 5, 2)

    async def scenario() -> None:
        with broker.fail(api, error, times=2) as fault:
            # The coordinator waits for the member that it pretends not to know.
            async with member(broker, session_timeout_ms=1000) as consumer:
                consumer.subscribe("t")
                assert len(await read(consumer, 10)) == 10
                assert fault.fired == 2

    run(scenario)


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"])
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_member_the_group_does_not_know_has_lost_its_partitions(
    broker: Broker, error: str, assignor: str
) -> None:
    fill(broker.bootstrap_servers, "t", 5, 2)

    async def scenario() -> None:
        lost: list[TopicPartition] = []

        class Listener(RebalanceListener):
            def on_lost(self, partitions: Collection[TopicPartition]) -> None:
                lost.extend(partitions)

        settings: dict[str, Any] = {"partition_assignment_strategy": assignor}
        async with member(broker, session_timeout_ms=1000, **settings) as consumer:
            consumer.subscribe("t", Listener())
            await read(consumer, 10)
            with broker.fail("Heartbeat", error):
                await poll_until(lambda: {*lost} == {*partitions_of("t", 2)}, consumer)
            await poll_until(lambda: len(consumer.assignment()) == 2, consumer)

    run(scenario)


@pytest.mark.parametrize("error", ["UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH"])
def test_a_fenced_member_of_the_consumer_protocol_begins_again(broker: Broker, error: str) -> None:
    fill(broker.bootstrap_servers, "t", 5, 2)

    async def scenario() -> None:
        lost: list[TopicPartition] = []

        class Listener(RebalanceListener):
            def on_lost(self, partitions: Collection[TopicPartition]) -> None:
                lost.extend(partitions)

        async with member(broker, "consumer") as consumer:
            consumer.subscribe("t", Listener())
            await read(consumer, 10)
            with broker.fail("ConsumerGroupHeartbeat", error):
                await poll_until(lambda: {*lost} == {*partitions_of("t", 2)}, consumer)
            await poll_until(lambda: len(consumer.assignment()) == 2, consumer)

    run(scenario)


@pytest.mark.parametrize("error", ["COORDINATOR_LOAD_IN_PROGRESS", "NOT_COORDINATOR"])
def test_heartbeats_go_on_after_a_refusal(broker: Broker, error: str) -> None:
    async def scenario() -> None:
        for protocol, api in (("classic", "Heartbeat"), ("consumer", "ConsumerGroupHeartbeat")):
            async with member(broker, protocol) as consumer:
                consumer.subscribe("t")
                await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
                member_id = consumer.group_metadata().member_id
                with broker.fail(api, error, times=2) as fault:
                    await poll_until(lambda: fault.fired == 2, consumer)
                await poll_until(lambda: len(consumer.assignment()) == 2, consumer)
                assert consumer.group_metadata().member_id == member_id

    run(scenario)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_broken_network_loses_and_repeats_nothing(broker: Broker, protocol: str) -> None:
    async def scenario() -> None:
        async with member(broker, protocol) as consumer:
            consumer.subscribe("t")
            records: list[ConsumerRecord] = []
            for turn in range(5):
                await asyncio.to_thread(
                    produce, broker.bootstrap_servers, "t", [b"%d" % turn] * 20, partition=turn % 2
                )
                records += await read(consumer, 10)
                broker.drop_connections()
                records += await read(consumer, 10)
            offsets = [(each.partition, each.offset) for each in records]
            assert len(offsets) == len(set(offsets)) == 100

    run(scenario)


@pytest.mark.parametrize("api", ["Fetch", "OffsetFetch", "ListOffsets", "JoinGroup", "SyncGroup"])
def test_a_lost_answer_is_asked_for_again(broker: Broker, api: str) -> None:
    fill(broker.bootstrap_servers, "t", 5, 2)

    async def scenario() -> None:
        with broker.drop(api, after=True, times=2) as fault:
            async with member(broker, session_timeout_ms=1000) as consumer:
                consumer.subscribe("t")
                assert len(await read(consumer, 10)) == 10
                assert fault.fired == 2

    run(scenario)


def test_a_commit_is_tried_until_it_works(broker: Broker) -> None:
    fill(broker.bootstrap_servers, "t", 5, 1)

    async def scenario() -> None:
        async with member(broker, enable_auto_commit=False) as consumer:
            consumer.subscribe("t")
            await read(consumer, 5)
            with broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=2) as fault:
                await consumer.commit()
                assert fault.fired == 2
            with broker.drop("OffsetCommit", times=1):
                await consumer.commit()
            with (
                broker.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", times=None),
                pytest.raises(KafkaTimeoutError),
            ):
                await consumer.commit(timeout=0.2)
            with (
                broker.fail("OffsetCommit", "ILLEGAL_GENERATION"),
                pytest.raises(CommitFailedError),
            ):
                await consumer.commit()

    run(scenario)


def test_close_does_not_hang_on_a_broker_that_does_not_answer(broker: Broker) -> None:
    fill(broker.bootstrap_servers, "t", 5, 1)

    async def scenario() -> None:
        consumer = member(broker)
        await consumer.start()
        consumer.subscribe("t")
        await read(consumer, 5)
        loop = asyncio.get_running_loop()
        with broker.delay("OffsetCommit", 600, times=None), broker.delay("LeaveGroup", 600):
            began = loop.time()
            await consumer.close(timeout=0.3)
            assert loop.time() - began < 60, "it has waited for the broker"
        assert not [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]

    run(scenario)


def test_close_wakes_whoever_polls(broker: Broker) -> None:
    async def scenario() -> None:
        consumer = reader(broker)
        await consumer.start()
        consumer.assign(partitions_of("t", 1))
        polling = asyncio.create_task(consumer.poll())
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(KafkaError, match="closed"):
            await polling

    run(scenario)


def test_damage_is_told_with_its_place_and_can_be_passed(tmp_path: Path) -> None:
    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        for n in range(3):
            produce(broker.bootstrap_servers, "t", [b"record-%d" % n])
    (segment,) = tmp_path.glob("t-0/*.log")
    bytes_ = bytearray(segment.read_bytes())
    place = bytes_.index(b"record-1")
    bytes_[place] ^= 0xFF
    with Broker(topics=["t"], data_dir=str(tmp_path)) as broker:
        segment.write_bytes(bytes_)  # under its feet: a broker does not read what it sends

        async def scenario(way: str) -> None:
            partition = TopicPartition("t", 0)
            async with reader(broker) as consumer:
                consumer.assign([partition])
                consumer.seek_to_beginning()
                poll = consumer.poll_arrow if way == "arrow" else consumer.poll
                if way == "records":
                    assert [each.offset for each in (await consumer.poll(60))[partition]] == [0]
                with pytest.raises(CorruptRecordError) as caught:
                    await poll(60)
                assert caught.value.partition == partition
                consumer.seek(partition, 2)
                assert [each.offset for each in await read(consumer, 1)] == [2]

        run(lambda: scenario("records"))
        run(lambda: scenario("arrow"))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_killed_node_comes_back_and_reading_goes_on(tmp_path: Path, protocol: str) -> None:
    options = [f"--override={name}={value}" for name, value in GROUP_CONFIGS.items()]
    with NodeProcess(tmp_path, options) as node:
        fill(node.bootstrap_servers, "t", 20, 1)

        async def scenario() -> None:
            consumer = Consumer(
                "t",
                bootstrap_servers=node.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            async with consumer:
                first = await read(consumer, 10)
                await consumer.commit()
                node.kill()
                polling = asyncio.create_task(consumer.poll(0.3))
                await asyncio.to_thread(node.start)
                rest = [each for share in (await polling).values() for each in share]
                rest += await read(consumer, 10 - len(rest)) if len(rest) < 10 else []
                offsets = [each.offset for each in first + rest]
                assert sorted(set(offsets)) == list(range(20))
                await asyncio.to_thread(produce, node.bootstrap_servers, "t", [b"new"])
                async for record in consumer:
                    if record.value == b"new":
                        break
                await consumer.commit()

        run(scenario, 300)


@pytest.mark.seed_row("0.5")
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["at-most-once", "at-least-once"])
def test_a_killed_consumer_loses_or_repeats_as_it_commits(broker: Broker, mode: str) -> None:
    """Commit before processing is at most once, after it at least once."""
    fill(broker.bootstrap_servers, "t", 10, 1)
    program = str(HERE / "consumer_killed_program.py")

    def run_program(kill_at: int) -> list[int]:
        with subprocess.Popen(
            [sys.executable, program, broker.bootstrap_servers, mode, str(kill_at)],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            processed = [int(line) for line in process.stdout]
            process.wait(90)
        assert process.returncode == (0 if kill_at < 0 else -signal.SIGKILL)
        return processed

    processed = run_program(4) + run_program(-1)
    if mode == "at-most-once":
        assert processed == [0, 1, 2, 3, 5, 6, 7, 8, 9], "4 was committed, never processed"
    else:
        assert processed == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8, 9], "4 was processed twice"
