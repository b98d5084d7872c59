"""One node of three, message by message."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.raft import (
    AppendFetched,
    AppendLeaderChange,
    HardState,
    OffsetAndEpoch,
    QuorumError,
    RaftNode,
    Ready,
    Truncate,
)
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.ready import FetchRead, LeaderChanged, LostLeadership
from odradek.raft.roles import Candidate, Follower, Prospective, Resigned, Unattached
from tests.unit.raft.epoch_log import CONFIG, KEYS, EpochLog, make_node

NONE = ErrorCode.NONE
FAR_MS = 2 * CONFIG.election_timeout_ms  # each election timeout is over


def vote_request(
    epoch: int, end: OffsetAndEpoch, *, sender: int = 1, pre_vote: bool = False
) -> VoteRequest:
    return VoteRequest(77, KEYS[0], KEYS[sender], epoch, end.offset, end.epoch, pre_vote)


def answer(node: RaftNode, request: VoteRequest, now_ms: int = 0) -> VoteResponse:
    node.step(request, now_ms)
    responses = [m for m in node.take_ready().replies if isinstance(m, VoteResponse)]
    assert len(responses) == 1
    return responses[0]


def role_of(node: RaftNode) -> type:
    return type(node.role)


def fetch_request(epoch: int, offset: int, last: int, *, sender: int = 1) -> FetchRequest:
    return FetchRequest(88, KEYS[sender], epoch, offset, last, None, 500)


def made_leader(log: EpochLog, hard_state: HardState | None = None) -> RaftNode:
    """A node that was elected, with its LeaderChange record appended and flushed."""
    node = make_node(log, hard_state)
    node.take_ready()
    node.tick(FAR_MS)
    for _ in range(2):  # pre-vote, vote
        request = next(m for target, m in node.take_ready().requests if target == 1)
        assert isinstance(request, VoteRequest)
        node.step(VoteResponse(request.correlation_id, 1, NONE, None, node.epoch, True), FAR_MS)
    ready = node.take_ready()
    assert isinstance(ready.log_instruction, AppendLeaderChange)
    log.epochs.append(node.epoch)
    node.on_flushed(log.log_end_offset, FAR_MS)
    node.take_ready()
    return node


def made_follower(log: EpochLog, epoch: int) -> tuple[RaftNode, FetchRequest]:
    """A follower of node 1, and the fetch it has sent."""
    node = make_node(log)
    node.take_ready()
    node.step(BeginQuorumEpochRequest(5, KEYS[0], 1, epoch), 0)
    fetch = node.take_ready().requests[-1].request
    assert isinstance(fetch, FetchRequest)
    return node, fetch


def test_vote_is_persisted_with_the_answer_and_given_once() -> None:
    node = make_node(EpochLog([1, 1]))
    node.take_ready()
    node.step(vote_request(2, OffsetAndEpoch(2, 1)), 0)
    ready = node.take_ready()
    assert ready.hard_state == HardState(2, None, KEYS[1])
    assert VoteResponse(77, 0, NONE, None, 2, True) in ready.replies
    assert answer(node, vote_request(2, OffsetAndEpoch(2, 1))).vote_granted  # the same again
    assert not answer(node, vote_request(2, OffsetAndEpoch(9, 1), sender=2)).vote_granted


@pytest.mark.parametrize(
    ("end", "granted"),
    [
        (OffsetAndEpoch(3, 2), True),
        (OffsetAndEpoch(1, 3), True),
        (OffsetAndEpoch(9, 1), False),
        (OffsetAndEpoch(2, 2), False),
    ],
)
def test_vote_goes_to_logs_that_are_up_to_date(end: OffsetAndEpoch, granted: bool) -> None:
    node = make_node(EpochLog([1, 2, 2]))
    assert answer(node, vote_request(5, end)).vote_granted is granted


def test_stale_or_senseless_vote_requests_are_refused() -> None:
    node = make_node(EpochLog([1]), HardState(5))
    stale = answer(node, vote_request(4, OffsetAndEpoch(1, 1)))
    assert (stale.error, stale.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 5)
    senseless = answer(node, vote_request(6, OffsetAndEpoch(1, 6)))
    assert senseless.error is ErrorCode.INVALID_REQUEST
    other = VoteRequest(77, KEYS[2], KEYS[1], 6, 1, 1, False)
    assert answer(node, other).error is ErrorCode.INVALID_VOTER_KEY


def test_pre_vote_changes_nothing_and_a_busy_follower_refuses_it() -> None:
    node, fetch = made_follower(EpochLog(), 3)
    asked = vote_request(3, OffsetAndEpoch(0, 0), sender=2, pre_vote=True)
    assert answer(node, asked).vote_granted  # has not heard from its leader yet
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 3, 0), 5)
    node.take_ready()
    assert not answer(node, asked, 6).vote_granted
    assert node.hard_state == HardState(3, 1)


def test_election_goes_by_pre_vote_vote_and_leader_change() -> None:
    node = make_node(EpochLog([1]), HardState(1))
    node.take_ready()
    node.tick(FAR_MS)
    ready = node.take_ready()
    assert role_of(node) is Prospective
    assert ready.hard_state is None
    first = ready.requests[0].request
    assert isinstance(first, VoteRequest)
    assert (first.pre_vote, first.replica_epoch) == (True, 1)
    node.step(VoteResponse(first.correlation_id, 1, NONE, None, 1, True), FAR_MS)
    assert role_of(node) is Candidate
    ready = node.take_ready()
    assert ready.hard_state == HardState(2, None, KEYS[0])
    second = ready.requests[0].request
    assert isinstance(second, VoteRequest)
    assert (second.pre_vote, second.replica_epoch) == (False, 2)
    node.step(VoteResponse(first.correlation_id, 1, NONE, None, 2, True), FAR_MS)
    assert not node.is_leader, "a pre-vote was taken for a vote"
    node.step(VoteResponse(second.correlation_id, 1, NONE, None, 2, True), FAR_MS)
    ready = node.take_ready()
    assert ready.hard_state == HardState(2, 0)
    assert ready.log_instruction == AppendLeaderChange(2, 0, (0, 1, 2), (0, 1))


def test_voter_that_has_just_started_asks_soon_whether_it_would_be_elected() -> None:
    node = make_node(EpochLog([1]), HardState(1))
    soon_ms = node.next_deadline_ms()
    assert soon_ms is not None
    node.take_ready()
    node.tick(CONFIG.election_timeout_ms // 5)
    asked = [each.request for each in node.take_ready().requests]
    assert [isinstance(each, VoteRequest) and each.pre_vote for each in asked] == [True, True]
    assert node.hard_state == HardState(1)


def test_later_it_waits_for_a_whole_election_timeout() -> None:
    node = make_node(EpochLog([1]), HardState(1))
    node.take_ready()
    node.tick(CONFIG.election_timeout_ms // 5)
    for _, request in node.take_ready().requests:
        assert isinstance(request, VoteRequest)
        refusal = VoteResponse(request.correlation_id, request.voter.id, NONE, None, 1, False)
        node.step(refusal, CONFIG.election_timeout_ms // 5)
    assert role_of(node) is Unattached
    node.take_ready()
    node.tick(CONFIG.election_timeout_ms)
    assert role_of(node) is Unattached
    node.tick(CONFIG.election_timeout_ms // 5 + FAR_MS)
    assert role_of(node) is Prospective


def test_voter_that_starts_beside_a_leader_follows_it() -> None:
    node = make_node(EpochLog([1]), HardState(1))
    node.take_ready()
    node.tick(CONFIG.election_timeout_ms // 5)
    request = node.take_ready().requests[0].request
    assert isinstance(request, VoteRequest)
    node.step(VoteResponse(request.correlation_id, 1, NONE, 2, 1, False), 300)
    assert node.role == Follower(2, node.role.fetch_deadline_ms)  # type: ignore[union-attr]
    assert node.hard_state == HardState(1, 2)


def test_nothing_may_happen_before_the_log_instruction_is_carried_out() -> None:
    node = make_node(EpochLog(), size=1)
    with pytest.raises(AssertionError, match="carry out"):
        node.tick(1)


def test_leader_commits_its_own_epoch_only() -> None:
    log = EpochLog([1, 1, 1])
    node = made_leader(log, HardState(1))
    epoch, now_ms = node.epoch, FAR_MS
    node.step(fetch_request(epoch, 3, 1), now_ms)  # a majority has all old records
    ready = node.take_ready()
    assert ready.high_watermark is None
    assert ready.reads == (FetchRead(3, FetchResponse(88, 0, NONE, 0, epoch)),)
    node.step(fetch_request(epoch, 4, epoch), now_ms)
    assert node.take_ready().high_watermark == 4


def test_leader_counts_itself_only_as_far_as_it_is_flushed() -> None:
    log = EpochLog()
    node = made_leader(log)
    now_ms = FAR_MS
    log.epochs.append(node.epoch)
    node.on_appended(now_ms)
    node.step(fetch_request(node.epoch, 2, node.epoch), now_ms)
    assert node.take_ready().high_watermark == 1
    node.on_flushed(2, now_ms)
    assert node.take_ready().high_watermark == 2


def test_leader_says_where_logs_part() -> None:
    log = EpochLog([1, 1, 1])
    node = made_leader(log, HardState(3))
    epoch = node.epoch
    node.step(fetch_request(epoch, 5, 2), FAR_MS)
    expected = FetchResponse(88, 0, NONE, 0, epoch, None, OffsetAndEpoch(3, 1))
    assert node.take_ready() == Ready(replies=(expected,))


def test_fetch_without_news_waits_for_them() -> None:
    log = EpochLog()
    node = made_leader(log)
    epoch, now_ms = node.epoch, FAR_MS
    request = FetchRequest(88, KEYS[1], epoch, 1, epoch, 1, 500)
    node.step(request, now_ms)
    assert node.take_ready() == Ready(high_watermark=1)
    log.epochs.append(epoch)
    node.on_appended(now_ms + 10)
    assert node.take_ready().reads == (FetchRead(1, FetchResponse(88, 0, NONE, 0, epoch, 1)),)
    node.step(FetchRequest(89, KEYS[1], epoch, 2, epoch, 2, 500), now_ms + 20)
    node.take_ready()
    node.step(vote_request(epoch + 1, OffsetAndEpoch(2, epoch)), now_ms + 30)
    ready = node.take_ready()
    refusal = FetchResponse(89, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, None, epoch + 1)
    assert refusal in ready.replies
    assert ready.events == (LostLeadership(epoch), LeaderChanged(epoch + 1, None))


def leader_of_one_that_keeps_up(log: EpochLog) -> RaftNode:
    """A leader with one committed record; node 1 knows that, and its fetch waits for more."""
    node = made_leader(log)
    node.step(FetchRequest(88, KEYS[1], node.epoch, 1, node.epoch, 1, 500), FAR_MS)
    assert node.take_ready() == Ready(high_watermark=1)
    return node


@pytest.mark.parametrize("kinds", [["record"], ["record", "no-op"], ["no-op", "record"]])
def test_commit_of_a_record_is_told_at_once(kinds: list[str]) -> None:
    log = EpochLog()
    node = leader_of_one_that_keeps_up(log)
    epoch, end_offset = node.epoch, 1 + len(kinds)
    for kind in kinds:
        log.epochs.append(epoch)
        node.on_appended(FAR_MS, is_no_op=kind == "no-op")
    node.on_flushed(end_offset, FAR_MS)
    node.take_ready()
    node.step(FetchRequest(89, KEYS[1], epoch, end_offset, epoch, 1, 500), FAR_MS)
    told = FetchResponse(89, 0, NONE, 0, epoch, end_offset)
    assert node.take_ready() == Ready(high_watermark=end_offset, replies=(told,))


def test_commit_of_a_no_op_is_told_with_the_next_answer() -> None:
    log = EpochLog()
    node = leader_of_one_that_keeps_up(log)
    epoch = node.epoch
    log.epochs.append(epoch)
    node.on_appended(FAR_MS, is_no_op=True)
    node.on_flushed(2, FAR_MS)
    assert node.take_ready().reads == (FetchRead(1, FetchResponse(88, 0, NONE, 0, epoch, 1)),)
    node.step(FetchRequest(89, KEYS[1], epoch, 2, epoch, 1, 500), FAR_MS)
    assert node.take_ready() == Ready(high_watermark=2)
    node.tick(FAR_MS + 500)
    assert node.take_ready().replies == (FetchResponse(89, 0, NONE, 0, epoch, 2),)


def test_leader_that_hears_of_no_majority_resigns() -> None:
    node = made_leader(EpochLog())
    start_ms = FAR_MS
    node.step(fetch_request(node.epoch, 1, node.epoch), start_ms + 1_000)
    node.tick(start_ms + CONFIG.check_quorum_timeout_ms)
    assert node.is_leader
    node.tick(start_ms + 1_000 + CONFIG.check_quorum_timeout_ms)
    assert isinstance(node.role, Resigned)
    ends = [m for _, m in node.take_ready().requests if isinstance(m, EndQuorumEpochRequest)]
    assert [end.preferred_candidates for end in ends] == [(KEYS[1], KEYS[2])] * 2


def test_follower_appends_flushes_and_fetches_on() -> None:
    log = EpochLog()
    node, fetch = made_follower(log, 3)
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 3, 1, records="batch"), 5)
    assert node.take_ready() == Ready(log_instruction=AppendFetched("batch"))
    log.epochs += [3, 3]
    node.tick(6)
    assert node.take_ready() == Ready(), "claimed records that are not on disk"
    node.on_flushed(2, 7)
    ready = node.take_ready()
    assert ready.high_watermark == 1
    again = ready.requests[0].request
    assert isinstance(again, FetchRequest)
    assert (again.fetch_offset, again.last_fetched_epoch, again.high_watermark) == (2, 3, 1)


def test_follower_cuts_its_log_where_it_parts_from_the_leaders() -> None:
    log = EpochLog([1, 1, 2, 2])
    node, fetch = made_follower(log, 3)
    diverging = OffsetAndEpoch(5, 1)
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 3, None, diverging), 5)
    assert node.take_ready() == Ready(log_instruction=Truncate(2))
    del log.epochs[2:]
    assert node.next_deadline_ms() == 5
    node.tick(5)
    again = node.take_ready().requests[0].request
    assert isinstance(again, FetchRequest)
    assert (again.fetch_offset, again.last_fetched_epoch) == (2, 1)


def test_committed_records_are_never_cut() -> None:
    log = EpochLog([1, 1])
    node, fetch = made_follower(log, 3)
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 3, 2), 5)
    again = node.take_ready().requests[0].request
    lost = FetchResponse(again.correlation_id, 1, NONE, 1, 3, None, OffsetAndEpoch(1, 1))
    with pytest.raises(QuorumError, match="committed up to 2"):
        node.step(lost, 6)


def test_late_fetch_response_is_ignored() -> None:
    node, fetch = made_follower(EpochLog(), 3)
    node.on_send_failed(1, fetch.correlation_id, 1)
    node.take_ready()
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 3, 1, records="batch"), 5)
    assert node.take_ready().log_instruction is None


def test_two_leaders_in_one_epoch_stop_the_node() -> None:
    node, _ = made_follower(EpochLog(), 3)
    with pytest.raises(QuorumError, match="two leaders"):
        node.step(BeginQuorumEpochRequest(6, KEYS[0], 2, 3), 1)


def test_first_successor_stands_at_once_and_the_others_hold_back() -> None:
    assert [CONFIG.successor_backoff_ms(i, 3) for i in range(4)] == [0, 250, 500, 1_000]
    node, _ = made_follower(EpochLog(), 3)
    node.step(EndQuorumEpochRequest(9, 1, 3, (KEYS[0], KEYS[2])), 10)
    assert isinstance(node.role, Prospective)
    node, _ = made_follower(EpochLog(), 3)
    node.step(EndQuorumEpochRequest(9, 1, 3, (KEYS[2], KEYS[0])), 10)
    assert isinstance(node.role, Follower)
    assert node.role.fetch_deadline_ms == 510


def test_followers_give_up_on_a_leader_one_after_the_other() -> None:
    assert [CONFIG.follower_timeout_ms(i, 2) for i in range(2)] == [2_000, 2_250]
    assert [CONFIG.follower_timeout_ms(i, 4) for i in range(4)] == [2_000, 2_125, 2_250, 2_375]
    deadlines = []
    for key in (KEYS[0], KEYS[2]):
        node = make_node(EpochLog(), HardState(3, 1), key=key)
        assert isinstance(node.role, Follower)
        deadlines.append(node.role.fetch_deadline_ms)
    assert deadlines == [2_000, 2_250]


def test_restarted_leader_does_not_lead_its_epoch_again() -> None:
    node = make_node(EpochLog([1, 4]), HardState(4, 0))
    assert isinstance(node.role, Resigned)
    assert not answer(node, vote_request(4, OffsetAndEpoch(9, 3))).vote_granted
    deadline = node.next_deadline_ms()
    assert deadline is not None
    node.tick(deadline)
    assert node.epoch == 5


def test_observer_fetches_and_never_stands() -> None:
    node = make_node(EpochLog(), key=KEYS[4])
    fetch = node.take_ready().requests[0].request
    assert isinstance(fetch, FetchRequest)
    node.tick(100_000)
    assert isinstance(node.role, Unattached)
