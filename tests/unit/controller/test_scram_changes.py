"""AlterUserScramCredentials: one answer for each user, in Kafka's words."""

from dataclasses import replace

import pytest

from odradek.core.errors import ErrorCode
from odradek.core.scram import ScramMechanism, keys_of
from odradek.metadata.touched import ScramKey
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.generated.metadata_records import FeatureLevelRecord
from tests.unit.controller.cluster import Cluster

SALTED = b"\x07" * 64
TWICE = "A user credential cannot be altered twice in the same request"


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(1)


def upsert(
    name: str, mechanism: int = 1, iterations: int = 4096, salted: bytes = SALTED
) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=salted
    )


def delete(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(
    cluster: Cluster, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, tuple[int, str | None]]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    reply = cluster.apply(cluster.controller.alter_user_scram_credentials(request))
    assert len({each.user for each in reply.results}) == len(reply.results)
    return {each.user: (each.error_code, each.error_message) for each in reply.results}


def test_keys_are_kept_and_the_salted_password_is_not(cluster: Cluster) -> None:
    assert alter(cluster, upsert("ann", 2, 8192)) == {"ann": (0, None)}
    (record,) = cluster.controller.image.scram_credentials.values()
    keys = keys_of(ScramMechanism.SCRAM_SHA_512, SALTED)
    assert (record.stored_key, record.server_key) == keys
    assert SALTED not in record.to_bytes(0)
    assert (record.name, record.mechanism, record.iterations, record.salt) == (
        "ann",
        2,
        8192,
        b"s",
    )


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"),
        (upsert("u", 0), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("u", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
        (upsert("u", 1, 4095), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"),
        (upsert("u", 1, 16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"),
        (upsert("u", salted=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL, None),
        (delete("u"), ErrorCode.RESOURCE_NOT_FOUND, None),
        (delete("u", 9), ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"),
    ],
)
def test_what_is_wrong_with_a_user_is_said(
    cluster: Cluster,
    change: ScramCredentialUpsertion | ScramCredentialDeletion,
    code: ErrorCode,
    words: str | None,
) -> None:
    told = alter(cluster, change, upsert("neighbour"))
    assert told[change.name][0] == code
    assert words in (None, told[change.name][1])
    assert told["neighbour"] == (0, None)
    assert list(cluster.controller.image.scram_credentials) == [ScramKey(1, "neighbour")]


def test_a_user_named_twice_is_left_as_it_was(cluster: Cluster) -> None:
    alter(cluster, upsert("ann"))
    refused = {"ann": (ErrorCode.DUPLICATE_RESOURCE, TWICE)}
    assert alter(cluster, upsert("ann", 2), upsert("ann", 1)) == refused
    assert alter(cluster, delete("ann"), upsert("ann", 2)) == refused
    assert alter(cluster, delete("ann"), delete("ann"), upsert("ann")) == refused
    assert list(cluster.controller.image.scram_credentials) == [ScramKey(1, "ann")]


def test_a_metadata_version_without_scram_refuses(cluster: Cluster) -> None:
    cluster.controller.replay(FeatureLevelRecord(name="metadata.version", feature_level=10))
    told = alter(cluster, upsert("ann"))
    assert told["ann"][0] == ErrorCode.UNSUPPORTED_VERSION


def test_more_users_than_one_batch_holds_are_refused(cluster: Cluster) -> None:
    cluster.controller.settings = replace(cluster.controller.settings, records_per_request_max=2)
    told = alter(cluster, upsert("a"), upsert("b"), upsert("c"))
    assert {code for code, _ in told.values()} == {ErrorCode.POLICY_VIOLATION}
    assert {code for code, _ in alter(cluster, upsert("a"), upsert("b")).values()} == {0}
