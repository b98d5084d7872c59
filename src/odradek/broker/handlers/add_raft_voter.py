"""AddRaftVoter (key 80), versions 0-1: give a controller a vote (KIP-853).

v1  answered when it is appended, if the request does not wait for the commit.

The leader of the metadata quorum decides, so the request is forwarded to the active controller,
which it is. Its checks and answers are in ``odradek.raft.voter_changes``.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.add_raft_voter import AddRaftVoterRequest


def handle(context: RequestContext, request: AddRaftVoterRequest) -> Answer:
    return context.broker.controller.forward(context, request)
