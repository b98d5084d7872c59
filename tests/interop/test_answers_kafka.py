"""What suites of other clients ask: our answers beside a real Kafka's.

Authorized operations, ACLs and SCRAM credentials without an authorizer; a topic that is just being
created; leader epochs of a partition that was never written.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any, Final

import pytest

from odradek.client import BlockingAdmin, NewTopic
from odradek.core.ids import TopicPartition, Uuid
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated import (
    alter_user_scram_credentials,
    consumer_group_describe,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_groups,
    describe_topic_partitions,
    describe_user_scram_credentials,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from odradek.protocol.message import Message
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.interop.kafka_peer import KafkaNode

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("kafka_libs")]

Rows = list[tuple[Any, ...]]

UNKNOWN_ID: Final = Uuid.from_text("AAAAAAAAQACAAAAAAAAAAQ")
NAMES: Final = ("orders", "ghost", "a b", "__transaction_state")
GROUPS: Final = ["g", "ghost", ""]


# The requests: each with the version it is asked in, None for the newest.


def topics(
    *names: str, asked: bool, cluster: bool = False, creates: bool = False
) -> metadata.MetadataRequest:
    return metadata.MetadataRequest(
        topics=[metadata.MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=creates,
        include_topic_authorized_operations=asked,
        include_cluster_authorized_operations=cluster,
    )


def by_id() -> metadata.MetadataRequest:
    topic = metadata.MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)
    return metadata.MetadataRequest(topics=[topic], include_topic_authorized_operations=True)


def cluster(endpoint_type: int, *, asked: bool) -> Message:
    return describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=asked, endpoint_type=endpoint_type
    )


def classic(*, asked: bool) -> Message:
    return describe_groups.DescribeGroupsRequest(groups=GROUPS, include_authorized_operations=asked)


def acl_requests() -> Iterator[tuple[str, Message]]:
    yield (
        "describe",
        describe_acls.DescribeAclsRequest(
            resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
        ),
    )
    creation = create_acls.AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    )
    chosen = delete_acls.DeleteAclsFilter(
        resource_type_filter=2, pattern_type_filter=3, operation=3, permission_type=3
    )
    for count in (0, 1, 2):
        yield f"create {count}", create_acls.CreateAclsRequest(creations=[creation] * count)
        yield f"delete {count}", delete_acls.DeleteAclsRequest(filters=[chosen] * count)


def upsert(
    name: str, mechanism: int = 1, iterations: int = 8192, salt: bytes = b"s", salted: bytes = b"p"
) -> alter_user_scram_credentials.ScramCredentialUpsertion:
    return alter_user_scram_credentials.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=salt, salted_password=salted
    )


def delete(name: str, mechanism: int = 1) -> alter_user_scram_credentials.ScramCredentialDeletion:
    return alter_user_scram_credentials.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    *upsertions: alter_user_scram_credentials.ScramCredentialUpsertion,
    gone: Iterable[alter_user_scram_credentials.ScramCredentialDeletion] = (),
) -> Message:
    return alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        upsertions=list(upsertions), deletions=list(gone)
    )


def users(*names: str) -> Message:
    return describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=[describe_user_scram_credentials.UserName(name=name) for name in names]
    )


def quotas(*components: tuple[str, int, str | None], strict: bool = False) -> Message:
    return describe_client_quotas.DescribeClientQuotasRequest(
        components=[
            describe_client_quotas.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )


EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def fetch_after(epoch: int, offset: int, current: int) -> Message:
    partition = fetch.FetchPartition(
        fetch_offset=offset,
        last_fetched_epoch=epoch,
        current_leader_epoch=current,
        partition_max_bytes=1000,
    )
    topic = fetch.FetchTopic(topic="orders", partitions=[partition])
    return fetch.FetchRequest(max_wait_ms=0, max_bytes=1000, topics=[topic])


def end_of(epoch: int, current: int) -> Message:
    partition = offset_for_leader_epoch.OffsetForLeaderPartition(
        leader_epoch=epoch, current_leader_epoch=current
    )
    topic = offset_for_leader_epoch.OffsetForLeaderTopic(topic="orders", partitions=[partition])
    return offset_for_leader_epoch.OffsetForLeaderEpochRequest(topics=[topic])


def offset_at(timestamp: int) -> Message:
    partition = list_offsets.ListOffsetsPartition(timestamp=timestamp)
    topic = list_offsets.ListOffsetsTopic(name="orders", partitions=[partition])
    return list_offsets.ListOffsetsRequest(replica_id=-1, topics=[topic])


EVERYBODY: Final = describe_user_scram_credentials.DescribeUserScramCredentialsRequest(users=None)
CASES: Final[dict[str, tuple[Message, int | None]]] = {
    **{
        f"metadata {version} {asked}": (topics(*NAMES, asked=asked, cluster=asked), version)
        for version in (8, 9, 10)
        for asked in (True, False)
    },
    **{
        f"metadata {version} {asked}": (topics(*NAMES, asked=asked), version)
        for version in (11, 12, 13)
        for asked in (True, False)
    },
    "metadata of an unknown id": (by_id(), None),
    # A topic that is just being created.
    **{
        f"metadata {version} that creates": (
            topics(f"new-{version}", asked=version >= 8, creates=True),
            version,
        )
        for version in (4, 8, 13)
    },
    **{
        f"cluster {kind} {asked}": (cluster(kind, asked=asked), None)
        for kind in (1, 2, 3)
        for asked in (True, False)
    },
    "topic partitions": (
        describe_topic_partitions.DescribeTopicPartitionsRequest(
            topics=[describe_topic_partitions.TopicRequest(name=name) for name in NAMES]
        ),
        None,
    ),
    **{
        f"groups {version} {asked}": (classic(asked=asked), version)
        for version in (3, 5, 6)
        for asked in (True, False)
    },
    "consumer groups": (
        consumer_group_describe.ConsumerGroupDescribeRequest(
            group_ids=GROUPS, include_authorized_operations=True
        ),
        None,
    ),
    **{
        f"{name} acls {version}": (request, version)
        for name, request in acl_requests()
        for version in (1, 2, 3)
    },
    "nobody": (EVERYBODY, None),
    "a stranger": (users("ghost"), None),
    "set": (alter(upsert("ann"), upsert("bob", 2), upsert("cy", 2, 4096)), None),
    "set nothing": (alter(), None),
    "set the other mechanism": (alter(upsert("ann", 2, 16_384)), None),
    "set twice": (alter(upsert("dan"), upsert("dan", 2)), None),
    "set and delete": (alter(upsert("ann", 2), gone=[delete("ann")]), None),
    "set what is wrong": (
        alter(
            upsert(""), upsert("e", 0), upsert("f", 3), upsert("g", 1, 4095), upsert("h", 1, 16_385)
        ),
        None,
    ),
    "set without salt": (alter(upsert("saltless", salt=b"")), None),
    "set without password": (alter(upsert("free", salted=b"")), None),
    "delete what is not there": (
        alter(gone=[delete("zed"), delete(""), delete("bob", 1), delete("cy", 7)]),
        None,
    ),
    "delete twice": (alter(gone=[delete("bob", 2), delete("bob", 2)]), None),
    "everybody": (EVERYBODY, None),
    "some": (users("ann", "zed", "ann", "bob", ""), None),
    "delete": (alter(gone=[delete("ann"), delete("bob", 2)]), None),
    "who is left": (EVERYBODY, None),
    "all quotas": (quotas(), None),
    "quotas of users": (quotas(("user", SPECIFIED, None), strict=True), 0),
    "quotas of one": (quotas(("user", EXACT, "ann")), None),
    "quotas of nothing": (quotas(("", EXACT, "ann")), None),
    "quotas twice": (quotas(("user", EXACT, "ann"), ("user", DEFAULT, None)), None),
    "quotas of a planet": (quotas(("planet", EXACT, "mars")), None),
    "quotas of an address too": (quotas(("ip", EXACT, "::1"), ("user", DEFAULT, None)), None),
    "quotas of no name": (quotas(("user", EXACT, None)), None),
    "quotas of a named default": (quotas(("user", DEFAULT, "ann")), None),
    "quotas of any by name": (quotas(("user", SPECIFIED, "ann")), None),
    "quotas by chance": (quotas(("user", 7, None)), None),
    # An epoch begins with leadership, not with the first record.
    **{
        f"fetch {offset} after {epoch}, knowing {current}": (
            fetch_after(epoch, offset, current),
            12,
        )
        for epoch in (-1, 0, 1)
        for offset in (0, 1)
        for current in (-1, 0, 1)
    },
    **{
        f"end of {epoch}, knowing {current}": (end_of(epoch, current), None)
        for epoch in (-1, 0, 1)
        for current in (-1, 0, 1)
    },
    **{f"offset at {timestamp}": (offset_at(timestamp), None) for timestamp in (-1, -2, -3, 5)},
}


# The answers.


def rows_of(response: Any) -> Rows:
    """Flatten an answer to what both brokers must agree on, in an order of its own."""
    rows: Rows = [
        (
            getattr(response, "error_code", None),
            getattr(response, "error_message", None),
            getattr(response, "endpoint_type", None),
            getattr(response, "cluster_authorized_operations", None),
        )
    ]
    if isinstance(response, EPOCH_ANSWERS):
        return list(partition_rows(response))
    for each in getattr(response, "topics", ()):
        count = len(each.partitions)
        rows.append(
            (each.name, each.error_code, each.is_internal, count, each.topic_authorized_operations)
        )
    if hasattr(response, "entries"):
        rows.append((response.entries,))
    for each in getattr(response, "groups", ()):
        state = (each.group_state, each.authorized_operations)
        rows.append((each.group_id, each.error_code, each.error_message, *state))
    for each in getattr(response, "filter_results", ()):
        rows.append((each.error_code, each.error_message, len(each.matching_acls)))
    for each in getattr(response, "results", ()):
        infos = sorted(
            (info.mechanism, info.iterations) for info in getattr(each, "credential_infos", ())
        )
        rows.append((getattr(each, "user", None), each.error_code, each.error_message, infos))
    return sorted(rows, key=str)


EPOCH_ANSWERS: Final = (
    fetch.FetchResponse,
    offset_for_leader_epoch.OffsetForLeaderEpochResponse,
    list_offsets.ListOffsetsResponse,
)
EPOCH_FIELDS: Final = ("error_code", "diverging_epoch", "leader_epoch", "end_offset", "offset")
END_FIELDS: Final = ("high_watermark", "last_stable_offset", "log_start_offset", "timestamp")


def partition_rows(response: Any) -> Iterator[tuple[Any, ...]]:
    yield (getattr(response, "error_code", None),)
    for topic in getattr(response, "responses", None) or response.topics:
        for each in topic.partitions:
            yield tuple(str(getattr(each, name, None)) for name in (*EPOCH_FIELDS, *END_FIELDS))


def answers(servers: str, expected: dict[str, Rows] | None = None) -> dict[str, Rows]:
    """Return the answers to all cases.

    A Kafka's broker learns a moment after its controller what users there are: it is asked for
    them until it says what is expected.
    """
    with BlockingAdmin(bootstrap_servers=servers) as admin:
        admin.create_topics([NewTopic("orders", 1)]).unwrap()
        admin.alter_group_offsets("g", {TopicPartition("orders", 0): 0}).unwrap()
    found = {}
    port = int(servers.rpartition(":")[2])
    for name, (request, version) in CASES.items():
        response = api_for_key(request.ID).response()
        deadline = monotonic() + 60
        with BrokerConnection(port) as connection:
            found[name] = rows_of(connection.ask(request, response, version))
            while expected and name in SETTLING and found[name] != expected[name]:
                assert monotonic() < deadline, (name, found[name], expected[name])
                found[name] = rows_of(connection.ask(request, response, version))
    return found


SETTLING: Final = ("everybody", "some", "who is left")
NO_PASSWORD: tuple[Any, ...] = ("free", 93, "Salted password must not be empty", [])


def test_answers_are_those_of_a_real_kafka(tmp_path: Path) -> None:
    with Broker(config={"node.id": "1"}, memory=True) as broker:
        ours = answers(broker.bootstrap_servers)
    with KafkaNode(tmp_path / "data") as node:
        theirs = answers(node.bootstrap_servers, ours)
    # Kafka falls over it with UNKNOWN_SERVER_ERROR; we say what is wrong.
    assert ("free", -1, None, []) in theirs.pop("set without password")
    assert NO_PASSWORD in ours.pop("set without password")
    assert {name: rows for name, rows in ours.items() if rows != theirs[name]} == {}
