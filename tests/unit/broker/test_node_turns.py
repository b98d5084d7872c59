"""One large request does not keep everybody waiting: no turn of the event loop takes 50 ms of CPU.

Measured with the CPU time of the loop's thread, callback by callback, so that a busy machine makes
no difference. Python's cyclic garbage collector is off meanwhile: its pauses come with the number
of objects in the process, and not with what a handler does in its turn.
"""

import asyncio
import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.generated import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    describe_log_dirs,
    elect_leaders,
    incremental_alter_configs,
    list_offsets,
    metadata,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection

TURN_SECONDS_MAX = 0.05
TOPIC, BROKER = 2, 4
NAMES = [f"topic-{number:05}" for number in range(2_500)]


class Turns:
    """The CPU time of each callback that the loop runs."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_of = ""
        self.count = 0

    @contextmanager
    def measured(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        run = asyncio.Handle._run

        def measure(handle: asyncio.Handle) -> None:
            began = time.thread_time()
            run(handle)
            took = time.thread_time() - began
            self.count += 1
            if took > self.longest:
                self.longest, self.longest_of = took, repr(handle)

        with monkeypatch.context() as patch:
            patch.setattr(asyncio.Handle, "_run", measure)
            yield

    def reset(self) -> None:
        self.longest, self.longest_of, self.count = 0.0, "", 0


def run_with_node(
    monkeypatch: pytest.MonkeyPatch, story: Callable[[BrokerConnection, Turns], None]
) -> None:
    """Have a node on asyncio's loop, whose callbacks can be measured, and a client on a thread."""
    turns = Turns()

    def use(port: int) -> None:
        with BrokerConnection(port) as connection:
            connection.ask(metadata.MetadataRequest(topics=[]), metadata.MetadataResponse)
            story(connection, turns)

    async def serve() -> None:
        async with Broker(own_thread=False, memory=True) as broker:
            await asyncio.to_thread(use, broker.port)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with turns.measured(monkeypatch):
            asyncio.run(serve())
    finally:
        if was_enabled:
            gc.enable()


def check(turns: Turns, what: str) -> None:
    assert turns.longest < TURN_SECONDS_MAX, f"{what}: {turns.longest:.3f} s in {turns.longest_of}"
    turns.reset()


def creation(names: list[str], *, validate_only: bool = False) -> create_topics.CreateTopicsRequest:
    topics = [
        create_topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        for name in names
    ]
    return create_topics.CreateTopicsRequest(topics=topics, validate_only=validate_only)


@pytest.mark.slow
def test_validating_ten_thousand_topics_takes_many_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(connection: BrokerConnection, turns: Turns) -> None:
        turns.reset()
        names = [f"{name}-{part}" for name in NAMES for part in range(4)]
        request = creation(names, validate_only=True)
        answer = connection.ask(request, create_topics.CreateTopicsResponse)
        # Two records each are more than one operation of a controller may have, as in Kafka.
        assert {each.error_code for each in answer.topics} == {ErrorCode.POLICY_VIOLATION}
        assert len(answer.topics) == len(names)
        check(turns, "10,000 topics")
        request = creation(names[:5_000], validate_only=True)
        answer = connection.ask(request, create_topics.CreateTopicsResponse)
        assert {each.error_code for each in answer.topics} == {ErrorCode.NONE}
        assert turns.count > 10
        check(turns, "5,000 topics")

    run_with_node(monkeypatch, story)


@pytest.mark.slow
def test_topics_that_metadata_creates_are_created_in_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(connection: BrokerConnection, turns: Turns) -> None:
        turns.reset()
        wanted = [metadata.MetadataRequestTopic(name=name) for name in NAMES]
        request = metadata.MetadataRequest(topics=wanted, allow_auto_topic_creation=True)
        while any(
            each.error_code for each in connection.ask(request, metadata.MetadataResponse).topics
        ):
            pass
        check(turns, "2,500 topics")

    run_with_node(monkeypatch, story)


@pytest.mark.slow
def test_requests_for_thousands_of_topics_take_many_short_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def story(connection: BrokerConnection, turns: Turns) -> None:
        turns.reset()
        created = connection.ask(creation(NAMES), create_topics.CreateTopicsResponse)
        assert {each.error_code for each in created.topics} == {ErrorCode.NONE}
        check(turns, "CreateTopics")
        described = connection.ask(metadata.MetadataRequest(topics=None), metadata.MetadataResponse)
        assert [each.name for each in described.topics] == NAMES
        check(turns, "Metadata")
        ask_all(connection, turns)
        deletion = delete_topics.DeleteTopicsRequest(
            topics=[delete_topics.DeleteTopicState(name=name) for name in NAMES]
        )
        deleted = connection.ask(deletion, delete_topics.DeleteTopicsResponse)
        assert {each.error_code for each in deleted.responses} == {ErrorCode.NONE}
        check(turns, "DeleteTopics")

    run_with_node(monkeypatch, story)


def ask_all(connection: BrokerConnection, turns: Turns) -> None:
    """Ask what may be asked of all topics, and change what may be changed of all."""
    resources = [
        describe_configs.DescribeConfigsResource(resource_type=TOPIC, resource_name=name)
        for name in NAMES
    ]
    configs = connection.ask(
        describe_configs.DescribeConfigsRequest(resources=resources),
        describe_configs.DescribeConfigsResponse,
    )
    assert min(len(each.configs) for each in configs.results) > 30
    check(turns, "DescribeConfigs")
    latest = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    offsets = connection.ask(
        list_offsets.ListOffsetsRequest(
            replica_id=-1,
            topics=[
                list_offsets.ListOffsetsTopic(name=name, partitions=[latest]) for name in NAMES
            ],
        ),
        list_offsets.ListOffsetsResponse,
    )
    assert {each.partitions[0].offset for each in offsets.topics} == {0}
    check(turns, "ListOffsets")
    connection.ask(
        describe_log_dirs.DescribeLogDirsRequest(topics=None),
        describe_log_dirs.DescribeLogDirsResponse,
    )
    check(turns, "DescribeLogDirs")
    connection.ask(
        elect_leaders.ElectLeadersRequest(topic_partitions=None),
        elect_leaders.ElectLeadersResponse,
    )
    check(turns, "ElectLeaders")
    for kind, names, key in ((TOPIC, NAMES, "retention.ms"), (BROKER, [""], "log.retention.ms")):
        change = incremental_alter_configs.AlterableConfig(name=key, value="86400000")
        altered = connection.ask(
            incremental_alter_configs.IncrementalAlterConfigsRequest(
                resources=[
                    incremental_alter_configs.AlterConfigsResource(
                        resource_type=kind, resource_name=name, configs=[change]
                    )
                    for name in names
                ]
            ),
            incremental_alter_configs.IncrementalAlterConfigsResponse,
        )
        assert {each.error_code for each in altered.responses} == {ErrorCode.NONE}
        check(turns, key)
    grown = connection.ask(
        create_partitions.CreatePartitionsRequest(
            topics=[
                create_partitions.CreatePartitionsTopic(name=name, count=2, assignments=None)
                for name in NAMES
            ]
        ),
        create_partitions.CreatePartitionsResponse,
    )
    assert {each.error_code for each in grown.results} == {ErrorCode.NONE}
    check(turns, "CreatePartitions")


def test_changes_that_come_meanwhile_wait_their_turn_and_others_do_not() -> None:
    with (
        Broker(memory=True) as broker,
        BrokerConnection(broker.port) as large,
        BrokerConnection(broker.port) as small,
        BrokerConnection(broker.port) as reader,
    ):
        names = NAMES[:1_000]
        large.send(creation(names))
        small.send(creation([names[-1], "other"]))
        topics = 0
        while topics < len(names):  # never a part of them
            answer = reader.ask(metadata.MetadataRequest(topics=None), metadata.MetadataResponse)
            topics = len(answer.topics)
            assert topics in (0, 2, len(names), len(names) + 1)
        first = large.receive(create_topics.CreateTopicsResponse)
        second = small.receive(create_topics.CreateTopicsResponse)
        both = [*first.topics, *second.topics]
        exists = [each.name for each in both if each.error_code == ErrorCode.TOPIC_ALREADY_EXISTS]
        assert exists == [names[-1]]
        assert sum(each.error_code == ErrorCode.NONE for each in both) == len(names) + 1
