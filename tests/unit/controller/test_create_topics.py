"""CreateTopics and CreatePartitions: each refusal has Kafka's code, each success Kafka's fields."""

from collections.abc import Mapping

import pytest

from odradek.controller import AnyConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import ConfigResource
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.create_topics import CreatableReplicaAssignment, CreatableTopic
from odradek.protocol.generated.metadata_records import (
    ConfigRecord,
    PartitionRecord,
    TopicRecord,
)
from tests.unit.controller.cluster import Cluster, new_topic, settings


def refused(cluster: Cluster, topic: CreatableTopic) -> ErrorCode:
    before = cluster.controller.image
    result = cluster.create(topic)[topic.name]
    assert result.configs == [], "never null: Java's AdminClient falls over it"
    assert result.error_message
    assert cluster.controller.image == before
    return ErrorCode(result.error_code)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "a\x00"])
def test_bad_name(name: str) -> None:
    assert refused(Cluster(1), new_topic(name)) == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "x" * 249, "A.b-c_9", "__consumer_offsets", "..."])
def test_good_name(name: str) -> None:
    assert Cluster(1).create(new_topic(name))[name].error_code == ErrorCode.NONE


def test_dot_and_underscore_collide() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("a.b"))
    assert refused(cluster, new_topic("a_b")) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused(cluster, new_topic("a.b")) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_existing_topic() -> None:
    cluster = Cluster(1)
    cluster.create(new_topic("t"))
    assert refused(cluster, new_topic("t")) == ErrorCode.TOPIC_ALREADY_EXISTS


def test_own_log_of_the_controller() -> None:
    assert refused(Cluster(1), new_topic("__cluster_metadata")) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("count", [0, -2])
def test_bad_number_of_partitions(count: int) -> None:
    assert refused(Cluster(1), new_topic("t", count)) == ErrorCode.INVALID_PARTITIONS


@pytest.mark.parametrize("factor", [0, -2, 2])
def test_bad_replication_factor(factor: int) -> None:
    found = refused(Cluster(1), new_topic("t", 1, factor))
    assert found == ErrorCode.INVALID_REPLICATION_FACTOR


def test_no_unfenced_broker() -> None:
    cluster = Cluster()
    cluster.register(1)
    assert refused(cluster, new_topic("t")) == ErrorCode.INVALID_REPLICATION_FACTOR


def test_minus_one_means_the_default() -> None:
    config = settings(default_partitions=5, default_replication_factor=2)
    result = Cluster(3, config=config).create(new_topic("t", -1, -1))["t"]
    assert (result.num_partitions, result.replication_factor) == (5, 2)


def test_too_many_partitions_refuse_the_whole_request() -> None:
    cluster = Cluster(1, config=settings(partitions_per_request_max=10))
    results = cluster.create(new_topic("a", 6), new_topic("b", 5))
    codes = {result.error_code for result in results.values()}
    assert codes == {ErrorCode.POLICY_VIOLATION}
    assert not cluster.controller.image.topics


@pytest.mark.parametrize("limit", ["topics_max", "partitions_max", "records_per_request_max"])
def test_limits_of_the_cluster(limit: str) -> None:
    cluster = Cluster(1, config=settings(**{limit: 3}))
    refusals = [
        result.error_code
        for name in "abcd"
        for result in cluster.create(new_topic(name, 3)).values()
        if result.error_code
    ]
    assert refusals
    assert set(refusals) == {ErrorCode.POLICY_VIOLATION}


def test_the_same_topic_twice_is_refused_once() -> None:
    cluster = Cluster(1)
    results = cluster.create(new_topic("t"), new_topic("u"), new_topic("t", 2))
    assert {name: result.error_code for name, result in results.items()} == {
        "t": ErrorCode.INVALID_REQUEST,
        "u": ErrorCode.NONE,
    }


def test_assignment_is_taken_as_it_is() -> None:
    cluster = Cluster(3)
    result = cluster.create(new_topic("t", assignment={1: [2, 1], 0: [3, 2]}))["t"]
    assert (result.num_partitions, result.replication_factor) == (2, 2)
    assert cluster.partition("t", 0).replicas == (3, 2)
    assert cluster.partition("t", 1).leader == 2


@pytest.mark.parametrize(
    "assignment",
    [{0: [1, 1]}, {0: [9]}, {0: []}, {1: [1]}, {0: [1], 1: [1, 2]}, {0: [1], 2: [1]}],
)
def test_bad_assignment(assignment: dict[int, list[int]]) -> None:
    found = refused(Cluster(2), new_topic("t", assignment=assignment))
    assert found == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_partition_assigned_twice() -> None:
    topic = new_topic("t", assignment={0: [1]})
    topic.assignments.append(CreatableReplicaAssignment(partition_index=0, broker_ids=[1]))
    assert refused(Cluster(1), topic) == ErrorCode.INVALID_REPLICA_ASSIGNMENT


@pytest.mark.parametrize("field", ["num_partitions", "replication_factor"])
def test_assignment_together_with_a_number(field: str) -> None:
    topic = new_topic("t", assignment={0: [1]})
    setattr(topic, field, 1)
    assert refused(Cluster(1), topic) == ErrorCode.INVALID_REQUEST


def test_assignment_to_fenced_brokers_only() -> None:
    cluster = Cluster(2)
    cluster.heartbeat(2, want_fence=True)
    found = refused(cluster, new_topic("t", assignment={0: [2]}))
    assert found == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    cluster.create(new_topic("t", assignment={0: [2, 1]}))
    assert cluster.partition("t").isr == (1,)
    assert cluster.partition("t").leader == 1


class _Rules(AnyConfig):
    def validate(
        self, resource: ConfigResource, configs: Mapping[str, str], existing: Mapping[str, str]
    ) -> None:
        if "bad" in configs:
            raise ApiError(ErrorCode.INVALID_CONFIG, "bad")


def test_configs() -> None:
    cluster = Cluster(1, rules=_Rules())
    assert refused(cluster, new_topic("t", configs={"bad": "1"})) == ErrorCode.INVALID_CONFIG
    assert refused(cluster, new_topic("t", configs={"x": None})) == ErrorCode.INVALID_CONFIG
    result = cluster.create(new_topic("t", configs={"retention.ms": "5"}))["t"]
    assert result.configs is not None
    assert [(each.name, each.value) for each in result.configs] == [("retention.ms", "5")]
    assert cluster.controller.image.config_of(ConfigResource.topic("t")) == {"retention.ms": "5"}


def test_order_of_records_is_topic_configs_partitions() -> None:
    cluster = Cluster(1)
    start = len(cluster.log)
    cluster.create(new_topic("t", 2, configs={"retention.ms": "5"}))
    kinds = [type(record.message) for record in cluster.log[start:]]
    assert kinds == [TopicRecord, ConfigRecord, PartitionRecord, PartitionRecord]


def test_validate_only_plans_nothing_but_answers() -> None:
    cluster = Cluster(1)
    start = len(cluster.log)
    result = cluster.create(new_topic("t", 3), validate_only=True)["t"]
    assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 3)
    assert cluster.log[start:] == []


def test_topic_ids_come_from_the_random_numbers() -> None:
    first, second = Cluster(1), Cluster(1)
    ids = [cluster.create(new_topic("t"))["t"].topic_id for cluster in (first, second)]
    assert ids[0] == ids[1]
    assert first.create(new_topic("u"))["u"].topic_id != ids[0]


def more(
    cluster: Cluster,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> ErrorCode:
    given = None
    if assignments is not None:
        given = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=given)],
        validate_only=validate_only,
    )
    reply = cluster.apply(cluster.controller.create_partitions(request, cluster.random))
    return ErrorCode(reply.results[0].error_code)


def test_more_partitions() -> None:
    cluster = Cluster(3)
    cluster.create(new_topic("t", 2, 2))
    assert more(cluster, "t", 5, validate_only=True) == ErrorCode.NONE
    assert len(cluster.controller.image.topics["t"].partitions) == 2
    assert more(cluster, "t", 5) == ErrorCode.NONE
    partitions = cluster.controller.image.topics["t"].partitions
    assert [len(partitions[number].replicas) for number in range(5)] == [2] * 5
    assert more(cluster, "t", 6, [[2, 3]]) == ErrorCode.NONE
    assert cluster.partition("t", 5).replicas == (2, 3)


@pytest.mark.parametrize(
    ("name", "count", "assignments", "code"),
    [
        ("t", 2, None, ErrorCode.INVALID_PARTITIONS),
        ("t", 1, None, ErrorCode.INVALID_PARTITIONS),
        ("u", 3, None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 4, [[1]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[1, 2]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 3, [[9]], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 30_000, None, ErrorCode.POLICY_VIOLATION),
    ],
)
def test_bad_increase(
    name: str, count: int, assignments: list[list[int]] | None, code: ErrorCode
) -> None:
    cluster = Cluster(2)
    cluster.create(new_topic("t", 2))
    assert more(cluster, name, count, assignments) == code
