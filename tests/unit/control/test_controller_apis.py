"""What a controller serves, what it refuses, and in whose name."""

import pytest

from odradek.control.served_apis import HANDLERS, QUORUM_APIS, SERVED, is_served
from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.metadata.nodes import Endpoint
from odradek.protocol.apis import ALL_APIS, api_named
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated.allocate_producer_ids import AllocateProducerIdsRequest
from odradek.protocol.generated.alter_configs import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.generated.alter_partition import AlterPartitionRequest
from odradek.protocol.generated.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignableTopic,
)
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from odradek.protocol.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from odradek.protocol.generated.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from odradek.protocol.generated.broker_heartbeat import BrokerHeartbeatRequest
from odradek.protocol.generated.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from odradek.protocol.generated.controller_registration import Listener as ControllerListener
from odradek.protocol.generated.create_acls import CreateAclsRequest
from odradek.protocol.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.generated.create_topics import CreateTopicsResponse
from odradek.protocol.generated.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from odradek.protocol.generated.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from odradek.protocol.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from odradek.protocol.generated.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from odradek.protocol.generated.describe_quorum import (
    ResponsePartitionData as DescribeQuorumPartition,
)
from odradek.protocol.generated.describe_quorum import ResponseTopicData as DescribeQuorumTopic
from odradek.protocol.generated.elect_leaders import ElectLeadersRequest
from odradek.protocol.generated.envelope import EnvelopeRequest, EnvelopeResponse
from odradek.protocol.generated.incremental_alter_configs import (
    AlterConfigsResource as IncrementalResource,
)
from odradek.protocol.generated.incremental_alter_configs import IncrementalAlterConfigsRequest
from odradek.protocol.generated.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from odradek.protocol.generated.metadata import MetadataRequest
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.generated.unregister_broker import UnregisterBrokerRequest
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.protocol.message import Message
from odradek.protocol.refusals import error_codes
from odradek.protocol.versioned import encode_versioned
from odradek.raft.messages import ReplicaKey, VoterDetails, VoterEndpoint
from odradek.raft.voters import VoterSet
from tests.unit.control.control_site import (
    CLUSTER_ID,
    LISTENER,
    ControlSite,
    api_of,
    new_topics,
    registration,
)

WRITES: list[Message] = [
    AllocateProducerIdsRequest(broker_id=1),
    AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
    AlterPartitionRequest(broker_id=1),
    AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t")]),
    AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)]),
    AssignReplicasToDirsRequest(broker_id=1),
    BrokerHeartbeatRequest(broker_id=1),
    registration(1),
    ControllerRegistrationRequest(controller_id=1),
    CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=2)]),
    new_topics("t"),
    DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]),
    ElectLeadersRequest(),
    IncrementalAlterConfigsRequest(
        resources=[IncrementalResource(resource_type=2, resource_name="t")]
    ),
    ListPartitionReassignmentsRequest(),
    UnregisterBrokerRequest(broker_id=1),
    UpdateFeaturesRequest(),
]


@pytest.fixture
def site() -> ControlSite:
    made = ControlSite()
    made.lead()
    return made


def errors(response: Message) -> set[int]:
    return {code for code in error_codes(response) if code}


def enveloped(
    request: Message,
    *,
    version: int | None = None,
    correlation_id: int = 77,
    principal: bytes | None = None,
    address: bytes = bytes([192, 0, 2, 9]),
) -> EnvelopeRequest:
    api = api_of(request)
    newest = api.version_stable_max if version is None else version
    frame = b"".join(frame_request(request, api, newest, correlation_id, "client"))
    if principal is None:
        principal = encode_versioned(DefaultPrincipalData(type="User", name="bob"), 0)
    return EnvelopeRequest(
        request_data=frame[4:], request_principal=principal, client_host_address=address
    )


def test_every_handler_is_there_and_every_write_is_known() -> None:
    assert {api.name for api in SERVED} == {*HANDLERS, *QUORUM_APIS, "Envelope"}
    local = {"ApiVersions", "CreateAcls", "DeleteAcls", "DescribeAcls", "DescribeCluster"}
    local |= {"DescribeConfigs", "SaslAuthenticate", "SaslHandshake"}
    assert {api_of(each).name for each in WRITES} == set(HANDLERS) - local


@pytest.mark.parametrize("request_", WRITES, ids=lambda each: type(each).__name__)
def test_a_controller_that_is_not_active_refuses_changes(request_: Message) -> None:
    site = ControlSite()
    response = site.ask(request_)
    assert errors(response) == {ErrorCode.NOT_CONTROLLER}
    version = api_of(request_).version_stable_max
    type(response).decode(response.to_bytes(version), version)  # it can be sent


def test_apis_of_clients_are_not_served() -> None:
    for name in ("Metadata", "Produce", "ListOffsets", "FindCoordinator"):
        api = api_named(name)
        assert not any(is_served(api, version) for version in range(api.version_max + 1))
    assert not is_served(api_named("Envelope"), 1)


def test_advertised_is_exactly_what_is_served(site: ControlSite) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    response = site.ask(request)
    assert isinstance(response, ApiVersionsResponse)
    advertised = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    for api in ALL_APIS:
        served = [v for v in range(api.version_max + 1) if is_served(api, v)]
        assert advertised.get(api.key) == ((served[0], served[-1]) if served else None), api.name
    finalized = {each.name for each in response.finalized_features}
    assert "metadata.version" in finalized


def test_a_topic_is_created_and_answered_when_it_is_committed(site: ControlSite) -> None:
    site.start_broker(2)
    answers = site.send(new_topics("orders"))
    assert answers == []
    site.commit()
    (response,) = answers
    assert isinstance(response, CreateTopicsResponse)
    assert [each.error_code for each in response.topics] == [0]
    assert "orders" in site.server.control.image.topics


def test_a_registered_broker_gets_the_offset_of_its_registration_as_epoch(
    site: ControlSite,
) -> None:
    end = site.quorum.log_end_offset
    assert site.register(2) == end
    stale = BrokerHeartbeatRequest(broker_id=2, broker_epoch=end - 1)
    assert errors(site.ask(stale)) == {ErrorCode.STALE_BROKER_EPOCH}


def test_a_heartbeat_counts_although_work_is_queued_before_it(site: ControlSite) -> None:
    epoch = site.start_broker(2)
    site.turns.is_slow = True
    site.send(new_topics("t"))  # takes turns, and everything waits for it
    site.timers.advance(8_000)
    beat = BrokerHeartbeatRequest(
        broker_id=2, broker_epoch=epoch, current_metadata_offset=site.quorum.log_end_offset
    )
    assert site.send(beat) == []
    site.timers.advance(2_000)
    site.turns.is_slow = False
    site.commit()  # first comes the plan to fence, which waited since the beginning
    site.commit()
    assert (site.fencings, site.fenced) == (0, [])


def test_topics_are_not_deleted_where_that_is_switched_off() -> None:
    site = ControlSite(delete_topic_enable="false")
    site.lead()
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
    response = site.ask(request)
    assert isinstance(response, DeleteTopicsResponse)
    assert errors(response) == {ErrorCode.TOPIC_DELETION_DISABLED}
    old = DeleteTopicsRequest(topic_names=["t"])
    assert errors(site.ask(old, version=2)) == {ErrorCode.INVALID_REQUEST}


def test_without_an_authorizer_acls_are_refused(site: ControlSite) -> None:
    from odradek.protocol.generated.create_acls import AclCreation

    request = CreateAclsRequest(creations=[AclCreation()])
    assert errors(site.ask(request)) == {ErrorCode.SECURITY_DISABLED}


def test_controllers_are_described_from_the_metadata_log(site: ControlSite) -> None:
    described = site.ask(DescribeClusterRequest(endpoint_type=2))
    assert isinstance(described, DescribeClusterResponse)
    assert (described.controller_id, described.brokers) == (-1, []), "none has registered"
    listener = ControllerListener(name=LISTENER, host="c1", port=9093)
    response = site.ask(
        ControllerRegistrationRequest(
            controller_id=1, incarnation_id=Uuid(b"a random start.."), listeners=[listener]
        )
    )
    assert isinstance(response, ControllerRegistrationResponse)
    image = site.server.control.image.controllers[1]
    assert image.endpoints == {LISTENER: Endpoint(LISTENER, "c1", 9093)}
    described = site.ask(DescribeClusterRequest(endpoint_type=2))
    assert isinstance(described, DescribeClusterResponse)
    assert (described.cluster_id, described.controller_id) == (CLUSTER_ID, 1)
    assert [(each.broker_id, each.host, each.port) for each in described.brokers] == [
        (1, "c1", 9093)
    ]
    site.lose()
    described = site.ask(DescribeClusterRequest(endpoint_type=2))
    assert isinstance(described, DescribeClusterResponse)
    assert (described.error_code, described.controller_id) == (0, -1)


@pytest.mark.parametrize(
    ("endpoint_type", "version", "code"),
    [
        (1, 1, ErrorCode.MISMATCHED_ENDPOINT_TYPE),
        (1, 0, ErrorCode.INVALID_REQUEST),
        (7, 2, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE),
    ],
)
def test_brokers_are_described_by_brokers(
    site: ControlSite, endpoint_type: int, version: int, code: ErrorCode
) -> None:
    request = DescribeClusterRequest(endpoint_type=endpoint_type)
    assert errors(site.ask(request, version)) == {code}


def test_configs_of_the_controller_are_described_by_itself(site: ControlSite) -> None:
    own = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    other = DescribeConfigsResource(resource_type=4, resource_name="2", configuration_keys=None)
    response = site.ask(DescribeConfigsRequest(resources=[own, other]))
    assert isinstance(response, DescribeConfigsResponse)
    described = {each.name: each.value for each in response.results[0].configs}
    assert described["process.roles"] == "controller"
    assert response.results[1].error_code == ErrorCode.INVALID_REQUEST


def test_configs_of_another_broker_can_be_altered(site: ControlSite) -> None:
    site.start_broker(2)

    def alter(node: str) -> set[int]:
        from odradek.protocol.generated.incremental_alter_configs import AlterableConfig

        changed = AlterableConfig(name="log.retention.ms", config_operation=0, value="5000")
        resource = IncrementalResource(resource_type=4, resource_name=node, configs=[changed])
        return errors(site.ask(IncrementalAlterConfigsRequest(resources=[resource])))

    assert alter("2") == set()
    assert alter("9") == {ErrorCode.BROKER_ID_NOT_REGISTERED}


def update(
    site: ControlSite, feature: str, level: int, *, validate_only: bool = False
) -> UpdateFeaturesResponse:
    key = FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=1)
    request = UpdateFeaturesRequest(feature_updates=[key], validate_only=validate_only)
    response = site.ask(request)
    assert isinstance(response, UpdateFeaturesResponse)
    return response


def voters_that_support(level: int) -> VoterSet:
    key = ReplicaKey(1, Uuid(b"directory of one"))
    details = VoterDetails((VoterEndpoint("CONTROLLER", "here", 9093),), 0, level)
    return VoterSet((key,), {1: details})


def test_a_quorum_of_one_names_its_voter_with_kraft_version_1(site: ControlSite) -> None:
    site.quorum.upgraded_voters = voters_that_support(1)
    assert update(site, "kraft.version", 1, validate_only=True).error_code == 0
    assert site.quorum.quorum_records == []
    assert update(site, "kraft.version", 1).error_code == 0
    (records,) = site.quorum.quorum_records
    assert records.kraft_version == 1
    assert records.voters is not None
    (voter,) = records.voters.voters
    assert (voter.voter_id, voter.endpoints[0].port) == (1, 9093)


def test_kraft_version_stays_until_every_voter_has_said_what_it_supports(site: ControlSite) -> None:
    site.quorum.upgraded_voters = voters_that_support(0)
    refused = update(site, "kraft.version", 1)
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert (refused.error_message or "").endswith(
        "Invalid upgrade of kraft.version to 1 because not all of the voters support it"
    )
    assert site.quorum.quorum_records == []


def test_features_wait_until_all_voters_have_registered(site: ControlSite) -> None:
    site.quorum.voter_ids = (1, 2, 3)
    refused = update(site, "group.version", 1)
    assert "controller 2 has not registered" in (refused.error_message or "")


def test_requests_of_the_quorum_go_to_the_quorum(site: ControlSite) -> None:
    request = DescribeQuorumRequest()
    assert site.send(request) == []
    assert site.quorum.raft_requests == [request]
    site.send(enveloped(request))
    assert [type(each) for each in site.quorum.raft_requests] == [DescribeQuorumRequest] * 2


def test_a_forwarded_request_is_answered_with_the_client_s_correlation_id(
    site: ControlSite,
) -> None:
    site.start_broker(2)
    api = api_named("CreateTopics")
    for version in (2, 7):
        request = enveloped(new_topics(f"v{version}"), version=version)
        response = site.ask(request)
        assert isinstance(response, EnvelopeResponse)
        assert response.error_code == 0
        frame = memoryview(response.response_data or b"")
        correlation_id, body = open_response(frame, api, version)
        inner = CreateTopicsResponse.decode(body, version)
        assert correlation_id == 77
        assert [(each.name, each.error_code) for each in inner.topics] == [(f"v{version}", 0)]


def test_a_long_response_is_wrapped_in_slices(site: ControlSite) -> None:
    site.start_broker(2)
    names = [f"t{number}" for number in range(300)]
    response = site.ask(enveloped(new_topics(*names)))
    assert isinstance(response, EnvelopeResponse)
    frame = memoryview(response.response_data or b"")
    _, body = open_response(frame, api_named("CreateTopics"), 7)
    assert [each.name for each in CreateTopicsResponse.decode(body, 7).topics] == names


def test_inner_errors_stay_inside(site: ControlSite) -> None:
    response = site.ask(enveloped(UnregisterBrokerRequest(broker_id=9)))
    assert isinstance(response, EnvelopeResponse)
    assert response.error_code == 0
    frame = memoryview(response.response_data or b"")
    api = api_named("UnregisterBroker")
    _, body = open_response(frame, api, 0)
    inner = api.response().decode(body, 0)
    assert errors(inner) == {ErrorCode.BROKER_ID_NOT_REGISTERED}


def test_the_envelope_says_where_the_active_controller_is_not(site: ControlSite) -> None:
    site.lose()
    response = site.ask(enveloped(new_topics("t")))
    assert isinstance(response, EnvelopeResponse)
    assert (response.error_code, response.response_data) == (ErrorCode.NOT_CONTROLLER, None)


def test_so_it_does_for_a_description_of_the_quorum(site: ControlSite) -> None:
    """The inner answer has no code with which Kafka's broker looks for another controller."""
    refused = DescribeQuorumPartition(
        partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    site.quorum.answer = DescribeQuorumResponse(
        topics=[DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=[refused])]
    )
    response = site.ask(enveloped(DescribeQuorumRequest()))
    assert response == EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)
    refused.error_code = ErrorCode.NONE
    response = site.ask(enveloped(DescribeQuorumRequest()))
    assert isinstance(response, EnvelopeResponse)
    assert response.error_code == ErrorCode.NONE


def test_leadership_lost_while_a_forwarded_request_waits_is_on_the_envelope(
    site: ControlSite,
) -> None:
    site.start_broker(2)
    answers = site.send(enveloped(new_topics("t")))
    site.lose()
    assert answers == [EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER)]


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (enveloped(new_topics("t"), principal=b""), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (
            enveloped(new_topics("t"), principal=b"\x00\x09xx"),
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        (enveloped(new_topics("t"), address=b"123"), ErrorCode.INVALID_REQUEST),
        (enveloped(MetadataRequest()), ErrorCode.INVALID_REQUEST),
        (enveloped(BrokerHeartbeatRequest()), ErrorCode.INVALID_REQUEST),
        (enveloped(enveloped(new_topics("t"))), ErrorCode.INVALID_REQUEST),
        (
            EnvelopeRequest(
                request_data=b"\x7f\xff garbage",
                request_principal=enveloped(new_topics("t")).request_principal,
                client_host_address=bytes(16),
            ),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        (
            EnvelopeRequest(
                request_data=enveloped(new_topics("t")).request_data[:-9],
                request_principal=enveloped(new_topics("t")).request_principal,
                client_host_address=bytes(16),
            ),
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
    ids=[
        "no principal",
        "its version",
        "address",
        "client api",
        "node api",
        "nested",
        "key",
        "cut",
    ],
)
def test_bad_envelopes(site: ControlSite, envelope: EnvelopeRequest, code: ErrorCode) -> None:
    assert site.ask(envelope) == EnvelopeResponse(error_code=code)


def test_an_api_that_is_forwarded_but_not_served_closes_the_client_s_connection(
    site: ControlSite,
) -> None:
    from odradek.protocol.generated.alter_client_quotas import AlterClientQuotasRequest

    response = site.ask(enveloped(AlterClientQuotasRequest()))
    assert response == EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
