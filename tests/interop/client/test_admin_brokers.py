"""Brokers, log directories, features and the quorum through Admin, from Odradek and from Kafka."""

from pathlib import Path

import pytest

from odradek.client.admin.admin import Admin
from odradek.client.admin.brokers import FeatureUpdate, UpgradeType
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.client.admin.partitions import MOVES_PER_REQUEST_MAX
from odradek.client.errors import BrokerError, ConfigurationError, KafkaTimeoutError
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.testing.broker import Broker
from tests.interop.client.admin_session import eventually, fresh, produce, with_admin


def test_the_cluster_is_described(cluster_address: str) -> None:
    async def work(admin: Admin) -> None:
        cluster = await admin.describe_cluster(include_fenced_brokers=True)
        (broker,) = cluster.brokers
        assert f"{broker.host}:{broker.port}" == cluster_address
        assert cluster.controller_id == broker.node_id
        assert not broker.is_fenced
        assert cluster.cluster_id

        quorum = await admin.describe_quorum()
        assert [each.replica_id for each in quorum.voters] == [quorum.leader_id]
        assert quorum.voters[0].log_end_offset >= quorum.high_watermark > 0

        versions = (await admin.describe_api_versions())[broker.node_id].unwrap()
        assert versions["Metadata"].max_version >= 12
        features = await admin.describe_features()
        assert features.finalized["metadata.version"].max_version > 0
        assert "group.version" in features.supported

    with_admin(cluster_address, work)


def test_features_are_updated(cluster_address: str) -> None:
    async def work(admin: Admin) -> None:
        level = (await admin.describe_features()).finalized["metadata.version"].max_version
        lower = FeatureUpdate(level - 1, UpgradeType.SAFE_DOWNGRADE)
        (await admin.update_features({"metadata.version": level}, validate_only=True)).unwrap()
        with pytest.raises(BrokerError) as refused:
            await admin.update_features({"no.such.feature": 1})
        assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
        with pytest.raises(BrokerError, match="INVALID_UPDATE_VERSION"):
            await admin.update_features({"metadata.version": lower._replace(level=9999)})

    with_admin(cluster_address, work)


def test_log_dirs_are_described(cluster_address: str) -> None:
    topic = fresh("on-disk")
    partition = TopicPartition(topic, 0)

    async def work(admin: Admin) -> None:
        (await admin.create_topics([topic])).unwrap()
        produce(cluster_address, topic, [b"a" * 1000])
        ((broker, found),) = (await admin.describe_log_dirs(partitions=[partition])).items()
        ((path, log_dir),) = found.unwrap().items()
        assert log_dir.error is None
        assert log_dir.replicas[partition].size_bytes > 1000
        assert log_dir.total_bytes > log_dir.usable_bytes > 0
        everything = (await admin.describe_log_dirs([broker]))[broker].unwrap()
        assert partition in everything[path].replicas

        here = TopicPartitionReplica(topic, 0, broker)
        refused = await admin.alter_replica_log_dirs({here: "/no/such/folder"})
        error = refused[here].error
        assert isinstance(error, BrokerError)
        assert error.code is ErrorCode.LOG_DIR_NOT_FOUND

    with_admin(cluster_address, work)


def test_a_replica_moves_to_another_log_dir(tmp_path: Path) -> None:
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    partition = TopicPartition("moved", 0)

    async def work(admin: Admin) -> None:
        async def home() -> str:
            ((_, found),) = (await admin.describe_log_dirs()).items()
            (path,) = (
                path
                for path, each in found.unwrap().items()
                if partition in each.replicas and not each.replicas[partition].is_future
            )
            return path

        async def has_moved() -> bool:
            return await home() == there

        broker = (await admin.describe_cluster()).controller_id
        (there,) = set(folders) - {await home()}
        moves = {TopicPartitionReplica("moved", 0, broker): there}
        (await admin.alter_replica_log_dirs(moves)).unwrap()
        await eventually(has_moved)

    with Broker(topics=["moved"], config={"log.dirs": ",".join(folders)}) as broker:
        with_admin(broker.bootstrap_servers, work)


def test_topics_are_described_in_pages() -> None:
    names = ["a", "b", "c"]

    async def work(admin: Admin) -> None:
        described = (await admin.describe_topics([*reversed(names), "missing"])).errors
        assert list(described) == ["missing"]
        found = await admin.describe_topics(names)
        for name in names:
            indexes = [each.partition for each in found[name].unwrap().partitions]
            assert indexes == [0, 1, 2], name

    config = {"max.request.partition.size.limit": "2"}
    with Broker(topics=dict.fromkeys(names, 3), config=config, memory=True) as broker:
        with_admin(broker.bootstrap_servers, work)


def test_reassignments_are_listed_or_clearly_refused(cluster_address: str) -> None:
    topic = fresh("placed")
    partition = TopicPartition(topic, 0)

    async def work(admin: Admin) -> None:
        (await admin.create_topics([topic])).unwrap()
        versions = (await admin.describe_api_versions()).unwrap()
        ((broker, known),) = versions.items()
        results = await admin.alter_partition_reassignments({partition: [broker]})
        if "AlterPartitionReassignments" in known:
            assert results[partition].error is None
            assert await admin.list_partition_reassignments([partition]) == {}
        else:
            refused = results[partition].error
            assert "does not know AlterPartitionReassignments" in str(refused)

    with_admin(cluster_address, work)


def test_more_moves_than_a_controller_takes_at_once_go_in_several_requests(
    cluster_address: str,
) -> None:
    """Each partition has its own answer, in whichever request it was."""
    first, last = (TopicPartition(fresh(name), 0) for name in ("first", "last"))
    missing = [TopicPartition(fresh("missing"), number) for number in range(MOVES_PER_REQUEST_MAX)]

    async def work(admin: Admin) -> None:
        (await admin.create_topics([first.topic, last.topic])).unwrap()
        (broker,) = (await admin.describe_api_versions()).unwrap()
        wanted = {key: [broker] for key in (first, *missing, last)}
        results = await admin.alter_partition_reassignments(wanted)
        assert list(results) == list(wanted)
        assert results[first].error is results[last].error is None
        codes = {getattr(results[each].error, "code", None) for each in missing}
        assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}

    with_admin(cluster_address, work)


def test_where_nobody_listens_the_deadline_holds() -> None:
    async def nothing(admin: Admin) -> None:
        raise AssertionError("it started")

    with pytest.raises(KafkaTimeoutError, match=r"127\.0\.0\.1:1"):
        with_admin("127.0.0.1:1", nothing, default_api_timeout_ms=300)


def test_a_setting_that_is_misspelled_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'request\.timeout\.ms'"):
        Admin(bootstrap_servers="localhost:9092", request_timeout="1")  # type: ignore[call-arg]
