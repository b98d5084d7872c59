"""The quorum goes on while the log changes who votes; and replicas that never vote."""

from odradek.core.errors import ErrorCode
from odradek.raft import RaftNode, VoterSet
from odradek.raft.leader import Leader
from odradek.raft.messages import BeginQuorumEpochRequest, FetchRequest, FetchResponse
from odradek.raft.ready import AppendFetched
from odradek.raft.roles import Follower, Resigned
from tests.unit.raft.epoch_log import KEYS, EpochLog, make_node

NONE = ErrorCode.NONE


def leader_alone(log: EpochLog) -> RaftNode:
    node = make_node(log, size=1)
    node.take_ready()
    append(node, log)
    return node


def append(node: RaftNode, log: EpochLog) -> None:
    log.epochs.append(node.epoch)
    node.on_appended(0)
    node.on_flushed(log.log_end_offset, 0)
    node.take_ready()


def fetch(node: RaftNode, sender: int, offset: int, now_ms: int = 0) -> None:
    log_epoch = node.epoch if offset else 0
    node.step(FetchRequest(8, KEYS[sender], node.epoch, offset, log_epoch, 99, 500), now_ms)
    node.take_ready()


def test_a_voter_set_counts_when_it_is_appended_and_not_when_it_is_committed() -> None:
    log = EpochLog()
    node = leader_alone(log)
    assert node.high_watermark == 1
    node.on_voters_appended(1, VoterSet(tuple(KEYS[:2])), 0)
    append(node, log)
    assert node.high_watermark == 1, "two voters, and one has it"
    fetch(node, 1, 2)
    assert node.high_watermark == 2


def test_what_an_observer_had_fetched_counts_when_it_gets_a_vote() -> None:
    log = EpochLog()
    node = leader_alone(log)
    fetch(node, 1, 1)
    node.on_voters_appended(1, VoterSet(tuple(KEYS[:2])), 0)
    assert isinstance(node.role, Leader)
    assert node.role.progress[1].end_offset == 1
    assert node.role.check_quorum_deadline_ms is not None


def test_a_removed_leader_does_not_count_itself_and_resigns_when_that_is_committed() -> None:
    log = EpochLog()
    node = leader_alone(log)
    node.on_voters_appended(1, VoterSet(tuple(KEYS[:3])), 0)
    append(node, log)
    fetch(node, 1, 2)
    assert node.high_watermark == 2
    node.on_voters_appended(2, VoterSet(tuple(KEYS[1:3])), 0)
    append(node, log)
    fetch(node, 1, 3)
    assert node.is_leader, "one of two voters has it"
    assert node.high_watermark == 2
    fetch(node, 2, 3)
    assert node.high_watermark == 3
    assert isinstance(node.role, Resigned)


def test_a_follower_that_gets_a_vote_watches_its_leader_from_then_on() -> None:
    node = make_node(EpochLog(), key=KEYS[4])
    node.take_ready()
    node.step(BeginQuorumEpochRequest(5, KEYS[4], 1, 4), 0)
    node.take_ready()
    assert isinstance(node.role, Follower)
    assert node.role.fetch_deadline_ms is None
    node.on_voters_appended(0, VoterSet(tuple(KEYS)), 7)
    assert node.role.fetch_deadline_ms is not None


def test_a_replica_that_never_votes_does_not_wait_for_its_disk() -> None:
    log = EpochLog()
    node = make_node(log, key=KEYS[4], can_become_voter=False)
    target, asked = node.take_ready().requests[-1]
    node.step(FetchResponse(asked.correlation_id, target, NONE, 1, 4), 0)  # names the leader
    asked = node.take_ready().requests[-1].request
    node.step(
        FetchResponse(asked.correlation_id, 1, NONE, 1, 4, high_watermark=2, records=[4, 4]), 0
    )
    assert node.take_ready().log_instruction == AppendFetched([4, 4])
    log.epochs += [4, 4]
    node.on_appended(0)
    ready = node.take_ready()
    assert ready.high_watermark == 2
    again = ready.requests[-1].request
    assert isinstance(again, FetchRequest)
    assert again.fetch_offset == 2


def test_a_replica_that_knows_no_voters_asks_the_bootstrap_servers() -> None:
    node = make_node(
        EpochLog(), key=KEYS[4], voters=VoterSet(()), bootstrap_ids=(-2, -3), can_become_voter=False
    )
    targets = {send.target for send in node.take_ready().requests}
    assert targets <= {-2, -3}
    assert targets
