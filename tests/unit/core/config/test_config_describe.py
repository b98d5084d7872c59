"""DescribeConfigs and the changes before it, as real Kafka 4.3.1 answered them.

``kafka_4_3_1.json`` holds the server.properties of a node, the incremental changes it was asked
for with what it said, and what it then described: value, source, read-only, sensitive, type,
synonyms.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.controller.config_changes import ConfigOperation
from odradek.controller.config_rules import TopicConfigRules
from odradek.core.config import (
    BrokerConfig,
    BrokerLevels,
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
    load_broker_config,
    parse_server_properties,
    reconfigure,
)
from odradek.metadata import ConfigResource, ResourceType
from odradek.protocol.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.unit.controller.cluster import Cluster, new_topic

KAFKA: dict[str, Any] = json.loads(Path(__file__).with_name("kafka_4_3_1.json").read_text())
TYPES = {"T": ResourceType.TOPIC, "B": ResourceType.BROKER}
# Our node has no such threads.
SAID_BY_OTHERS = ("thread count update",)


class Node:
    """What Kafka's node went through, done to our controller and its rules."""

    def __init__(self) -> None:
        source = parse_server_properties(KAFKA["properties"], "server.properties")
        self.config: BrokerConfig = load_broker_config(source).config
        self._cluster = Cluster(1, rules=TopicConfigRules(lambda: self.config))
        self._cluster.create(new_topic("t"))
        # Kafka sets this by itself when it formats a new cluster.
        assert self.alter("B", "", [["min.insync.replicas", "SET", "1"]]) == "ok"

    @property
    def levels(self) -> BrokerLevels:
        return self.config.levels

    def configs_of(self, kind: str, name: str) -> Mapping[str, str]:
        return self._cluster.controller.image.config_of(ConfigResource(TYPES[kind], name))

    def alter(self, kind: str, name: str, operations: Iterable[list[str]]) -> list[Any] | str:
        configs = [
            AlterableConfig(name=each, config_operation=ConfigOperation[operation], value=text)
            for each, operation, text in operations
        ]
        resource = AlterConfigsResource(
            resource_type=TYPES[kind], resource_name=name, configs=configs
        )
        request = IncrementalAlterConfigsRequest(resources=[resource])
        reply = self._cluster.apply(self._cluster.controller.incremental_alter_configs(request))
        defaults, own = self.configs_of("B", ""), self.configs_of("B", "1")
        self.config = reconfigure(self.config, defaults, own)
        (answer,) = reply.responses
        return [answer.error_code, answer.error_message] if answer.error_code else "ok"


@pytest.fixture(scope="module")
def node() -> Node:
    node = Node()
    for kind, name, operations, said in KAFKA["alter"]:
        if any(words in said[-1] for words in SAID_BY_OTHERS):
            continue
        answer = node.alter(kind, name, operations)
        if "requirement failed" in said[1]:
            # Whether configs fit together is put in our own words.
            assert answer[0] == said[0], operations
            assert answer[1].startswith("requirement failed: log."), answer
        else:
            assert answer == said, operations
    return node


def as_kafka_says(entries: list[ConfigEntry]) -> dict[str, Any]:
    return {
        entry.name: [
            entry.value,
            entry.source,
            entry.read_only,
            entry.is_sensitive,
            entry.type,
            [[synonym.name, synonym.value, synonym.source] for synonym in entry.synonyms],
        ]
        for entry in entries
    }


def test_a_topic_with_overrides_at_every_level(node: Node) -> None:
    assert as_kafka_says(describe_topic(node.levels, node.configs_of("T", "t"))) == KAFKA["topic"]


def test_a_topic_without_overrides(node: Node) -> None:
    assert as_kafka_says(describe_topic(node.levels, {})) == KAFKA["plain"]


def test_a_broker(node: Node) -> None:
    assert as_kafka_says(describe_broker(node.levels)) == KAFKA["broker"]


def test_the_defaults_of_all_brokers(node: Node) -> None:
    defaults = describe_broker_defaults(node.configs_of("B", ""))
    assert as_kafka_says(defaults) == KAFKA["default"]


def test_one_config_of_a_topic_in_full() -> None:
    levels = BrokerLevels(
        {"log.retention.hours": "2", "log.retention.ms": "3000"},
        {"log.retention.ms": "4000"},
        {"log.retention.ms": "5000"},
    )
    (entry,) = describe_topic(levels, {"retention.ms": " 6000"}, ["retention.ms"])
    assert entry == ConfigEntry(
        name="retention.ms",
        value="6000",
        source=ConfigSource.DYNAMIC_TOPIC_CONFIG,
        read_only=False,
        is_sensitive=False,
        type=ConfigType.LONG,
        synonyms=(
            ConfigSynonym("retention.ms", "6000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ConfigSynonym("log.retention.ms", "5000", ConfigSource.DYNAMIC_BROKER_CONFIG),
            ConfigSynonym("log.retention.ms", "4000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            ConfigSynonym("log.retention.ms", "3000", ConfigSource.STATIC_BROKER_CONFIG),
            ConfigSynonym("log.retention.hours", "2", ConfigSource.STATIC_BROKER_CONFIG),
            ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
        ),
        documentation="How long records are kept; -1 is for ever.",
    )
    assert not entry.is_default


def test_static_hours_are_said_to_be_the_default_as_in_kafka() -> None:
    (entry,) = describe_topic(BrokerLevels({"log.retention.hours": "2"}), {}, ["retention.ms"])
    assert (entry.value, entry.is_default, entry.synonyms) == ("7200000", True, ())


def test_only_what_is_asked_for_is_described() -> None:
    names = ["segment.bytes", "no.such", "retention.ms"]
    entries = describe_topic(BrokerLevels(), {}, names)
    assert [entry.name for entry in entries] == ["retention.ms", "segment.bytes"]
    assert len(describe_topic(BrokerLevels(), {}, [])) == 33
    assert describe_broker(BrokerLevels(), ["leader.replication.throttled.rate"]) == []


def test_secrets_are_never_shown() -> None:
    levels = BrokerLevels({"ssl.key.password": "a", "mine": "b"}, {}, {"ssl.key.password": "c"})
    for entry in describe_broker(levels, ["ssl.key.password", "mine"]):
        assert entry.is_sensitive
        assert entry.value is None
        assert {synonym.value for synonym in entry.synonyms} == {None}


def test_a_group_falls_back_to_its_broker() -> None:
    levels = BrokerLevels({"group.consumer.session.timeout.ms": "50000"})
    group = {"share.isolation.level": "read_committed"}
    entries = {entry.name: entry for entry in describe_group(levels, group)}
    assert len(entries) == 17
    session = entries["consumer.session.timeout.ms"]
    assert (session.value, session.source) == ("50000", ConfigSource.STATIC_BROKER_CONFIG)
    isolation = entries["share.isolation.level"]
    assert [(each.name, each.value, each.source) for each in isolation.synonyms] == [
        ("share.isolation.level", "read_committed", 8),
        ("share.isolation.level", "read_uncommitted", 5),
    ]


def test_a_subscription_to_client_metrics() -> None:
    entries = describe_client_metrics({"metrics": "org.apache.kafka.producer. , x"})
    assert {entry.name: (entry.value, entry.source) for entry in entries} == {
        "interval.ms": ("300000", ConfigSource.DEFAULT_CONFIG),
        "match": ("", ConfigSource.DEFAULT_CONFIG),
        "metrics": ("org.apache.kafka.producer.,x", ConfigSource.DYNAMIC_CLIENT_METRICS_CONFIG),
    }
