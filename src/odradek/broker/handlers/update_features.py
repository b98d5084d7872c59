"""UpdateFeatures (key 57), versions 0-2: change the levels of features, all or none.

v1  upgrade types, validate only.  v2  no result for each feature any more.  Answered when the
metadata log has committed it.

``kraft.version`` is not the controller's: it is a control record of the metadata log, and may be
asked for at the level that it has.

Not implemented: raising ``kraft.version`` from 0, throttling.
"""

from odradek.broker.context import PENDING, Answer, RequestContext
from odradek.core.errors import ErrorCode
from odradek.metadata.features import KRAFT_VERSION, KRAFT_VERSIONS
from odradek.protocol.generated.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Answer:
    of_the_log = [each for each in request.feature_updates if each.feature == KRAFT_VERSION]
    for each in of_the_log:
        problem = _problem(each, context.node.metadata.kraft_version)
        if problem is not None:
            what = f"{KRAFT_VERSION} cannot be {each.max_version_level}: {problem}"
            return UpdateFeaturesResponse(
                error_code=ErrorCode.INVALID_UPDATE_VERSION,
                error_message=f"no feature was changed: {what}",
            )
    request.feature_updates = [each for each in request.feature_updates if each not in of_the_log]

    def reply(response: UpdateFeaturesResponse) -> None:
        if not response.error_code:
            response.results += [
                UpdatableFeatureResult(feature=each.feature, error_message=None)
                for each in of_the_log
            ]
        context.reply(response)

    context.node.change(lambda controller: controller.update_features(request), reply)
    return PENDING


def _problem(update: FeatureUpdateKey, current: int) -> str | None:
    level = update.max_version_level
    if level not in KRAFT_VERSIONS:
        return "this controller does not support it"
    if level < current:
        return "the log names its voters, and there is no way back"
    return None if level == current else "voters cannot be moved into the log yet"
