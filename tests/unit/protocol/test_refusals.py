"""Every request that brokers forward can be refused as a whole, in every version."""

from typing import Any

import pytest

from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.protocol.apis import api_named
from odradek.protocol.generated import alter_client_quotas as quotas
from odradek.protocol.generated import (
    alter_configs,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_topics,
    elect_leaders,
    incremental_alter_configs,
)
from odradek.protocol.generated import alter_user_scram_credentials as scram
from odradek.protocol.message import Message
from odradek.protocol.refusals import error_codes, refusal

ERROR = ApiError(ErrorCode.NOT_CONTROLLER, "not here")
WHOLE = (
    "AddRaftVoter",
    "AlterPartitionReassignments",
    "CreateDelegationToken",
    "DescribeQuorum",
    "ExpireDelegationToken",
    "ListPartitionReassignments",
    "RemoveRaftVoter",
    "RenewDelegationToken",
    "UnregisterBroker",
    "UpdateFeatures",
)
IN_PARTS: dict[str, tuple[Message, list[dict[str, Any]]]] = {
    "AlterClientQuotas": (
        quotas.AlterClientQuotasRequest(
            entries=[
                quotas.RequestEntryData(
                    entity=[quotas.EntityData(entity_type="user", entity_name=None)]
                )
            ]
        ),
        [{"entity": [quotas.EntityData(entity_type="user", entity_name=None)]}],
    ),
    "AlterConfigs": (
        alter_configs.AlterConfigsRequest(
            resources=[alter_configs.AlterConfigsResource(resource_type=2, resource_name="t")]
        ),
        [{"resource_type": 2, "resource_name": "t"}],
    ),
    "AlterUserScramCredentials": (
        scram.AlterUserScramCredentialsRequest(
            deletions=[scram.ScramCredentialDeletion(name="ann", mechanism=1)],
            upsertions=[
                scram.ScramCredentialUpsertion(name="bob", mechanism=1),
                scram.ScramCredentialUpsertion(name="ann", mechanism=2),
            ],
        ),
        [{"user": "ann"}, {"user": "bob"}],
    ),
    "CreateAcls": (
        create_acls.CreateAclsRequest(creations=[create_acls.AclCreation() for _ in range(2)]),
        [{}, {}],
    ),
    "CreatePartitions": (
        create_partitions.CreatePartitionsRequest(
            topics=[create_partitions.CreatePartitionsTopic(name="t", count=2)]
        ),
        [{"name": "t"}],
    ),
    "CreateTopics": (
        create_topics.CreateTopicsRequest(
            topics=[create_topics.CreatableTopic(name="a"), create_topics.CreatableTopic(name="b")]
        ),
        [{"name": "a"}, {"name": "b"}],
    ),
    "DeleteAcls": (
        delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter()]),
        [{}],
    ),
    "DeleteTopics": (
        delete_topics.DeleteTopicsRequest(
            topic_names=["a"],
            topics=[delete_topics.DeleteTopicState(name=None, topic_id=Uuid(b"x" * 16))],
        ),
        [{"name": "a"}, {"name": None, "topic_id": Uuid(b"x" * 16)}],
    ),
    "ElectLeaders": (
        elect_leaders.ElectLeadersRequest(
            topic_partitions=[elect_leaders.TopicPartitions(topic="t", partitions=[3])]
        ),
        [{"topic": "t"}],
    ),
    "IncrementalAlterConfigs": (
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[
                incremental_alter_configs.AlterConfigsResource(resource_type=4, resource_name="1")
            ]
        ),
        [{"resource_type": 4, "resource_name": "1"}],
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_response_with_an_error_code_of_its_own_has_the_error(name: str) -> None:
    api = api_named(name)
    response: Any = refusal(api, api.request()(), ERROR)
    assert response.error_code == ErrorCode.NOT_CONTROLLER
    for version in range(api.version_min, api.version_max + 1):
        response.encode(version)


@pytest.mark.parametrize("name", IN_PARTS)
def test_everything_that_the_request_names_has_the_error(name: str) -> None:
    request, expected = IN_PARTS[name]
    api = api_named(name)
    response = refusal(api, request, ERROR)
    assert ErrorCode.NOT_CONTROLLER in set(error_codes(response))
    fields: tuple[str, ...] = type(response).__slots__
    values: list[Any] = [getattr(response, field) for field in fields]
    (results,) = [value for value in values if isinstance(value, list)]
    found = [{key: getattr(each, key) for key in expected[0]} for each in results[:1]]
    assert found == expected[:1]
    assert len(results) == len(expected)
    if name != "ElectLeaders":
        assert {(each.error_code, each.error_message) for each in results} == {(41, "not here")}
    else:
        ((inner,),) = [each.partition_result for each in results]
        assert (inner.partition_id, inner.error_code, inner.error_message) == (3, 41, "not here")
