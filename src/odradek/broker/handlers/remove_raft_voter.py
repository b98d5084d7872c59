"""RemoveRaftVoter (key 81), version 0: take the vote of a controller (KIP-853).

The leader of the metadata quorum decides, so the request is forwarded to the active controller,
which it is. Its checks and answers are in ``odradek.raft.voter_changes``.

Not implemented: throttling.
"""

from odradek.broker.context import Answer, RequestContext
from odradek.protocol.generated.remove_raft_voter import RemoveRaftVoterRequest


def handle(context: RequestContext, request: RemoveRaftVoterRequest) -> Answer:
    return context.broker.controller.forward(context, request)
