"""AlterUserScramCredentials: for each user one credential set or removed, or a refusal (KIP-554).

What is refused is refused in Kafka's words, with one exception: a salted password of no bytes, over
which Kafka falls with UNKNOWN_SERVER_ERROR.
"""

from odradek.controller.result import Result
from odradek.controller.view import ClusterView
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.scram import ITERATIONS_MAX, ITERATIONS_MIN, ScramMechanism, keys_of
from odradek.metadata.features import SCRAM_FROM
from odradek.metadata.touched import ScramKey
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.generated.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from odradek.protocol.message import Message

Change = ScramCredentialDeletion | ScramCredentialUpsertion


def alter_user_scram_credentials(
    view: ClusterView, request: AlterUserScramCredentialsRequest
) -> Result[AlterUserScramCredentialsResponse]:
    """Plan all changes; a user who is named more than once gets one answer, a refusal."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    planned: dict[str, Message | ApiError] = {}
    for change in changes:
        earlier = planned.get(change.name)
        if isinstance(earlier, ApiError):
            continue  # the first refusal is the one that is told
        try:
            _check_alterable(view, len(changes), is_second=earlier is not None)
            planned[change.name] = _plan(view, change)
        except ApiError as error:  # one bad user must not fail its neighbours
            planned[change.name] = error
    results = [_result(name, each) for name, each in planned.items()]
    records = [each for each in planned.values() if not isinstance(each, ApiError)]
    return Result(
        tuple(view.versioned(record) for record in records),
        AlterUserScramCredentialsResponse(results=results),
    )


def _check_alterable(view: ClusterView, changes: int, *, is_second: bool) -> None:
    if is_second:
        problem = "A user credential cannot be altered twice in the same request"
        raise ApiError(ErrorCode.DUPLICATE_RESOURCE, problem)
    if view.metadata_version < SCRAM_FROM:
        problem = "The current metadata.version does not support SCRAM"
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, problem)
    if changes > view.settings.records_per_request_max:
        problem = f"more than {view.settings.records_per_request_max} changes: split the request"
        raise ApiError(ErrorCode.POLICY_VIOLATION, problem)


def _plan(view: ClusterView, change: Change) -> Message:
    mechanism = _checked_mechanism(change)
    if isinstance(change, ScramCredentialUpsertion):
        return _credential(change, mechanism)
    if ScramKey(mechanism, change.name) not in view.image.scram_credentials:
        problem = "Attempt to delete a user credential that does not exist"
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, problem)
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=mechanism)


def _credential(
    upsertion: ScramCredentialUpsertion, mechanism: ScramMechanism
) -> UserScramCredentialRecord:
    if upsertion.iterations < ITERATIONS_MIN:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if upsertion.iterations > ITERATIONS_MAX:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not upsertion.salted_password:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salted password must not be empty")
    keys = keys_of(mechanism, upsertion.salted_password)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=mechanism,
        salt=upsertion.salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
    )


def _checked_mechanism(change: Change) -> ScramMechanism:
    if not change.name:
        raise ApiError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    try:
        return ScramMechanism(change.mechanism)
    except ValueError:
        problem = "Unknown SCRAM mechanism"
        raise ApiError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, problem) from None


def _result(name: str, change: Message | ApiError) -> AlterUserScramCredentialsResult:
    if isinstance(change, ApiError):
        return AlterUserScramCredentialsResult(
            user=name, error_code=change.code, error_message=change.message
        )
    return AlterUserScramCredentialsResult(user=name, error_message=None)
