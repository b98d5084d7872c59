"""AlterConfigs and IncrementalAlterConfigs."""

from collections.abc import Mapping

import pytest

from odradek.controller import AnyConfig
from odradek.core.errors import ApiError, ErrorCode
from odradek.metadata import CLUSTER_DEFAULTS, ConfigResource, ResourceType
from odradek.protocol.generated import alter_configs as replacing
from odradek.protocol.generated import incremental_alter_configs as incremental
from odradek.protocol.generated.metadata_records import ClearElrRecord
from tests.unit.controller.cluster import Cluster, new_topic

SET, DELETE, APPEND, SUBTRACT = range(4)
TOPIC = ConfigResource.topic("t")
BROKER = ConfigResource.broker(1)


class Rules(AnyConfig):
    def validate(
        self, resource: ConfigResource, configs: Mapping[str, str], existing: Mapping[str, str]
    ) -> None:
        if configs.get("x") == "bad":
            raise ApiError(ErrorCode.INVALID_CONFIG, "x is bad")

    def default_value(self, resource: ConfigResource, name: str) -> str | None:
        return "delete" if name == "cleanup.policy" else None


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(1, rules=Rules())
    cluster.create(new_topic("t"))
    return cluster


def change(
    cluster: Cluster,
    resource: ConfigResource,
    *configs: tuple[str, int, str | None],
    validate_only: bool = False,
) -> ErrorCode:
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[
            incremental.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    incremental.AlterableConfig(name=name, config_operation=op, value=value)
                    for name, op, value in configs
                ],
            )
        ],
        validate_only=validate_only,
    )
    reply = cluster.apply(cluster.controller.incremental_alter_configs(request))
    return ErrorCode(reply.responses[0].error_code)


def replace(cluster: Cluster, resource: ConfigResource, configs: Mapping[str, str | None]) -> int:
    request = replacing.AlterConfigsRequest(
        resources=[
            replacing.AlterConfigsResource(
                resource_type=resource.type,
                resource_name=resource.name,
                configs=[
                    replacing.AlterableConfig(name=name, value=value)
                    for name, value in configs.items()
                ],
            )
        ]
    )
    return cluster.apply(cluster.controller.alter_configs(request)).responses[0].error_code


def configs(cluster: Cluster, resource: ConfigResource) -> dict[str, str]:
    return dict(cluster.controller.image.config_of(resource))


def test_set_and_delete(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, ("a", SET, "1"), ("b", SET, "2")) == ErrorCode.NONE
    assert change(cluster, TOPIC, ("a", DELETE, None), ("c", DELETE, None)) == ErrorCode.NONE
    assert configs(cluster, TOPIC) == {"b": "2"}


def test_append_starts_from_the_default(cluster: Cluster) -> None:
    policy = "cleanup.policy"
    change(cluster, TOPIC, (policy, APPEND, "compact,delete"))
    assert configs(cluster, TOPIC) == {policy: "delete,compact"}
    change(cluster, TOPIC, (policy, SUBTRACT, "delete"))
    assert configs(cluster, TOPIC) == {policy: "compact"}


@pytest.mark.parametrize("operation", [APPEND, SUBTRACT])
def test_only_lists_can_grow(cluster: Cluster, operation: int) -> None:
    assert change(cluster, TOPIC, ("retention.ms", operation, "1")) == ErrorCode.INVALID_CONFIG


def test_all_or_nothing_of_a_resource(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, ("a", SET, "1"), ("x", SET, "bad")) == ErrorCode.INVALID_CONFIG
    assert configs(cluster, TOPIC) == {}


@pytest.mark.parametrize(
    ("resource", "code"),
    [
        (ConfigResource.topic("no"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ConfigResource.broker(7), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ConfigResource(ResourceType.BROKER, "x"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.UNKNOWN, "x"), ErrorCode.INVALID_REQUEST),
        (ConfigResource(ResourceType.BROKER_LOGGER, "1"), ErrorCode.INVALID_REQUEST),
        (BROKER, ErrorCode.NONE),
        (CLUSTER_DEFAULTS, ErrorCode.NONE),
        (ConfigResource(ResourceType.GROUP, "g"), ErrorCode.NONE),
        (ConfigResource(ResourceType.CLIENT_METRICS, "m"), ErrorCode.NONE),
    ],
)
def test_resources(cluster: Cluster, resource: ConfigResource, code: ErrorCode) -> None:
    assert change(cluster, resource, ("a", SET, "1")) == code


@pytest.mark.parametrize(
    "bad",
    [
        [("a", SET, None)],
        [("a", 9, "1")],
        [("a", SET, "1"), ("a", DELETE, None)],
    ],
)
def test_malformed_changes(cluster: Cluster, bad: list[tuple[str, int, str | None]]) -> None:
    assert change(cluster, TOPIC, *bad) == ErrorCode.INVALID_REQUEST


def test_too_long_a_value(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, ("a", SET, "x" * 32_768)) == ErrorCode.INVALID_CONFIG


def test_validate_only(cluster: Cluster) -> None:
    assert change(cluster, TOPIC, ("a", SET, "1"), validate_only=True) == ErrorCode.NONE
    assert configs(cluster, TOPIC) == {}


def test_the_same_resource_twice_is_refused_twice(cluster: Cluster) -> None:
    resource = incremental.AlterConfigsResource(resource_type=2, resource_name="t")
    request = incremental.IncrementalAlterConfigsRequest(resources=[resource, resource])
    reply = cluster.apply(cluster.controller.incremental_alter_configs(request))
    assert [each.error_code for each in reply.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_the_same_value_again_is_a_record_for_brokers_only(cluster: Cluster) -> None:
    for resource, records in ((TOPIC, 0), (BROKER, 1)):
        change(cluster, resource, ("a", SET, "1"))
        start = len(cluster.log)
        change(cluster, resource, ("a", SET, "1"))
        assert len(cluster.log) - start == records


def test_replacing_deletes_what_is_not_named(cluster: Cluster) -> None:
    assert replace(cluster, TOPIC, {"a": "1", "b": "2"}) == ErrorCode.NONE
    assert replace(cluster, TOPIC, {"b": "3"}) == ErrorCode.NONE
    assert configs(cluster, TOPIC) == {"b": "3"}
    assert replace(cluster, TOPIC, {"a": None}) == ErrorCode.INVALID_REQUEST
    assert replace(cluster, TOPIC, {}) == ErrorCode.NONE
    assert TOPIC not in cluster.controller.image.configs


def test_min_isr_is_one_for_all_brokers_while_elr_is_on(cluster: Cluster) -> None:
    name = "min.insync.replicas"
    assert change(cluster, BROKER, (name, SET, "1")) == ErrorCode.INVALID_CONFIG
    assert change(cluster, CLUSTER_DEFAULTS, (name, DELETE, None)) == ErrorCode.INVALID_CONFIG
    assert change(cluster, CLUSTER_DEFAULTS, (name, SET, "2")) == ErrorCode.NONE
    assert cluster.log[-1].message == ClearElrRecord(topic_name="")
    assert change(cluster, TOPIC, (name, SET, "2")) == ErrorCode.NONE
    assert cluster.log[-1].message == ClearElrRecord(topic_name="t")
