"""DescribeUserScramCredentials (key 50), version 0: which SCRAM credentials users have.

Mechanisms and iterations only: salts and keys never leave a broker. No users, or null, means all.
"""

from collections import Counter

from odradek.broker.context import Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.protocol.generated.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Answer:
    known: dict[str, list[CredentialInfo]] = {}
    for key, record in sorted(context.broker.image.scram_credentials.items()):
        info = CredentialInfo(mechanism=key.mechanism, iterations=record.iterations)
        known.setdefault(key.name, []).append(info)
    times = Counter(each.name for each in request.users or ()) or Counter(list(known))
    results = [_describe(name, known.get(name), count) for name, count in times.items()]
    # Not null: Kafka's own answers have empty messages where nothing is wrong.
    return DescribeUserScramCredentialsResponse(error_message="", results=results)


def _describe(
    name: str, infos: list[CredentialInfo] | None, times: int
) -> DescribeUserScramCredentialsResult:
    if times > 1:
        problem = "Cannot describe SCRAM credentials for the same user twice in a single request"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=f"{problem}: {name}"
        )
    if infos is None:
        problem = "Attempt to describe a user credential that does not exist"
        return DescribeUserScramCredentialsResult(
            user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=f"{problem}: {name}"
        )
    return DescribeUserScramCredentialsResult(user=name, error_message="", credential_infos=infos)
