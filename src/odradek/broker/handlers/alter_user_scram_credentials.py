"""AlterUserScramCredentials (key 51), version 0: set and remove SCRAM credentials of users.

The keys are made of the salted password that comes with the request, which is kept nowhere.
Answered when the metadata log has committed them.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)


def handle(context: RequestContext, request: AlterUserScramCredentialsRequest) -> Answer:
    return context.broker.controller.forward(context, request)
