"""Requests that make a controller write every kind of record that Kafka 4.3 writes."""

from typing import TypeVar

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.apis import api_for_key
from odradek.protocol.framing import frame_request, open_response
from odradek.protocol.generated import (
    alter_client_quotas,
    alter_partition_reassignments,
    alter_user_scram_credentials,
    create_acls,
    create_delegation_token,
    create_partitions,
    delete_acls,
    delete_topics,
    envelope,
    expire_delegation_token,
    incremental_alter_configs,
    renew_delegation_token,
    unregister_broker,
    update_features,
)
from odradek.protocol.generated.principal import DefaultPrincipalData
from odradek.protocol.message import Message
from odradek.protocol.versioned import encode_versioned
from tests.interop.cluster.observer import wait_until
from tests.interop.cluster.registrations import Asked, Registered
from tests.interop.cluster.working_broker import allocate, alter, create_topic, unfenced

R = TypeVar("R", bound=Message)
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
ANY, LITERAL, ALLOW, READ = 1, 3, 3, 3
FRAME_SIZE_BYTES = 4
LOOPBACK = bytes([127, 0, 0, 1])
DAY_MS = 86_400_000


def forward(
    controller: Asked, request: Message, response: type[R], principal: str = "ANONYMOUS"
) -> R:
    """Ask in the name of a client, as a broker does."""
    api = api_for_key(request.ID)
    frame = b"".join(frame_request(request, api, api.version_max, 7, "a client"))
    answer = controller.ask(
        envelope.EnvelopeRequest(
            request_data=frame[FRAME_SIZE_BYTES:],
            request_principal=principal_bytes(principal),
            client_host_address=LOOPBACK,
        ),
        envelope.EnvelopeResponse,
    )
    assert answer.error_code == 0, ErrorCode(answer.error_code)
    assert answer.response_data is not None
    correlation_id, body = open_response(memoryview(answer.response_data), api, api.version_max)
    assert correlation_id == 7
    return response.decode(body, api.version_max)


def principal_bytes(name: str) -> bytes:
    return encode_versioned(DefaultPrincipalData(type="User", name=name), 0)


def fill(controller: Asked) -> None:
    """Write all of it; some is taken back again."""
    first, second, gone = (unfenced(controller) for _ in range(3))
    change_topics(controller, first, second)
    change_configs(controller, first)
    change_acls(controller)
    change_quotas(controller)
    change_credentials(controller)
    change_tokens(controller)
    change_features(controller)
    assert allocate(first, first.epoch).error_code == 0
    # It may lead a partition, and then has to wait.
    assert gone.beat(gone.epoch, want_shut_down=True)[0] == "caught up"
    request = unregister_broker.UnregisterBrokerRequest(broker_id=gone.request.broker_id)
    assert controller.ask(request, unregister_broker.UnregisterBrokerResponse).error_code == 0


def change_topics(controller: Asked, first: Registered, second: Registered) -> None:
    topic = create_topic(controller, first, second)
    assert alter(first, topic, [first.request.broker_id]) == "NONE"
    assert second.beat(second.epoch, fence=True) == ["caught up", "fenced"]
    assert second.beat(second.epoch) == ["caught up"]
    grown = create_partitions.CreatePartitionsTopic(name=topic.name, count=3, assignments=None)
    more = controller.ask(
        create_partitions.CreatePartitionsRequest(topics=[grown], timeout_ms=60_000),
        create_partitions.CreatePartitionsResponse,
    )
    assert [each.error_code for each in more.results] == [0]
    moving = create_topic(controller, first)
    part = alter_partition_reassignments.ReassignablePartition(
        partition_index=0, replicas=[second.request.broker_id]
    )
    moved = alter_partition_reassignments.ReassignableTopic(name=moving.name, partitions=[part])
    reassigned = controller.ask(
        alter_partition_reassignments.AlterPartitionReassignmentsRequest(topics=[moved]),
        alter_partition_reassignments.AlterPartitionReassignmentsResponse,
    )
    assert reassigned.responses[0].partitions[0].error_code == 0
    dropped = create_topic(controller, first)
    delete_topic(controller, dropped.topic_id)


def delete_topic(controller: Asked, topic_id: Uuid) -> None:
    named = delete_topics.DeleteTopicState(name=None, topic_id=topic_id)
    answer = controller.ask(
        delete_topics.DeleteTopicsRequest(topics=[named], timeout_ms=60_000),
        delete_topics.DeleteTopicsResponse,
    )
    assert [each.error_code for each in answer.responses] == [0]


def change_configs(controller: Asked, broker: Registered) -> None:
    module = incremental_alter_configs
    changes = {
        (BROKER, ""): ("log.retention.ms", "1234567"),
        (BROKER, str(broker.request.broker_id)): ("log.cleaner.threads", "2"),
        (TOPIC, create_topic(controller, broker).name): ("retention.ms", "7654321"),
        (GROUP, "a group"): ("consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "a subscription"): ("interval.ms", "60000"),
    }
    for (kind, name), (key, value) in changes.items():
        for operation, given in ((0, value), (1, None), (0, value)):
            change = module.AlterableConfig(name=key, config_operation=operation, value=given)
            resource = module.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[change]
            )
            request = module.IncrementalAlterConfigsRequest(resources=[resource])
            answer = controller.ask(request, module.IncrementalAlterConfigsResponse)
            assert [each.error_code for each in answer.responses] == [0], answer


def change_acls(controller: Asked) -> None:
    rules = [
        create_acls.AclCreation(
            resource_type=TOPIC,
            resource_name=name,
            resource_pattern_type=LITERAL,
            principal="User:bob",
            host="*",
            operation=READ,
            permission_type=ALLOW,
        )
        for name in ("kept", "dropped")
    ]
    created = controller.ask(
        create_acls.CreateAclsRequest(creations=rules), create_acls.CreateAclsResponse
    )
    assert [each.error_code for each in created.results] == [0, 0]
    dropped = delete_acls.DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter="dropped",
        pattern_type_filter=LITERAL,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    deleted = controller.ask(
        delete_acls.DeleteAclsRequest(filters=[dropped]), delete_acls.DeleteAclsResponse
    )
    assert len(deleted.filter_results[0].matching_acls) == 1


def change_quotas(controller: Asked) -> None:
    module = alter_client_quotas
    for entity, key, remove in (
        ({"user": "bob"}, "producer_byte_rate", False),
        ({"user": None, "client-id": "c"}, "consumer_byte_rate", False),
        ({"ip": "127.0.0.1"}, "connection_creation_rate", False),
        ({"user": "bob"}, "request_percentage", False),
        ({"user": "bob"}, "request_percentage", True),
    ):
        parts = [
            module.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()
        ]
        change = module.OpData(key=key, value=1000.0, remove=remove)
        entry = module.RequestEntryData(entity=parts, ops=[change])
        answer = controller.ask(
            module.AlterClientQuotasRequest(entries=[entry]), module.AlterClientQuotasResponse
        )
        assert [each.error_code for each in answer.entries] == [0], answer


def change_credentials(controller: Asked) -> None:
    module = alter_user_scram_credentials
    for name in ("bob", "dropped"):
        kept = module.ScramCredentialUpsertion(
            name=name, mechanism=2, iterations=4096, salt=b"salt", salted_password=b"p" * 64
        )
        request = module.AlterUserScramCredentialsRequest(upsertions=[kept])
        answer = controller.ask(request, module.AlterUserScramCredentialsResponse)
        assert [each.error_code for each in answer.results] == [0], answer
    dropped = module.ScramCredentialDeletion(name="dropped", mechanism=2)
    request = module.AlterUserScramCredentialsRequest(deletions=[dropped])
    answer = controller.ask(request, module.AlterUserScramCredentialsResponse)
    assert [each.error_code for each in answer.results] == [0], answer


def change_tokens(controller: Asked) -> None:
    """Create two, renew one and expire the other; PLAINTEXT must not: its broker forwards them."""
    hmacs = []
    for _ in range(2):
        created = forward(
            controller,
            create_delegation_token.CreateDelegationTokenRequest(
                owner_principal_type="", owner_principal_name="", max_lifetime_ms=7 * DAY_MS
            ),
            create_delegation_token.CreateDelegationTokenResponse,
            "bob",
        )
        assert created.error_code == 0
        hmacs.append(bytes(created.hmac))
    renew = renew_delegation_token.RenewDelegationTokenRequest(
        hmac=hmacs[0], renew_period_ms=DAY_MS
    )
    expire = expire_delegation_token.ExpireDelegationTokenRequest(
        hmac=hmacs[1], expiry_time_period_ms=-1
    )

    # Kafka finds a token only when its own replica of the log has shown it.
    def renewed() -> bool:
        response = renew_delegation_token.RenewDelegationTokenResponse
        return forward(controller, renew, response, "bob").error_code == 0

    def expired() -> bool:
        response = expire_delegation_token.ExpireDelegationTokenResponse
        return forward(controller, expire, response, "bob").error_code == 0

    wait_until(renewed, "not renewed")
    wait_until(expired, "not expired")


def change_features(controller: Asked) -> None:
    """Switch eligible leader replicas off and on again."""
    module = update_features
    for level, kind in ((0, 2), (1, 1)):
        change = module.FeatureUpdateKey(
            feature="eligible.leader.replicas.version", max_version_level=level, upgrade_type=kind
        )
        request = module.UpdateFeaturesRequest(feature_updates=[change], timeout_ms=60_000)
        assert controller.ask(request, module.UpdateFeaturesResponse).error_code == 0
