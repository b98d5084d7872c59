"""What an administrator is told: bad requests, our code and words beside a real Kafka's.

People search for these messages, and scripts look for them: they are part of the interface. The
same requests go to both; each answer is flattened to rows of what it is about, code and message.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.client import BlockingAdmin, NewTopic
from odradek.core.ids import ZERO_UUID, Uuid
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
    update_features,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode
from tests.interop.ports import free_ports

Rows = list[tuple[Any, ...]]

TOPICS: Final = {"orders": 2, "pay.ments": 1}
UNKNOWN_ID: Final = Uuid.from_text("AAAAAAAAQACAAAAAAAAAAQ")
TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3


# The requests.


def new(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    assignments: Mapping[int, list[int]] | None = None,
    /,
    **configs: str | None,
) -> create_topics.CreatableTopic:
    return create_topics.CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in (assignments or {}).items()
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )


def create(*topics: create_topics.CreatableTopic) -> Message:
    return create_topics.CreateTopicsRequest(topics=list(topics), validate_only=True)


def twice(topic: create_topics.CreatableTopic) -> create_topics.CreatableTopic:
    topic.assignments *= 2
    return topic


def grow(*topics: tuple[str, int, list[list[int]] | None]) -> Message:
    return create_partitions.CreatePartitionsRequest(
        topics=[
            create_partitions.CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [
                    create_partitions.CreatePartitionsAssignment(broker_ids=ids)
                    for ids in assignments
                ],
            )
            for name, count, assignments in topics
        ],
        timeout_ms=30_000,
        validate_only=True,
    )


def delete(*topics: tuple[str | None, Uuid]) -> Message:
    states = [delete_topics.DeleteTopicState(name=name, topic_id=id_) for name, id_ in topics]
    return delete_topics.DeleteTopicsRequest(topics=states, timeout_ms=30_000)


def alter(kind: int, name: str, *changes: tuple[str, int, str | None], times: int = 1) -> Message:
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(
                name=config, config_operation=operation, value=value
            )
            for config, operation, value in changes
        ],
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[resource] * times, validate_only=True
    )


def replace(kind: int, name: str, times: int = 1, /, **configs: str | None) -> Message:
    resource = alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            alter_configs.AlterableConfig(name=config.replace("_", "."), value=value)
            for config, value in configs.items()
        ],
    )
    return alter_configs.AlterConfigsRequest(resources=[resource] * times, validate_only=True)


def elect(kind: int, *partitions: tuple[str, list[int]]) -> Message:
    return elect_leaders.ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[
            elect_leaders.TopicPartitions(topic=topic, partitions=numbers)
            for topic, numbers in partitions
        ],
    )


def features(*updates: tuple[str, int, int]) -> Message:
    return update_features.UpdateFeaturesRequest(
        feature_updates=[
            update_features.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind
            )
            for name, level, kind in updates
        ],
        validate_only=True,
    )


CASES: Final[dict[str, Message]] = {
    # CreateTopics
    "exists": create(new("orders")),
    "no name": create(new("")),
    "dot": create(new(".")),
    "dots": create(new("..")),
    "long name": create(new("x" * 250)),
    "bad characters": create(new("a b")),
    "other script": create(new("ördér")),
    "collides": create(new("pay_ments")),
    "named twice": create(new("twin"), new("twin")),
    "metadata topic": create(new("__cluster_metadata")),
    "no partitions": create(new("t", 0)),
    "negative partitions": create(new("t", -2)),
    "no replicas": create(new("t", 1, 0)),
    "negative factor": create(new("t", 1, -2)),
    "both wrong": create(new("t", 0, 0)),
    "too many replicas": create(new("t", 1, 3)),
    "too many partitions": create(new("t", 10_001)),
    "too many records": create(*(new(f"t{number}") for number in range(5_001))),
    "the most records": create(*(new(f"t{number}") for number in range(5_000))),
    "assigned and factor": create(new("t", -1, 1, {0: [1]})),
    "assigned and count": create(new("t", 1, -1, {0: [1]})),
    "assigned twice": create(twice(new("t", -1, -1, {0: [1]}))),
    "assigned with a gap": create(new("t", -1, -1, {0: [1], 2: [1]})),
    "assigned nobody": create(new("t", -1, -1, {0: []})),
    "assigned a stranger": create(new("t", -1, -1, {0: [7]})),
    "assigned a negative broker": create(new("t", -1, -1, {0: [-3]})),
    "assigned one broker twice": create(new("t", -1, -1, {0: [1, 1]})),
    "assigned unevenly": create(new("t", -1, -1, {0: [1], 1: [1, 2]})),
    "unknown config": create(new("t", no_such="1")),
    "config without value": create(new("t", retention_ms=None)),
    "config not a number": create(new("t", retention_ms="soon")),
    "config out of range": create(new("t", retention_ms="-2")),
    "config not in the list": create(new("t", cleanup_policy="burn")),
    "config not a boolean": create(new("t", preallocate="maybe")),
    "configs in conflict": create(new("t", min_compaction_lag_ms="10", max_compaction_lag_ms="5")),
    "no compression": create(new("t", compression_type="rar")),
    "one good, one bad": create(new("fine"), new("a b")),
    # CreatePartitions
    "grow a stranger": grow(("nobody", 3, None)),
    "grow by nothing": grow(("orders", 2, None)),
    "shrink": grow(("orders", 1, None)),
    "grow twice": grow(("orders", 3, None), ("orders", 4, None)),
    "grow far": grow(("orders", 20_000, None)),
    "grow with too few assignments": grow(("orders", 4, [[1]])),
    "grow with too many assignments": grow(("orders", 3, [[1], [1]])),
    "grow on a stranger": grow(("orders", 3, [[9]])),
    "grow on nobody": grow(("orders", 3, [[]])),
    "grow with more replicas": grow(("orders", 3, [[1, 2]])),
    "grow on one broker twice": grow(("orders", 3, [[1, 1]])),
    "grow a bad name": grow(("a b", 3, None)),
    "grow to a negative number": grow(("orders", -1, None)),
    # DeleteTopics
    "delete a stranger": delete(("nobody", ZERO_UUID)),
    "delete an unknown id": delete((None, UNKNOWN_ID)),
    "delete nothing": delete((None, ZERO_UUID)),
    "delete by both": delete(("orders", UNKNOWN_ID)),
    "delete twice": delete(("orders", ZERO_UUID), ("orders", ZERO_UUID)),
    "delete an id twice": delete((None, UNKNOWN_ID), (None, UNKNOWN_ID)),
    # IncrementalAlterConfigs
    "alter a stranger": alter(TOPIC, "nobody", ("retention.ms", SET, "1")),
    "alter no topic": alter(TOPIC, "", ("retention.ms", SET, "1")),
    "alter a bad name": alter(TOPIC, "a b", ("retention.ms", SET, "1")),
    "alter the unknown": alter(TOPIC, "orders", ("no.such", SET, "1")),
    "alter to no number": alter(TOPIC, "orders", ("retention.ms", SET, "x")),
    "alter to nothing": alter(TOPIC, "orders", ("retention.ms", SET, None)),
    "alter two to nothing": alter(
        TOPIC, "orders", ("retention.ms", SET, None), ("retention.bytes", SET, None)
    ),
    "append nothing": alter(TOPIC, "orders", ("cleanup.policy", APPEND, None)),
    "append to a number": alter(TOPIC, "orders", ("retention.ms", APPEND, "1")),
    "subtract from a number": alter(TOPIC, "orders", ("retention.ms", SUBTRACT, "1")),
    "append to the unknown": alter(TOPIC, "orders", ("no.such", APPEND, "1")),
    "unknown operation": alter(TOPIC, "orders", ("retention.ms", 9, "1")),
    "alter one config twice": alter(
        TOPIC, "orders", ("retention.ms", SET, "1"), ("retention.ms", SET, "2")
    ),
    "alter twice": alter(TOPIC, "orders", ("retention.ms", SET, "1"), times=2),
    "append at length": alter(TOPIC, "orders", ("cleanup.policy", APPEND, "x" * 32_767)),
    "alter an unknown kind": alter(77, "x", ("a", SET, "1")),
    "alter nobody's broker": alter(BROKER, "9", ("log.cleaner.threads", SET, "1")),
    "alter no broker id": alter(BROKER, "x", ("log.cleaner.threads", SET, "1")),
    "alter a read-only config": alter(BROKER, "1", ("log.dirs", SET, "/x")),
    "alter read-only configs": alter(BROKER, "", ("node.id", SET, "3"), ("log.dir", SET, "/x")),
    "alter a broker to no number": alter(BROKER, "1", ("log.cleaner.threads", SET, "x")),
    "alter a broker out of range": alter(BROKER, "1", ("log.cleaner.threads", SET, "-1")),
    "alter every keystore": alter(BROKER, "", ("ssl.keystore.location", SET, "/x")),
    "alter a keystore of all listeners": alter(BROKER, "1", ("ssl.keystore.location", SET, "/x")),
    "append to a broker's number": alter(BROKER, "1", ("log.cleaner.threads", APPEND, "1")),
    "min isr of one broker": alter(BROKER, "1", ("min.insync.replicas", SET, "1")),
    "no min isr": alter(BROKER, "", ("min.insync.replicas", DELETE, None)),
    "alter a logger": alter(LOGGER, "1", ("kafka", SET, "LOUD")),
    "delete the root logger": alter(LOGGER, "1", ("root", DELETE, None)),
    "alter an unknown logger": alter(LOGGER, "1", ("no.such.logger", SET, "INFO")),
    "append to a logger": alter(LOGGER, "1", ("kafka", APPEND, "INFO")),
    "alter another's logger": alter(LOGGER, "9", ("kafka", SET, "INFO")),
    "alter a group's unknown": alter(GROUP, "g", ("no.such", SET, "1")),
    "alter a group out of bounds": alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "1")),
    "alter a group to no number": alter(GROUP, "g", ("consumer.session.timeout.ms", SET, "x")),
    "alter no group": alter(GROUP, "", ("consumer.session.timeout.ms", SET, "45000")),
    "alter metrics' unknown": alter(CLIENT_METRICS, "m", ("no.such", SET, "1")),
    "alter metrics' interval": alter(CLIENT_METRICS, "m", ("interval.ms", SET, "1")),
    "alter metrics' match": alter(CLIENT_METRICS, "m", ("match", SET, "nonsense")),
    "alter no metrics": alter(CLIENT_METRICS, "", ("interval.ms", SET, "1000")),
    # AlterConfigs
    "replace a stranger's": replace(TOPIC, "nobody", retention_ms="1"),
    "replace by the unknown": replace(TOPIC, "orders", no_such="1"),
    "replace by no number": replace(TOPIC, "orders", retention_ms="x"),
    "replace by nothing": replace(TOPIC, "orders", retention_ms=None),
    "replace an unknown kind": replace(77, "x", a="1"),
    "replace a logger's": replace(LOGGER, "1", kafka="INFO"),
    "replace nobody's broker's": replace(BROKER, "9", log_cleaner_threads="1"),
    "replace a read-only config": replace(BROKER, "1", log_dirs="/x"),
    # ElectLeaders
    "elect for a stranger": elect(0, ("nobody", [0])),
    "elect for no such partition": elect(0, ("orders", [5])),
    "elect without need": elect(0, ("orders", [0])),
    "elect uncleanly without need": elect(1, ("orders", [0])),
    "elect a bad name": elect(0, ("a b", [0])),
    # UpdateFeatures
    "unknown feature": features(("no.such", 1, 1)),
    "level too high": features(("metadata.version", 10_000, 1)),
    "level too low": features(("metadata.version", 1, 2)),
    "negative level": features(("metadata.version", -1, 2)),
    "downgrade as upgrade": features(("metadata.version", 20, 1)),
    "downgrade that loses": features(("metadata.version", 7, 2)),
    "unsafe downgrade": features(("metadata.version", 7, 3)),
    "upgrade as downgrade": features(("share.version", 2, 2)),
    "unknown upgrade type": features(("metadata.version", 20, 9)),
    "level of a feature too high": features(("transaction.version", 9, 1)),
    "kraft version too high": features(("kraft.version", 5, 1)),
    "kraft version downgraded": features(("kraft.version", 0, 2)),
    "kraft version downgraded as upgrade": features(("kraft.version", 0, 1)),
    "feature twice": features(("transaction.version", 2, 1), ("transaction.version", 1, 1)),
    "one feature of two": features(("transaction.version", 2, 1), ("no.such", 1, 1)),
}


# The answers.


def rows_of(response: Any) -> Iterator[tuple[Any, ...]]:
    if hasattr(response, "error_code"):
        yield "", response.error_code, getattr(response, "error_message", None)
    for topic in getattr(response, "topics", ()):
        yield topic.name, topic.error_code, topic.error_message
    for result in getattr(response, "results", ()):
        name = getattr(result, "name", None) or getattr(result, "feature", None)
        yield name, result.error_code, result.error_message
    for each in getattr(response, "responses", ()):
        kind = getattr(each, "resource_type", None)
        name = each.resource_name if kind is not None else (each.name, str(each.topic_id))
        yield kind, name, each.error_code, each.error_message
    for topic in getattr(response, "replica_election_results", ()):
        for result in topic.partition_result:
            yield topic.topic, result.partition_id, result.error_code, result.error_message


def answers(servers: str) -> dict[str, Rows]:
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic(name, count) for name, count in TOPICS.items()]).unwrap()
        # A Kafka was formatted with it; it comes down to nothing there.
        admin.update_features({"kraft.version": 1}).unwrap()
    found = {}
    for name, request in CASES.items():
        response = api_for_key(request.ID).response()
        # One for each: a request that is hung up on spoils no other.
        with BrokerConnection(int(servers.rpartition(":")[2])) as connection:
            try:
                found[name] = sorted(rows_of(connection.ask(request, response)), key=str)
            except ConnectionError:
                found[name] = [("hung up",)]
    return found


# What differs, and why.

LOGGERS: Final = "levels of loggers cannot be altered yet"
OUR_FAULT: Final = "Kafka falls over it with UNKNOWN_SERVER_ERROR; we say what is wrong"
EXCEPTIONS: Final[dict[str, tuple[Rows, str]]] = {
    "grow far": ([("orders", 44, "more than 10000 records: split the request")], OUR_FAULT),
    "unknown operation": ([(2, "orders", 42, "Unknown operations type 9")], OUR_FAULT),
    "alter read-only configs": (
        [(4, "", 42, "Cannot update these configs dynamically: [log.dir, node.id]")],
        "Kafka names them in the order of a hash, we sort",
    ),
    "alter metrics' match": (
        [
            (
                16,
                "m",
                40,
                "Illegal client matching pattern: nonsense (write one of client_id, "
                "client_instance_id, client_software_name, client_software_version, "
                "client_source_address, client_source_port, =, a pattern)",
            )
        ],
        "we say what would be legal",
    ),
    **{
        case: ([(LOGGER, node, 42, "Unknown resource type 8")], LOGGERS)
        for case, node in (
            ("alter a logger", "1"),
            ("delete the root logger", "1"),
            ("alter an unknown logger", "1"),
            ("append to a logger", "1"),
            ("alter another's logger", "9"),
        )
    },
}
# Not among the cases: AlterConfigs with one resource twice, which Kafka 4.3 never answers.

(CONTROLLER_PORT,) = free_ports(1)
OURS: Final = {
    "node.id": "1",
    "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{CONTROLLER_PORT}",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
}


@pytest.mark.slow
@pytest.mark.kafka
def test_code_and_words_are_those_of_a_real_kafka(kafka_libs: Path, tmp_path: Path) -> None:
    with KafkaNode(tmp_path / "data") as node:
        theirs = answers(node.bootstrap_servers)
    with Broker(config=OURS, memory=True) as broker:
        ours = answers(broker.bootstrap_servers)
    differing = {name: rows for name, rows in ours.items() if rows != theirs[name]}
    assert differing == {name: rows for name, (rows, _) in EXCEPTIONS.items()}
    assert [("hung up",)] not in theirs.values()
