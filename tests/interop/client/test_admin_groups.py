"""Groups, their offsets and transactions through Admin: the same from Odradek and a real Kafka."""

from collections.abc import Iterator
from contextlib import contextmanager

import confluent_kafka
import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.group_offsets import CommittedOffset
from odradek.client.admin.groups import GroupDescription
from odradek.client.admin.partitions import OffsetSpec
from odradek.client.admin.topics import NewTopic
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from tests.interop.client.admin_session import SECONDS_MAX, eventually, fresh, produce, with_admin


def code_of(error: KafkaError | None) -> ErrorCode:
    assert isinstance(error, BrokerError), error
    return error.code


@contextmanager
def member(
    address: str, group: str, topic: str, **settings: str
) -> Iterator[confluent_kafka.Consumer]:
    """A member of librdkafka's that has its assignment."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "client.id": "member",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(SECONDS_MAX)
        assert message is not None, "no assignment"
        assert message.error() is None
        yield consumer
    finally:
        consumer.close()


def test_offsets_of_groups_are_set_read_and_deleted(cluster_address: str) -> None:
    topic, group, nobody = fresh("committed"), fresh("group"), fresh("group")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    async def work(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(topic, 2)])).unwrap()
        committed: dict[TopicPartition, CommittedOffset | int] = {
            first: 7,
            second: CommittedOffset(8, "noted", 0),
        }
        await eventually(lambda: commit(admin, committed))
        found = await admin.list_group_offsets({group: None, nobody: [first]})
        assert found[group].unwrap() == {
            first: CommittedOffset(7),
            second: CommittedOffset(8, "noted", 0),
        }
        assert found[nobody].unwrap() == {}
        some = await admin.list_group_offsets({group: [second]}, require_stable=True)
        assert list(some[group].unwrap()) == [second]

        described = (await admin.describe_groups([group]))[group].unwrap()
        assert (described.type, described.state, described.members) == ("classic", "Empty", ())
        listed = {each.group_id: each for each in await admin.list_groups(states=["Empty"])}
        assert listed[group].type == "classic"
        assert group not in {each.group_id for each in await admin.list_groups(types=["consumer"])}

        (await admin.delete_group_offsets(group, [first])).unwrap()
        assert list((await admin.list_group_offsets([group]))[group].unwrap()) == [second]
        deleted = await admin.delete_groups([group, nobody])
        assert deleted[group].error is None
        assert code_of(deleted[nobody].error) is ErrorCode.GROUP_ID_NOT_FOUND
        missing = await admin.describe_groups([group])
        assert code_of(missing[group].error) is ErrorCode.GROUP_ID_NOT_FOUND
        with pytest.raises(BrokerError, match="GROUP_ID_NOT_FOUND"):
            await admin.delete_group_offsets(group, [first])

    async def commit(admin: Admin, offsets: dict[TopicPartition, CommittedOffset | int]) -> bool:
        return not (await admin.alter_group_offsets(group, offsets)).errors

    with_admin(cluster_address, work)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_are_described(cluster_address: str, protocol: str) -> None:
    topic, group = fresh("read"), fresh(f"{protocol}-group")
    partition = TopicPartition(topic, 0)

    async def work(admin: Admin) -> GroupDescription:
        described = (await admin.describe_groups([group]))[group].unwrap()
        (only,) = described.members
        assert only.assignment == (partition,)
        assert only.subscribed_topics == (topic,)
        assert (only.client_id, only.instance_id) == ("member", "static")
        assert (only.target_assignment, only.member_epoch) == (
            ((partition,), described.group_epoch) if protocol == "consumer" else (None, None)
        )
        refused = await admin.delete_groups([group])
        assert code_of(refused[group].error) is ErrorCode.NON_EMPTY_GROUP
        kept = await admin.delete_group_offsets(group, [partition])
        assert code_of(kept[partition].error) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return described

    with_admin(cluster_address, lambda admin: admin.create_topics([topic]))
    produce(cluster_address, topic, [b"a"])
    settings = {"group_protocol": protocol, "group_instance_id": "static"}
    with member(cluster_address, group, topic, **settings):
        described = with_admin(cluster_address, work)
    assert described.type == protocol
    assert described.state == "Stable"
    assert described.protocol_type == "consumer"
    assert described.assignor == ("range" if protocol == "classic" else "uniform")


def test_members_are_sent_away(cluster_address: str) -> None:
    topic, group = fresh("left"), fresh("left-group")

    async def work(admin: Admin) -> None:
        unknown = await admin.remove_members(group, ["nobody"])
        assert code_of(unknown["nobody"].error) is ErrorCode.UNKNOWN_MEMBER_ID
        assert list((await admin.remove_members(group, ["static"])).unwrap()) == ["static"]

    with_admin(cluster_address, lambda admin: admin.create_topics([topic]))
    produce(cluster_address, topic, [b"a"])
    with member(cluster_address, group, topic, group_instance_id="static"):
        with_admin(cluster_address, work)


def test_transactions_are_listed_described_fenced_and_aborted(cluster_address: str) -> None:
    topic, name = fresh("transactional"), fresh("transactional-id")
    partition = TopicPartition(topic, 0)
    with_admin(cluster_address, lambda admin: admin.create_topics([topic]))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster_address, "transactional.id": name}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(SECONDS_MAX) == 0

    async def work(admin: Admin) -> None:
        listed = [each for each in await admin.list_transactions() if each.transactional_id == name]
        assert [each.state for each in listed] == ["Ongoing"]
        assert not await admin.list_transactions(states=["Empty"], pattern=name)
        assert await admin.list_transactions(producer_ids=[listed[0].producer_id]) == listed
        assert not await admin.list_transactions(open_for_ms=3_600_000, pattern=name)
        described = await admin.describe_transactions([name, "nobody"])
        assert described[name].unwrap().partitions == (partition,)
        assert described[name].unwrap().state == "Ongoing"
        assert code_of(described["nobody"].error) is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        (state,) = (await admin.describe_producers([partition]))[partition].unwrap()
        assert (state.producer_id, state.transaction_start_offset) == (listed[0].producer_id, 0)

        assert await stable_offset(admin) == 0
        fenced = (await admin.fence_producers([name]))[name].unwrap()
        assert fenced.producer_epoch > state.producer_epoch
        await eventually(lambda: is_stable(admin))
        (after,) = (await admin.describe_producers([partition]))[partition].unwrap()
        assert after.transaction_start_offset == -1

    async def stable_offset(admin: Admin) -> int:
        found = await admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)
        return found[partition].unwrap().offset

    async def is_stable(admin: Admin) -> bool:
        return await stable_offset(admin) == 2

    with_admin(cluster_address, work)
    with pytest.raises(confluent_kafka.KafkaException):
        producer.commit_transaction(SECONDS_MAX)


def test_a_transaction_that_hangs_is_aborted_in_its_partition(cluster_address: str) -> None:
    topic = fresh("hanging")
    partition = TopicPartition(topic, 0)
    with_admin(cluster_address, lambda admin: admin.create_topics([topic]))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster_address, "transactional.id": fresh("hanging-id")}
    )
    producer.init_transactions(SECONDS_MAX)
    producer.begin_transaction()
    producer.produce(topic, b"a")
    assert producer.flush(SECONDS_MAX) == 0

    async def work(admin: Admin) -> None:
        (state,) = (await admin.describe_producers([partition]))[partition].unwrap()
        await admin.abort_transaction(
            partition, state.producer_id, state.producer_epoch, max(state.coordinator_epoch, 0)
        )
        found = await admin.list_offsets({partition: OffsetSpec.LATEST}, read_committed=True)
        assert found[partition].unwrap().offset == 2

    with_admin(cluster_address, work)
