"""DeleteTopics by name and by id."""

from odradek.core.errors import ErrorCode
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.metadata import ConfigResource
from odradek.protocol.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.controller.cluster import Cluster, new_topic

OTHER = Uuid(b"0123456789abcdef")


def delete(
    cluster: Cluster, *topics: tuple[str | None, Uuid], names: tuple[str, ...] = ()
) -> list[tuple[str | None, Uuid, int]]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in topics],
        topic_names=list(names),
    )
    reply = cluster.apply(cluster.controller.delete_topics(request))
    return [(each.name, each.topic_id, each.error_code) for each in reply.responses]


def cluster_with(*names: str) -> tuple[Cluster, list[Uuid]]:
    cluster = Cluster(1)
    results = cluster.create(*(new_topic(name, configs={"retention.ms": "1"}) for name in names))
    return cluster, [results[name].topic_id for name in names]


def test_by_old_name_by_name_and_by_id() -> None:
    cluster, (a, b, c) = cluster_with("a", "b", "c")
    found = delete(cluster, ("b", ZERO_UUID), (None, c), names=("a",))
    assert found == [("a", a, 0), ("b", b, 0), ("c", c, 0)]
    assert not cluster.controller.image.topics
    assert not cluster.controller.image.config_of(ConfigResource.topic("a"))


def test_unknown_topics() -> None:
    cluster, _ = cluster_with("a")
    assert delete(cluster, ("x", ZERO_UUID), (None, OTHER)) == [
        ("x", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (None, OTHER, ErrorCode.UNKNOWN_TOPIC_ID),
    ]
    assert "a" in cluster.controller.image.topics


def test_both_or_neither_of_name_and_id() -> None:
    cluster, (a,) = cluster_with("a")
    assert delete(cluster, ("a", a), (None, ZERO_UUID)) == [
        ("a", a, ErrorCode.INVALID_REQUEST),
        (None, ZERO_UUID, ErrorCode.INVALID_REQUEST),
    ]


def test_the_same_topic_twice() -> None:
    cluster, (a, b) = cluster_with("a", "b")
    codes = [code for _, _, code in delete(cluster, ("a", ZERO_UUID), ("a", ZERO_UUID))]
    assert codes == [ErrorCode.INVALID_REQUEST]
    codes = [code for _, _, code in delete(cluster, ("a", ZERO_UUID), (None, a), (None, b))]
    assert codes == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE], "one for both names of it"
    assert set(cluster.controller.image.topics) == {"a"}


def test_a_name_can_be_used_again_with_a_new_id() -> None:
    cluster, (a,) = cluster_with("a")
    delete(cluster, ("a", ZERO_UUID))
    assert cluster.create(new_topic("a"))["a"].topic_id != a
