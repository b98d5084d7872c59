"""AlterUserScramCredentials (key 51), version 0: set and remove SCRAM credentials of users.

Answered when the metadata log has committed them.

Not implemented: throttling.
"""

from odradek.control.context import ControlContext
from odradek.protocol.generated.alter_user_scram_credentials import AlterUserScramCredentialsRequest


def handle(context: ControlContext, request: AlterUserScramCredentialsRequest) -> None:
    context.change(lambda controller: controller.alter_user_scram_credentials(request))
