"""UpdateFeatures (key 57), versions 0-2: change the levels of features, all or none.

v1  upgrade types, validate only.  v2  no result for each feature any more.  Answered when the
metadata log has committed it.

``kraft.version`` is not the controller's: it is a control record of the metadata log, and goes
there together with the voters, who were in the configs alone before. A node whose controller has
no listener cannot be named as one and stays at 0.

Not implemented: throttling.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.broker.initial_voters import InitialVoter, find_controller_listener, voters_record
from odradek.controller import Controller
from odradek.controller.result import Result
from odradek.core.config.listeners import Listener
from odradek.core.errors import ErrorCode
from odradek.metadata.features import KRAFT_VERSION
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.generated.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Answer:
    node = context.node
    wanted = [each for each in request.feature_updates if each.feature == KRAFT_VERSION]
    level = wanted[-1].max_version_level if wanted else node.metadata.kraft_version

    def plan(controller: Controller) -> Result[UpdateFeaturesResponse]:
        result = controller.update_features(request, node.metadata.kraft_version)
        if result.reply.error_code or level == node.metadata.kraft_version:
            return result
        listener = find_controller_listener(node.config)
        if listener is None:
            return Result((), _no_listener(level))
        if not request.validate_only:
            _name_voter(context, level, listener)
        return result

    node.change(plan, context.reply)
    return PENDING


def _name_voter(context: RequestContext, level: int, listener: Listener) -> None:
    metadata = context.node.metadata
    key = metadata.replica_key
    assert key.directory_id is not None
    voter = InitialVoter.at(listener, key.id, key.directory_id)
    metadata.append_quorum(QuorumRecords(level, voters_record([voter], listener.name)))


def _no_listener(level: int) -> UpdateFeaturesResponse:
    problem = (
        "The update failed for all features since the following feature had an error: "
        f"Invalid update version {level} for feature {KRAFT_VERSION}. The log would name where "
        "this controller listens, and controller.listener.names names no listener."
    )
    return UpdateFeaturesResponse(
        error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message=problem
    )
