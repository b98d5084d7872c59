"""How a transcript shows messages, states and events."""

from odradek.core.errors import ErrorCode
from odradek.raft import BecameLeader, HardState, LeaderChanged, LostLeadership
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderResponse,
    Message,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.ready import RoleEvent
from tests.simulation.raft.sim_log import Entry


def said(message: Message) -> str:
    match message:
        case VoteRequest():
            kind = "PreVote" if message.pre_vote else "Vote"
            end = f"log ends at {message.last_offset} in epoch {message.last_offset_epoch}"
            return f"{kind} in epoch {message.replica_epoch}: my {end}"
        case BeginQuorumEpochRequest():
            return f"BeginQuorumEpoch {message.leader_epoch}"
        case EndQuorumEpochRequest():
            successors = ", ".join(str(each.id) for each in message.preferred_candidates)
            return f"EndQuorumEpoch {message.leader_epoch}: preferably {successors}"
        case FetchRequest():
            epochs = f"epoch {message.current_leader_epoch}, last {message.last_fetched_epoch}"
            return f"Fetch from {message.fetch_offset} ({epochs}, hw {message.high_watermark})"
        case FetchSnapshotRequest():
            return f"FetchSnapshot {message.snapshot_id.offset} from byte {message.position}"
        case VoteResponse():
            return _answer(message, "granted" if message.vote_granted else "not granted")
        case BeginQuorumEpochResponse() | EndQuorumEpochResponse():
            return _answer(message, "noted")
        case FetchResponse():
            return _answer(message, _fetched(message))
        case AddVoterRequest():
            return f"AddVoter {message.voter.id}"
        case RemoveVoterRequest():
            return f"RemoveVoter {message.voter.id}"
        case UpdateVoterRequest():
            ports = ", ".join(str(each.port) for each in message.details.endpoints)
            return f"UpdateVoter {message.voter.id}: I listen on {ports}"
        case ProbeVoterRequest():
            return "what do you support?"
        case AddVoterResponse() | RemoveVoterResponse():
            return f"answers: {message.error.name}; {message.message or 'done'}"
        case UpdateVoterResponse():
            return _answer(message, "noted")
        case ProbeVoterResponse():
            return f"answers: kraft.version {message.kraft_versions}"
        case FetchSnapshotResponse():
            size, came = message.size, message.position + len(message.data)
            return _answer(message, f"all of {size} bytes" if came == size else f"up to {came}")


def shown_entry(entry: Entry) -> str:
    voters = entry.voters
    return entry.value if voters is None else f"voters({' '.join(map(str, voters.ids))})"


def _fetched(response: FetchResponse) -> str:
    if response.diverging_epoch is not None:
        end = response.diverging_epoch
        return f"diverging: epoch {end.epoch} ends at {end.offset}"
    if response.snapshot_id is not None:
        return f"take the snapshot at {response.snapshot_id.offset} first"
    records = response.records if isinstance(response.records, list) else []
    values = [shown_entry(each) for each in records if isinstance(each, Entry)]
    return f"{' '.join(values) or 'nothing new'} (hw {response.high_watermark})"


def _answer(response: LeaderResponse, good: str) -> str:
    word = good if response.error is ErrorCode.NONE else response.error.name
    leader = "nobody" if response.leader_id is None else response.leader_id
    return f"answers: {word}; {leader} leads epoch {response.leader_epoch}"


def shown_state(state: HardState) -> str:
    leader = "" if state.leader_id is None else f", leader {state.leader_id}"
    voted = "" if state.voted is None else f", voted for {state.voted.id}"
    return f"epoch {state.epoch}{leader}{voted}"


def shown_event(event: RoleEvent) -> str:
    match event:
        case BecameLeader(epoch=epoch, epoch_start_offset=start):
            return f"you lead epoch {epoch}, from offset {start} on"
        case LostLeadership(epoch=epoch):
            return f"you no longer lead epoch {epoch}"
        case LeaderChanged(epoch=epoch, leader_id=leader_id):
            return f"{'nobody' if leader_id is None else leader_id} leads epoch {epoch}"
