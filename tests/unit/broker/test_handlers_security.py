"""Without an authorizer: what a client may do, ACLs refused, SCRAM credentials kept."""

from pathlib import Path
from threading import Event

import pytest

from odradek.controller.result import Result
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.core.scram import ScramMechanism, keys_of
from odradek.metadata.record_versions import VersionedRecord
from odradek.metadata.snapshots import SnapshotReader
from odradek.metadata.touched import ScramKey
from odradek.protocol.generated import alter_user_scram_credentials as altering
from odradek.protocol.generated import create_acls, delete_acls, describe_acls
from odradek.protocol.generated import describe_client_quotas as quotas
from odradek.protocol.generated import describe_user_scram_credentials as describing
from odradek.protocol.generated.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.describe_groups import (
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from odradek.protocol.generated.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from odradek.protocol.generated.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from odradek.protocol.generated.metadata_records import (
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from odradek.testing.broker import Broker
from tests.broker_connection import BrokerConnection
from tests.transaction_requests import GROUP_KEY, find_coordinator

NOT_ASKED_FOR = -(2**31)
# What Kafka 4.3.1 answers without an authorizer (tests/interop/test_answers_kafka.py).
OF_A_TOPIC, OF_A_GROUP, OF_A_CLUSTER = 3576, 3400, 8096
UNKNOWN_ID = Uuid.from_text("AAAAAAAAQACAAAAAAAAAAQ")
SALTED = b"\x01" * 32


# Authorized operations.


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_reports_what_a_client_may_do(
    broker: Broker, connection: BrokerConnection, version: int
) -> None:
    broker.create_topic("orders")
    has_cluster = version <= 10

    def operations(asked: bool) -> tuple[list[int], int]:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in ("orders", "ghost", "a b")],
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=asked,
            include_cluster_authorized_operations=asked and has_cluster,
        )
        response = connection.ask(request, MetadataResponse, version)
        topics = [topic.topic_authorized_operations for topic in response.topics]
        return topics, response.cluster_authorized_operations

    assert operations(True) == ([OF_A_TOPIC] * 3, OF_A_CLUSTER if has_cluster else NOT_ASKED_FOR)
    assert operations(False) == ([NOT_ASKED_FOR] * 3, NOT_ASKED_FOR)


def test_a_topic_id_that_means_nothing_has_no_operations(connection: BrokerConnection) -> None:
    topic = MetadataRequestTopic(topic_id=UNKNOWN_ID, name=None)
    request = MetadataRequest(topics=[topic], include_topic_authorized_operations=True)
    (found,) = connection.ask(request, MetadataResponse).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found.topic_authorized_operations == NOT_ASKED_FOR


@pytest.mark.parametrize(("asked", "expected"), [(True, OF_A_CLUSTER), (False, NOT_ASKED_FOR)])
def test_a_cluster_reports_what_a_client_may_do(
    connection: BrokerConnection, asked: bool, expected: int
) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=asked)
    response = connection.ask(request, DescribeClusterResponse)
    assert response.cluster_authorized_operations == expected


@pytest.mark.parametrize(
    ("endpoint_type", "refusal"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (3, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_a_broker_does_not_answer_for_other_endpoints(
    connection: BrokerConnection, endpoint_type: int, refusal: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    assert connection.ask(request, DescribeClusterResponse).error_code == refusal


def test_described_partitions_come_with_operations_unasked(
    broker: Broker, connection: BrokerConnection
) -> None:
    broker.create_topic("orders")
    topics = [TopicRequest(name=name) for name in ("orders", "ghost")]
    request = DescribeTopicPartitionsRequest(topics=topics)
    response = connection.ask(request, DescribeTopicPartitionsResponse)
    assert [each.topic_authorized_operations for each in response.topics] == [OF_A_TOPIC] * 2


def test_groups_report_what_a_client_may_do(connection: BrokerConnection) -> None:
    find_coordinator(connection, "g", GROUP_KEY)

    def classic(version: int, asked: bool) -> int:
        request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=asked)
        (group,) = connection.ask(request, DescribeGroupsResponse, version).groups
        return group.authorized_operations

    assert classic(5, True) == OF_A_GROUP
    assert classic(5, False) == NOT_ASKED_FOR
    assert classic(6, True) == NOT_ASKED_FOR  # an error from here on: there is no such group
    request = ConsumerGroupDescribeRequest(group_ids=["g"], include_authorized_operations=True)
    (group,) = connection.ask(request, ConsumerGroupDescribeResponse).groups
    assert (group.error_code, group.authorized_operations) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        NOT_ASKED_FOR,
    )


# ACLs.


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_refused_where_there_is_no_authorizer(
    connection: BrokerConnection, version: int
) -> None:
    described = connection.ask(
        describe_acls.DescribeAclsRequest(resource_type_filter=1, operation=1, permission_type=1),
        describe_acls.DescribeAclsResponse,
        version,
    )
    refused = ErrorCode.SECURITY_DISABLED
    assert (described.error_code, described.error_message, described.resources) == (
        refused,
        "No Authorizer is configured on the broker",
        [],
    )
    creation = create_acls.AclCreation(resource_type=2, operation=3, permission_type=3)
    created = connection.ask(
        create_acls.CreateAclsRequest(creations=[creation] * 2),
        create_acls.CreateAclsResponse,
        version,
    )
    sentence = "No Authorizer is configured."
    told = [(each.error_code, each.error_message) for each in created.results]
    assert told == [(refused, sentence)] * 2
    chosen = delete_acls.DeleteAclsFilter(resource_type_filter=2, operation=1, permission_type=1)
    deleted = connection.ask(
        delete_acls.DeleteAclsRequest(filters=[chosen] * 2),
        delete_acls.DeleteAclsResponse,
        version,
    )
    told = [(each.error_code, each.error_message) for each in deleted.filter_results]
    assert told == [(refused, sentence)] * 2


# SCRAM credentials.


def alter(
    connection: BrokerConnection,
    *upsertions: tuple[str, int, int],
    deletions: tuple[tuple[str, int], ...] = (),
) -> dict[str, int]:
    request = altering.AlterUserScramCredentialsRequest(
        deletions=[
            altering.ScramCredentialDeletion(name=name, mechanism=mechanism)
            for name, mechanism in deletions
        ],
        upsertions=[
            altering.ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=iterations,
                salt=b"NaCl",
                salted_password=SALTED,
            )
            for name, mechanism, iterations in upsertions
        ],
    )
    response = connection.ask(request, altering.AlterUserScramCredentialsResponse)
    return {each.user: each.error_code for each in response.results}


def describe(connection: BrokerConnection, *users: str) -> dict[str, list[tuple[int, int]] | int]:
    """Return mechanisms and iterations of each user, or what is wrong with it."""
    names = [describing.UserName(name=name) for name in users]
    request = describing.DescribeUserScramCredentialsRequest(users=names or None)
    response = connection.ask(request, describing.DescribeUserScramCredentialsResponse)
    assert response.error_code == 0
    return {
        each.user: each.error_code
        or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in response.results
    }


def test_credentials_are_set_described_and_removed(connection: BrokerConnection) -> None:
    assert describe(connection) == {}
    assert alter(connection, ("ann", 1, 4096), ("bob", 2, 16_384)) == {"ann": 0, "bob": 0}
    assert alter(connection, ("ann", 2, 8192)) == {"ann": 0}
    assert alter(connection, ("ann", 1, 5000)) == {"ann": 0}
    ann = [(1, 5000), (2, 8192)]
    assert describe(connection) == {"ann": ann, "bob": [(2, 16_384)]}
    assert describe(connection, "ann") == {"ann": ann}
    assert alter(connection, deletions=(("ann", 1), ("bob", 2))) == {"ann": 0, "bob": 0}
    assert describe(connection) == {"ann": [(2, 8192)]}


def test_one_bad_user_does_not_fail_the_others(connection: BrokerConnection) -> None:
    told = alter(connection, ("good", 1, 4096), ("few", 1, 4095), ("twice", 1, 4096))
    assert told == {"good": 0, "few": ErrorCode.UNACCEPTABLE_CREDENTIAL, "twice": 0}
    assert describe(connection, "good", "few", "few") == {
        "good": [(1, 4096)],
        "few": ErrorCode.DUPLICATE_RESOURCE,
    }
    assert describe(connection, "few") == {"few": ErrorCode.RESOURCE_NOT_FOUND}


@pytest.mark.parametrize("snapshots", [False, True])
def test_credentials_survive_a_restart(tmp_path: Path, snapshots: bool) -> None:
    often = {"metadata.log.max.record.bytes.between.snapshots": "1", "metadata.log.segment.ms": "1"}
    config = {**often, "metadata.max.retention.bytes": "1"} if snapshots else {}
    with Broker(data_dir=str(tmp_path), config=config) as broker:
        with BrokerConnection(broker.port) as connection:
            alter(connection, ("ann", 1, 4096), ("gone", 2, 8192))
            alter(connection, deletions=(("gone", 2),))
            broker.create_topic("more")  # so that a snapshot comes after it
        before = broker.node.broker.image.scram_credentials
    if snapshots:
        newest = max((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
        records = list(SnapshotReader(newest.read_bytes()).records())
        assert [each.name for each in records if isinstance(each, UserScramCredentialRecord)] == [
            "ann"
        ]
    with Broker(data_dir=str(tmp_path), config=config) as broker:
        assert broker.node.broker.image.scram_credentials == before
        with BrokerConnection(broker.port) as connection:
            assert describe(connection) == {"ann": [(1, 4096)]}


def test_no_salt_and_no_key_is_in_a_repr(broker: Broker, connection: BrokerConnection) -> None:
    alter(connection, ("ann", 1, 4096))
    record = broker.node.broker.image.scram_credentials[ScramKey(1, "ann")]
    shown = repr(record) + repr(keys_of(ScramMechanism.SCRAM_SHA_256, SALTED))
    for secret in (b"NaCl", record.stored_key, record.server_key):
        assert repr(secret)[2:-1] not in shown
        assert secret.hex() not in shown


# Quotas that a Kafka left.


def quota(key: str, value: float, **entity: str | None) -> VersionedRecord:
    names = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return VersionedRecord(ClientQuotaRecord(entity=names, key=key, value=value), 0)


def quotas_of(
    connection: BrokerConnection, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[dict[str, str | None], dict[str, float]]]:
    request = quotas.DescribeClientQuotasRequest(
        components=[
            quotas.ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ],
        strict=strict,
    )
    response = connection.ask(request, quotas.DescribeClientQuotasResponse)
    assert response.error_code == 0
    return [
        (
            {each.entity_type: each.entity_name for each in entry.entity},
            {each.key: each.value for each in entry.values},
        )
        for entry in response.entries or []
    ]


def test_quotas_are_described_by_what_a_filter_names(
    broker: Broker, connection: BrokerConnection
) -> None:
    records = (
        quota("producer_byte_rate", 10.0, user="ann"),
        quota("consumer_byte_rate", 20.0, user="ann"),
        quota("producer_byte_rate", 30.0, user=None),
        quota("producer_byte_rate", 40.0, user="ann", client_id="app"),
    )
    done = Event()
    assert broker._loop is not None
    broker._loop.call_soon_threadsafe(
        lambda: broker.node.controller.host.submit(
            lambda _: Result(records, None), lambda _: done.set()
        )
    )
    assert done.wait(120)
    ann = ({"user": "ann"}, {"producer_byte_rate": 10.0, "consumer_byte_rate": 20.0})
    default = ({"user": None}, {"producer_byte_rate": 30.0})
    app = ({"user": "ann", "client-id": "app"}, {"producer_byte_rate": 40.0})
    exact, is_default, specified = 0, 1, 2
    assert quotas_of(connection) == [ann, default, app]
    assert quotas_of(connection, ("user", exact, "ann")) == [ann, app]
    assert quotas_of(connection, ("user", exact, "ann"), strict=True) == [ann]
    assert quotas_of(connection, ("user", is_default, None)) == [default]
    assert quotas_of(connection, ("user", specified, None)) == [ann, default, app]
    assert quotas_of(connection, ("client-id", specified, None)) == [app]
    assert quotas_of(connection, ("ip", specified, None)) == []
