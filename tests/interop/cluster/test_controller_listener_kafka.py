"""What a controller listener answers, besides what brokers need of it: real Kafka 4.3's, and ours.

Each case is asked of both. Where ours differs, it says so here.
"""

from typing import Final

import pytest

from odradek.core.errors import ErrorCode
from odradek.protocol.apis import ALL_APIS, api_for_key
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated import (
    api_versions,
    create_topics,
    describe_cluster,
    describe_quorum,
    envelope,
    find_coordinator,
    metadata,
    produce,
)
from odradek.protocol.message import Message
from tests.interop.cluster.conftest import Site
from tests.interop.cluster.filled_log import FRAME_SIZE_BYTES, LOOPBACK, forward, principal_bytes
from tests.interop.cluster.observer import Controller, Observer
from tests.interop.cluster.registrations import registration
from tests.interop.kafka_peer.node import CLUSTER_ID

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

VERSION_AT: Final = 6
"""Behind the size and the API's key."""
UNKNOWN_VERSION: Final = (99).to_bytes(2, "big")
SERVED: Final = """
    AddRaftVoter AllocateProducerIds AlterClientQuotas AlterConfigs AlterPartition
    AlterPartitionReassignments AlterUserScramCredentials ApiVersions AssignReplicasToDirs
    BeginQuorumEpoch BrokerHeartbeat BrokerRegistration ControllerRegistration CreateAcls
    CreateDelegationToken CreatePartitions CreateTopics DeleteAcls DeleteTopics DescribeAcls
    DescribeCluster DescribeConfigs DescribeDelegationToken DescribeQuorum
    DescribeUserScramCredentials ElectLeaders EndQuorumEpoch Envelope ExpireDelegationToken Fetch
    FetchSnapshot IncrementalAlterConfigs ListPartitionReassignments RemoveRaftVoter
    RenewDelegationToken SaslAuthenticate SaslHandshake UnregisterBroker UpdateFeatures
    UpdateRaftVoter Vote
""".split()


NOT_YET: Final = {
    "AlterClientQuotas",
    "CreateDelegationToken",
    "DescribeDelegationToken",
    "DescribeUserScramCredentials",
    "ExpireDelegationToken",
    "RenewDelegationToken",
}
"""What Kafka's controllers serve and ours do not."""


def test_the_apis_that_it_serves_and_their_versions(site: Site) -> None:
    found = site.observer.leader.versions
    theirs = {api_for_key(key).name: versions for key, versions in found.items()}
    missing = set() if site.is_kafka else NOT_YET
    assert sorted(theirs) == [name for name in SERVED if name not in missing]
    known = {api.name: api.version_stable_max for api in ALL_APIS}
    other = {name: most for name, (_, most) in theirs.items() if known[name] != most}
    # 5 is of Kafka 4.4.
    assert other == ({"ApiVersions": 4} if site.is_kafka else {})


def test_the_features_that_it_announces(controller: Observer) -> None:
    answer = controller.leader.api_versions
    assert {each.name: each.max_version_level for each in answer.finalized_features} == {
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "kraft.version": 1,
        "metadata.version": 30,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert answer.finalized_features_epoch >= 0


@pytest.mark.parametrize(
    "request_",
    [
        metadata.MetadataRequest(topics=None),
        produce.ProduceRequest(transactional_id=None),
        find_coordinator.FindCoordinatorRequest(),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_clients_ask_of_brokers_ends_the_connection(
    controller: Observer, request_: Message
) -> None:
    with Controller(controller.leader.port) as connection:
        api = api_for_key(request_.ID)
        with pytest.raises(ConnectionError):
            connection.ask(request_, api.response(), api.version_stable_max)


def test_versions_from_the_future_are_answered_in_version_0(controller: Observer) -> None:
    request = api_versions.ApiVersionsRequest(client_software_name="a", client_software_version="1")
    api = api_for_key(request.ID)
    frame = bytearray(b"".join(frame_request(request, api, 4, 7, "a client")))
    frame[VERSION_AT : VERSION_AT + 2] = UNKNOWN_VERSION
    with Controller(controller.leader.port) as connection:
        connection.socket.sendall(frame)
        answers = connection.socket.makefile("rb")
        size = int.from_bytes(answers.read(FRAME_SIZE_BYTES), "big")
        correlation_id, body = open_response(memoryview(answers.read(size)), api, 0)
    answer = api_versions.ApiVersionsResponse.decode(body, 0)
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [each.api_key for each in answer.api_keys] == [18]


# Envelope.


def wrap(
    message: Message, *, principal: bytes = principal_bytes("bob"), host: bytes = LOOPBACK
) -> envelope.EnvelopeRequest:
    api = api_for_key(message.ID)
    frame = b"".join(frame_request(message, api, api.version_stable_max, 1, "a client"))
    return envelope.EnvelopeRequest(
        request_data=frame[FRAME_SIZE_BYTES:],
        request_principal=principal,
        client_host_address=host,
    )


CREATE: Final = create_topics.CreateTopicsRequest(
    topics=[create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)],
    validate_only=True,
)


def unknown_version() -> envelope.EnvelopeRequest:
    wrapped = wrap(CREATE)
    data = bytearray(wrapped.request_data)
    data[2:4] = UNKNOWN_VERSION
    wrapped.request_data = bytes(data)
    return wrapped


def of_bytes(data: bytes) -> envelope.EnvelopeRequest:
    wrapped = wrap(CREATE)
    wrapped.request_data = data
    return wrapped


ENVELOPES: Final = {
    "no principal": (wrap(CREATE, principal=b""), "PRINCIPAL_DESERIALIZATION_FAILURE"),
    "garbage as principal": (wrap(CREATE, principal=b"xx"), "PRINCIPAL_DESERIALIZATION_FAILURE"),
    "an address of 3 bytes": (wrap(CREATE, host=b"abc"), "INVALID_REQUEST"),
    "no address": (wrap(CREATE, host=b""), "INVALID_REQUEST"),
    "no request": (of_bytes(b""), "UNSUPPORTED_VERSION"),
    "garbage as request": (of_bytes(b"abc"), "UNSUPPORTED_VERSION"),
    "a version that nobody knows": (unknown_version(), "UNSUPPORTED_VERSION"),
    "an envelope": (wrap(wrap(CREATE)), "INVALID_REQUEST"),
    "a request that brokers answer": (wrap(metadata.MetadataRequest()), "INVALID_REQUEST"),
    "a registration": (wrap(registration()), "INVALID_REQUEST"),
    "DescribeCluster": (wrap(describe_cluster.DescribeClusterRequest()), "INVALID_REQUEST"),
}


@pytest.mark.parametrize("case", ENVELOPES)
def test_envelopes_that_are_refused(controller: Observer, case: str) -> None:
    request, expected = ENVELOPES[case]
    answer = controller.ask(request, envelope.EnvelopeResponse)
    assert ErrorCode(answer.error_code).name == expected
    assert answer.response_data is None


def test_what_is_inside_is_authorized_for_the_client_and_not_for_the_broker(
    observer: Observer,
) -> None:
    """Of Kafka's alone: we have no authorizer."""
    answer = forward(observer, CREATE, create_topics.CreateTopicsResponse, "a stranger")
    assert answer.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer = forward(observer, CREATE, create_topics.CreateTopicsResponse)
    assert answer.topics[0].error_code in (0, ErrorCode.INVALID_REPLICATION_FACTOR)


# Who is there.


@pytest.mark.parametrize(
    ("endpoint_type", "expected"),
    [
        (0, "UNSUPPORTED_ENDPOINT_TYPE"),
        (1, "MISMATCHED_ENDPOINT_TYPE"),
        (2, "NONE"),
        (3, "UNSUPPORTED_ENDPOINT_TYPE"),
    ],
)
def test_it_describes_the_cluster_of_controllers(
    site: Site, endpoint_type: int, expected: str
) -> None:
    request = describe_cluster.DescribeClusterRequest(endpoint_type=endpoint_type)
    answer = site.observer.ask(request, describe_cluster.DescribeClusterResponse)
    assert ErrorCode(answer.error_code).name == expected
    if expected == "NONE":
        assert (answer.cluster_id, answer.controller_id) == (CLUSTER_ID, site.observer.leader_id)
        assert {each.broker_id: each.port for each in answer.brokers} == site.ports
        assert answer.endpoint_type == endpoint_type


def test_it_describes_the_quorum(site: Site) -> None:
    observer = site.observer
    observer.catch_up()
    part = describe_quorum.RequestPartitionData(partition_index=0)
    topic = describe_quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[part])
    request = describe_quorum.DescribeQuorumRequest(topics=[topic])
    answer = observer.ask(request, describe_quorum.DescribeQuorumResponse)
    found = answer.topics[0].partitions[0]
    assert (answer.error_code, found.error_code) == (0, 0)
    assert (found.leader_id, found.leader_epoch) == (observer.leader_id, observer.leader_epoch)
    assert observer.quorum.voters is not None
    assert [(each.replica_id, each.replica_directory_id) for each in found.current_voters] == [
        (each.voter_id, each.voter_directory_id) for each in observer.quorum.voters.voters
    ]
    assert observer.replica.id in [each.replica_id for each in found.observers]
    assert {each.node_id: each.listeners[0].port for each in answer.nodes} == site.ports


@pytest.mark.parametrize(("name", "number"), [("another", 0), ("__cluster_metadata", 1)])
def test_there_is_one_quorum_only(controller: Observer, name: str, number: int) -> None:
    part = describe_quorum.RequestPartitionData(partition_index=number)
    topic = describe_quorum.RequestTopicData(topic_name=name, partitions=[part])
    request = describe_quorum.DescribeQuorumRequest(topics=[topic])
    answer = controller.ask(request, describe_quorum.DescribeQuorumResponse)
    codes = [found.error_code for each in answer.topics for found in each.partitions]
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
