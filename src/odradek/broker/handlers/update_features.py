"""UpdateFeatures (key 57), versions 0-2: change the levels of features, all or none.

v1  upgrade types, validate only.  v2  no result for each feature any more.  Answered when the
metadata log has committed it.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.update_features import UpdateFeaturesRequest


def handle(context: RequestContext, request: UpdateFeaturesRequest) -> Answer:
    return context.broker.controller.forward(context, request)
