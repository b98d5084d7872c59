"""Topics, partitions and configs through Admin: the same from Odradek and from a real Kafka."""

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.configs import Append, ConfigChange, ConfigResource, Subtract
from odradek.client.admin.partitions import ElectionType, OffsetSpec
from odradek.client.admin.topics import NewPartitions, NewTopic
from odradek.client.errors import BrokerError, KafkaError
from odradek.core.config import ConfigResourceType, ConfigSource
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition, Uuid
from tests.interop.client.admin_session import eventually, fresh, produce, with_admin

DAY_MS = "86400000"


def code_of(error: KafkaError | None) -> ErrorCode:
    assert isinstance(error, BrokerError), error
    return error.code


@pytest.mark.seed_row("1.4")
def test_topics_are_created_described_and_deleted(cluster_address: str) -> None:
    plain, placed, taken = fresh("plain"), fresh("placed"), fresh("taken")

    async def work(admin: Admin) -> None:
        await admin.create_topics([taken])
        broker = (await admin.describe_cluster()).brokers[0].node_id
        results = await admin.create_topics(
            [
                NewTopic(plain, partitions=3, configs={"retention.ms": DAY_MS}),
                NewTopic(placed, assignments={0: [broker], 1: [broker]}),
                taken,
                "not a name",
            ]
        )
        assert list(results) == [plain, placed, taken, "not a name"]
        created = results[plain].unwrap()
        assert (created.partitions, created.replication_factor) == (3, 1)
        assert created.configs["retention.ms"].value == DAY_MS
        assert created.configs["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert code_of(results[taken].error) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert code_of(results["not a name"].error) is ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(BrokerError, match="TOPIC_ALREADY_EXISTS"):
            results.unwrap()

        async def are_listed() -> bool:
            return {plain, placed, taken} <= {each.name for each in await admin.list_topics()}

        await eventually(are_listed)
        names = [each.name for each in await admin.list_topics()]
        assert names == sorted(names)

        described = await admin.describe_topics([plain, created.topic_id, placed, "nowhere"])
        topic = described[plain].unwrap()
        assert topic == described[created.topic_id].unwrap()._replace(partitions=topic.partitions)
        assert [each.partition for each in topic.partitions] == [0, 1, 2]
        for each in topic.partitions:
            assert (each.leader, each.replicas, each.isr) == (broker, (broker,), (broker,))
        assert len(described[placed].unwrap().partitions) == 2
        assert code_of(described["nowhere"].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        gone = Uuid(b"0123456789abcdef")
        deleted = await admin.delete_topics([created.topic_id, placed, "nowhere", gone])
        assert list(deleted) == [created.topic_id, placed, "nowhere", gone]
        assert code_of(deleted["nowhere"].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert code_of(deleted[gone].error) is ErrorCode.UNKNOWN_TOPIC_ID
        assert set(deleted.errors) == {"nowhere", gone}

        async def are_gone() -> bool:
            left = {each.name for each in await admin.list_topics()}
            assert taken in left
            return not {plain, placed} & left

        await eventually(are_gone)

    with_admin(cluster_address, work)


def test_validation_changes_nothing(cluster_address: str) -> None:
    name = fresh("unmade")

    async def work(admin: Admin) -> None:
        results = await admin.create_topics([NewTopic(name, 2)], validate_only=True)
        assert results[name].unwrap().partitions == 2
        bad = await admin.create_topics(
            [NewTopic(name, configs={"no.such.config": "1"})], validate_only=True
        )
        assert code_of(bad[name].error) is ErrorCode.INVALID_CONFIG
        assert name not in {each.name for each in await admin.list_topics()}

    with_admin(cluster_address, work)


@pytest.mark.seed_row("1.4")
def test_partitions_are_added(cluster_address: str) -> None:
    name = fresh("grown")

    async def work(admin: Admin) -> None:
        await admin.create_topics([NewTopic(name, 1)])
        broker = (await admin.describe_cluster()).brokers[0].node_id
        assert (await admin.create_partitions({name: 2}, validate_only=True)).errors == {}
        (await admin.create_partitions({name: 2})).unwrap()
        (await admin.create_partitions({name: NewPartitions(3, [[broker]])})).unwrap()

        async def are_there() -> bool:
            return len((await admin.describe_topics([name]))[name].unwrap().partitions) == 3

        await eventually(are_there)
        refused = await admin.create_partitions({name: 2, "nowhere": 2})
        assert code_of(refused[name].error) is ErrorCode.INVALID_PARTITIONS
        assert code_of(refused["nowhere"].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    with_admin(cluster_address, work)


@pytest.mark.seed_row("1.4")
def test_offsets_are_found_and_records_deleted(cluster_address: str) -> None:
    name = fresh("offsets")
    partition, empty = TopicPartition(name, 0), TopicPartition(name, 1)

    async def find(admin: Admin, spec: OffsetSpec | int) -> tuple[int, int]:
        found = (await admin.list_offsets({partition: spec}))[partition].unwrap()
        return found.offset, found.timestamp

    async def work(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(name, 2)])).unwrap()
        produce(cluster_address, name, [b"a", b"b", b"c"])
        assert await find(admin, OffsetSpec.EARLIEST) == (0, -1)
        assert await find(admin, OffsetSpec.LATEST) == (3, -1)
        assert await find(admin, OffsetSpec.MAX_TIMESTAMP) == (2, 3000)
        assert await find(admin, 1500) == (1, 2000)
        assert await find(admin, 9999) == (-1, -1)
        both = await admin.list_offsets(
            {partition: OffsetSpec.LATEST, empty: OffsetSpec.LATEST}, read_committed=True
        )
        assert [each.offset for each in both.unwrap().values()] == [3, 0]

        deleted = await admin.delete_records({partition: 2, empty: 1})
        assert deleted[partition].unwrap() == 2
        assert code_of(deleted[empty].error) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert await find(admin, OffsetSpec.EARLIEST) == (2, -1)
        assert (await admin.delete_records({partition: -1}))[partition].unwrap() == 3

        absent = TopicPartition("nowhere", 0)
        missing = await admin.list_offsets({absent: OffsetSpec.LATEST, partition: 0})
        assert code_of(missing[absent].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert missing[partition].error is None

    with_admin(cluster_address, work)


def test_an_election_that_is_not_needed_says_so(cluster_address: str) -> None:
    name = fresh("elected")
    partition, absent = TopicPartition(name, 0), TopicPartition("nowhere", 0)

    async def work(admin: Admin) -> None:
        (await admin.create_topics([name])).unwrap()
        results = await admin.elect_leaders([partition, absent])
        assert code_of(results[partition].error) is ErrorCode.ELECTION_NOT_NEEDED
        assert code_of(results[absent].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unclean = await admin.elect_leaders([partition], election=ElectionType.UNCLEAN)
        assert code_of(unclean[partition].error) is ErrorCode.ELECTION_NOT_NEEDED
        assert (await admin.elect_leaders()).errors == {}

    with_admin(cluster_address, work)


@pytest.mark.seed_row("1.4")
def test_configs_of_a_topic(cluster_address: str) -> None:
    name = fresh("configured")
    topic, absent = ConfigResource.topic(name), ConfigResource.topic("nowhere")

    async def work(admin: Admin) -> None:
        (await admin.create_topics([NewTopic(name, configs={"segment.bytes": "1048576"})])).unwrap()
        change: dict[str, ConfigChange] = {
            "retention.ms": DAY_MS,
            "cleanup.policy": Append("compact"),
        }
        (await admin.alter_configs({topic: {**change, "segment.bytes": None}})).unwrap()
        await eventually(lambda: is_set(admin, "retention.ms", DAY_MS))
        found = (await admin.describe_configs([topic], include_synonyms=True))[topic].unwrap()
        assert found["retention.ms"].value == DAY_MS
        assert found["retention.ms"].source is ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert found["retention.ms"].synonyms[0].value == DAY_MS
        assert found["cleanup.policy"].value == "delete,compact"
        assert found["segment.bytes"].source is not ConfigSource.DYNAMIC_TOPIC_CONFIG

        (await admin.alter_configs({topic: {"cleanup.policy": Subtract("delete")}})).unwrap()
        refused = await admin.alter_configs({topic: {"retention.ms": "soon"}, absent: {}})
        assert code_of(refused[topic].error) is ErrorCode.INVALID_CONFIG
        assert code_of(refused[absent].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await admin.alter_configs({topic: {"retention.ms": "1"}}, validate_only=True)
        await eventually(lambda: is_set(admin, "cleanup.policy", "compact"))
        wanted = ("retention.ms", "cleanup.policy")
        after = await admin.describe_configs([topic, absent], names=wanted)
        assert {each.name: each.value for each in after[topic].unwrap().values()} == {
            "retention.ms": DAY_MS,
            "cleanup.policy": "compact",
        }
        assert code_of(after[absent].error) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def is_set(admin: Admin, name: str, value: str) -> bool:
        return (await admin.describe_configs([topic]))[topic].unwrap()[name].value == value

    with_admin(cluster_address, work)


def test_a_value_that_is_too_long_is_refused_and_its_neighbours_are_not(
    cluster_address: str,
) -> None:
    """A broker would hang up: to the client it would look like one that is away."""
    name = "leader.replication.throttled.replicas"
    long, short = (ConfigResource.topic(fresh(each)) for each in ("long", "short"))
    values = {
        long: ",".join(f"{number}:1" for number in range(5_000)),
        short: ",".join(f"{number}:1" for number in range(4_000)),
    }

    async def work(admin: Admin) -> None:
        (await admin.create_topics([long.name, short.name])).unwrap()
        results = await admin.alter_configs({key: {name: each} for key, each in values.items()})
        refused = results[long].error
        assert code_of(refused) is ErrorCode.INVALID_CONFIG
        assert "exceeds the maximum value size of 32767 bytes" in str(refused)
        assert results[short].error is None

        async def is_set() -> bool:
            found = (await admin.describe_configs([short])).unwrap()
            return found[short][name].value == values[short]

        await eventually(is_set)

    with_admin(cluster_address, work)


def test_configs_of_brokers_groups_and_client_metrics(cluster_address: str) -> None:
    group = ConfigResource.group(fresh("configured-group"))
    metrics = ConfigResource.client_metrics(fresh("metrics"))

    async def work(admin: Admin) -> None:
        broker = (await admin.describe_cluster()).brokers[0].node_id
        one, all_of_them = ConfigResource.broker(broker), ConfigResource.broker()
        changes = {
            group: {"consumer.session.timeout.ms": "50000"},
            metrics: {"interval.ms": "30000", "metrics": "*"},
            all_of_them: {"log.retention.ms": DAY_MS},
            one: {"background.threads": "3"},
        }
        (await admin.alter_configs(changes)).unwrap()
        try:

            async def are_set() -> bool:
                found = (await admin.describe_configs(changes)).unwrap()
                return changes == {
                    each: {name: found[each][name].value for name in changed if name in found[each]}
                    for each, changed in changes.items()
                }

            await eventually(are_set)
            found = await admin.describe_configs([one], include_documentation=True)
            described = found[one].unwrap()
            source = described["background.threads"].source
            assert source is ConfigSource.DYNAMIC_BROKER_CONFIG
            assert described["log.retention.ms"].documentation
            listed = await admin.list_config_resources()
            assert {group, metrics, one} <= set(listed)
            only = await admin.list_config_resources([ConfigResourceType.CLIENT_METRICS])
            assert only == [metrics]
        finally:
            undone = {each: dict.fromkeys(names) for each, names in changes.items()}
            (await admin.alter_configs(undone)).unwrap()

    with_admin(cluster_address, work)
