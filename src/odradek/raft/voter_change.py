"""A change of the voters that a leader has begun and not ended: there is never more than one.

::

    AddVoter     --> asks the new voter what it supports --> appended --> committed
    RemoveVoter  ------------------------------------------> appended --> committed

It ends with the commit, or with its time; then its record may be in the log, and no other change
begins before that is committed.
"""

from dataclasses import dataclass

from odradek.core.errors import ErrorCode
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
)


@dataclass(slots=True)
class VoterChange:
    request: AddVoterRequest | RemoveVoterRequest
    deadline_ms: int
    offset: int | None = None
    """Where its record lies; None as long as the new voter is asked."""
    is_answered: bool = False


def answer_to(
    request: AddVoterRequest | RemoveVoterRequest,
    sender: int,
    error: ErrorCode,
    message: str | None = None,
) -> AddVoterResponse | RemoveVoterResponse:
    if isinstance(request, AddVoterRequest):
        return AddVoterResponse(request.correlation_id, sender, error, message)
    return RemoveVoterResponse(request.correlation_id, sender, error, message)
