"""UpdateFeatures (key 57), versions 0-2: change the levels of features, all or none.

v1  upgrade types, validate only.  v2  no result for each feature any more.  Answered when the
metadata log has committed it.

``kraft.version`` is no metadata: it is a control record of the log, and goes there together with
the voters, which were in the configs alone before. That works for a quorum of one that has a
controller listener.

Not implemented: kraft.version of a quorum of several voters, throttling.
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
from odradek.quorum.initial_voters import InitialVoter, find_controller_listener, voters_record


def handle(context: ControlContext, request: UpdateFeaturesRequest) -> None:
    control = context.control
    context.change(lambda controller: _plan(control, controller, request))


def _plan(
    control: Control, controller: Controller, request: UpdateFeaturesRequest
) -> Result[UpdateFeaturesResponse]:
    quorum = control.quorum
    current = quorum.kraft_version
    wanted = [each for each in request.feature_updates if each.feature == KRAFT_VERSION]
    level = wanted[-1].max_version_level if wanted else current
    result = controller.update_features(request, current, quorum.voter_ids)
    if result.reply.error_code or level == current:
        return result
    listener = find_controller_listener(control.config)
    if listener is None:
        problem = "The log would name where this controller listens, and controller.listener.names"
        return _refused(level, f"{problem} names no listener.")
    key = quorum.replica_key
    if quorum.voter_ids != (key.id,):
        return _refused(level, "The quorum has several voters, and so far only one can do this.")
    if request.validate_only:
        return result
    assert key.directory_id is not None
    voter = InitialVoter.at(listener, key.id, key.directory_id)
    records = QuorumRecords(level, voters_record([voter], listener.name))
    return result._replace(quorum=records)


def _refused(level: int, problem: str) -> Result[UpdateFeaturesResponse]:
    message = (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {KRAFT_VERSION}. {problem}"
    )
    code = ErrorCode.INVALID_UPDATE_VERSION
    return Result((), UpdateFeaturesResponse(error_code=code, error_message=message))
