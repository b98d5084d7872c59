"""UpdateFeatures (key 57), versions 0-2: change the levels of features, all or none.

v1  upgrade types, validate only.  v2  no result for each feature any more.  Answered when the
metadata log has committed it.

``kraft.version`` is no metadata: it is a control record of the log, and goes there together with
the voters, which were in the configs alone before. Each voter has said meanwhile in which directory
it is, where it listens and what it supports (UpdateRaftVoter); before that there is no upgrade.

Not implemented: throttling.
"""

from odradek.control.context import Control, ControlContext
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.core.errors import ErrorCode
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from odradek.quorum.initial_voters import find_controller_listener
from odradek.quorum.voters_record import voters_to_record


def handle(context: ControlContext, request: UpdateFeaturesRequest) -> None:
    control = context.control
    context.change(lambda controller: _plan(control, controller, request))


def _plan(
    control: Control, controller: Controller, request: UpdateFeaturesRequest
) -> Result[UpdateFeaturesResponse]:
    quorum = control.quorum
    current = quorum.appended_kraft_version
    wanted = [each for each in request.feature_updates if each.feature == KRAFT_VERSION]
    level = wanted[-1].max_version_level if wanted else current
    result = controller.update_features(request, current, quorum.voter_ids)
    if result.reply.error_code or level == current:
        return result
    if find_controller_listener(control.config) is None:
        problem = "The log would name where this controller listens, and controller.listener.names"
        return _refused(level, f"{problem} names no listener.")
    voters = quorum.upgraded_voters
    if voters is None or not voters.supports(level):
        problem = f"Invalid upgrade of {KRAFT_VERSION} to {level} because not all of the voters"
        return _refused(level, f"{problem} support it")
    if request.validate_only:
        return result
    return result._replace(quorum=QuorumRecords(level, voters_to_record(voters)))


def _refused(level: int, problem: str) -> Result[UpdateFeaturesResponse]:
    message = (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {KRAFT_VERSION}. {problem}"
    )
    code = ErrorCode.INVALID_UPDATE_VERSION
    return Result((), UpdateFeaturesResponse(error_code=code, error_message=message))
