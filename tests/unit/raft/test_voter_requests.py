"""Answers of a leader to AddVoter, RemoveVoter and UpdateVoter: Kafka's checks, in their order."""

from dataclasses import dataclass, field

from odradek.core.errors import ErrorCode
from odradek.core.ids import Uuid
from odradek.raft import RaftNode, ReplicaKey, VoterHistory, VoterSet
from odradek.raft.config import CAUGHT_UP_MS
from odradek.raft.messages import (
    AddVoterRequest,
    AddVoterResponse,
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    ProbeVoterRequest,
    ProbeVoterResponse,
    RemoveVoterRequest,
    RemoveVoterResponse,
    UpdateVoterRequest,
    UpdateVoterResponse,
    VoterDetails,
    VoterEndpoint,
    VoteRequest,
    VoteResponse,
)
from odradek.raft.ready import AppendVoters
from odradek.raft.roles import Follower, Resigned
from tests.unit.raft.epoch_log import CONFIG, KEYS, EpochLog, make_node

NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT
HERE = VoterDetails((VoterEndpoint("CONTROLLER", "here", 9093),), 0, 1)
THERE = VoterDetails((VoterEndpoint("CONTROLLER", "there", 9093),), 0, 1)
STRANGER = ReplicaKey(4, Uuid(bytes([99] * 16)))
Answer = tuple[ErrorCode, str | None]


@dataclass
class Site:
    """A leader, whose Ready is carried out at once; nothing is lost."""

    size: int = 1
    is_by_log: bool = True
    log: EpochLog = field(default_factory=EpochLog)
    now_ms: int = 0
    has_space: bool = True
    answers: list[object] = field(default_factory=list)
    probes: list[tuple[int, ProbeVoterRequest]] = field(default_factory=list)

    def __post_init__(self) -> None:
        voters = VoterSet(tuple(KEYS[: self.size]), dict.fromkeys(range(self.size), THERE))
        if self.is_by_log:
            history = VoterHistory(VoterSet(()))
            history.start_at(0, voters)
        else:
            history = VoterHistory(VoterSet.of_ids(*voters.ids))
        self.node = make_node(self.log, history=history, details=HERE)
        self.act()
        if self.size > 1:
            self.elect()

    def elect(self) -> None:
        self.now_ms += 2 * CONFIG.election_timeout_ms
        self.node.tick(self.now_ms)
        for _ in range(2):  # pre-votes, votes
            ready = self.node.take_ready()
            for target, request in ready.requests:
                if isinstance(request, VoteRequest):
                    self.node.step(
                        VoteResponse(
                            request.correlation_id, target, NONE, None, self.node.epoch, True
                        ),
                        self.now_ms,
                    )
                    break
        self.act()
        assert self.node.is_leader

    def act(self) -> None:
        """Carry out what the node wants, and flush."""
        node, log = self.node, self.log
        while not (ready := node.take_ready()).is_empty:
            instruction = ready.log_instruction
            if isinstance(instruction, AppendVoters) and not self.has_space:
                node.on_voters_refused(self.now_ms)
            elif instruction is not None:
                log.epochs.append(node.epoch)
                voters = getattr(instruction, "voters", None)
                if voters is not None:
                    node.on_voters_appended(log.log_end_offset - 1, voters, self.now_ms)
                node.on_appended(self.now_ms)
                node.on_flushed(log.log_end_offset, self.now_ms)
            self.answers += ready.replies
            self.probes += [
                (each.target, each.request)
                for each in ready.requests
                if isinstance(each.request, ProbeVoterRequest)
            ]
        node.check_invariants()

    def fetch(self, key: ReplicaKey, offset: int | None = None) -> None:
        offset = self.log.log_end_offset if offset is None else offset
        last_epoch = self.node.epoch if offset else 0
        request = FetchRequest(1, key, self.node.epoch, offset, last_epoch, 99, 0)
        self.node.step(request, self.now_ms)
        self.act()

    def ask(self, request: AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest) -> None:
        self.answers.clear()
        self.node.step(request, self.now_ms)
        self.act()

    def add(self, key: ReplicaKey = KEYS[4], *, ack_when_committed: bool = True) -> None:
        self.ask(AddVoterRequest(7, key, HERE.endpoints, ack_when_committed))

    def remove(self, key: ReplicaKey) -> None:
        self.ask(RemoveVoterRequest(7, key))

    def update(self, key: ReplicaKey, details: VoterDetails, epoch: int | None = None) -> ErrorCode:
        epoch = self.node.epoch if epoch is None else epoch
        self.ask(UpdateVoterRequest(7, key, epoch, details))
        answer = self.answers[-1]
        assert isinstance(answer, UpdateVoterResponse)
        return answer.error

    def probed(self, versions: tuple[int, int] | None = (0, 1), error: ErrorCode = NONE) -> None:
        target, request = self.probes.pop()
        answer = ProbeVoterResponse(request.correlation_id, target, error, versions)
        self.node.step(answer, self.now_ms)
        self.act()

    def answered(self) -> Answer | None:
        """What the last request was answered; None as long as it waits."""
        for each in reversed(self.answers):
            if isinstance(each, AddVoterResponse | RemoveVoterResponse):
                return each.error, each.message
        return None

    def code(self) -> ErrorCode | None:
        answer = self.answered()
        return None if answer is None else answer[0]

    def ids(self) -> tuple[int, ...]:
        return self.node.voters.ids


def shown(*keys: ReplicaKey) -> str:
    return ", ".join(f"ReplicaKey(id={key.id}, directoryId={key.directory_id})" for key in keys)


# Adding.


def test_a_caught_up_observer_is_asked_and_added_and_the_answer_waits_for_the_commit() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add()
    (probe,) = site.probes
    assert probe[0] == 4
    assert probe[1].endpoints == HERE.endpoints
    assert site.ids() == (0,), "nothing is appended before it has answered"
    site.probed()
    assert site.ids() == (0, 4)
    assert site.node.voters.details[4] == HERE
    assert site.answered() is None
    site.fetch(KEYS[4])
    assert site.answered() == (NONE, None)


def test_one_that_waits_for_the_append_only_is_answered_then() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add(ack_when_committed=False)
    site.probed()
    assert site.answered() == (NONE, None)
    site.answers.clear()
    site.add(STRANGER)
    assert site.code() is TIMED_OUT, "it is not committed yet"
    site.fetch(KEYS[4])
    assert len(site.answers) == 2, "the second answer and the fetch's: none is given twice"


def test_a_second_change_waits_for_the_first() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add()
    problem = "Request timed out waiting for leader to handle previous voter change request"
    site.add()
    assert site.answered() == (TIMED_OUT, problem)
    site.remove(KEYS[0])
    assert site.answered() == (TIMED_OUT, problem)
    assert site.update(KEYS[0], HERE) is TIMED_OUT


def test_an_expired_change_is_answered_and_the_next_waits_for_its_commit() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add()
    site.probed()
    site.now_ms += CONFIG.request_timeout_ms
    site.node.tick(site.now_ms)
    site.act()
    assert site.answered() == (TIMED_OUT, None)
    site.remove(KEYS[4])
    assert site.answered() == (
        TIMED_OUT,
        "Request timed out waiting for voters to commit the latest voter change at Optional[1] with"
        " HWM 1",
    )
    assert site.update(KEYS[4], THERE) is TIMED_OUT
    site.fetch(KEYS[4])
    site.remove(KEYS[4])
    assert site.ids() == (0,)


def test_no_change_begins_before_a_record_of_the_epoch_is_committed() -> None:
    site = Site(size=3)
    problem = "Request timed out waiting for leader to establish HWM and fence previous voter"
    site.add()
    assert site.answered() == (TIMED_OUT, f"{problem} changes")
    site.remove(KEYS[1])
    assert site.answered() == (TIMED_OUT, f"{problem} changes")
    assert site.update(KEYS[1], HERE) is TIMED_OUT
    site.fetch(KEYS[1])
    site.remove(KEYS[1])
    assert site.ids() == (0, 2)


def test_static_voters_do_not_change() -> None:
    site = Site(is_by_log=False)
    site.fetch(KEYS[4])
    site.add()
    problem = "voter because the kraft.version feature is 0"
    assert site.answered() == (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support adding {problem}",
    )
    site.remove(KEYS[0])
    assert site.answered() == (
        ErrorCode.UNSUPPORTED_VERSION,
        f"Cluster doesn't support removing {problem}",
    )


def test_an_id_is_given_one_vote_whatever_its_directory() -> None:
    site = Site()
    site.add(ReplicaKey(0, STRANGER.directory_id))
    assert site.answered() == (
        ErrorCode.DUPLICATE_VOTER,
        f"The voter id for {shown(ReplicaKey(0, STRANGER.directory_id))} is already part of the set"
        f" of voters [{shown(KEYS[0])}].",
    )


def test_a_replica_that_does_not_answer_is_not_added() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add()
    site.probed(None, ErrorCode.BROKER_NOT_AVAILABLE)
    problem = "Aborted add voter operation for since API_VERSIONS returned an error"
    assert site.answered() == (TIMED_OUT, f"{problem} BROKER_NOT_AVAILABLE")
    site.add()
    assert site.answered() == (
        TIMED_OUT,
        f"New voter {shown(KEYS[4])} is not ready to receive requests",
    )
    site.now_ms += CONFIG.retry_backoff_ms
    site.add()
    assert site.answered() is None
    site.now_ms += CONFIG.request_timeout_ms
    site.node.tick(site.now_ms)
    site.act()
    assert site.answered() == (TIMED_OUT, None)
    site.probed()
    assert site.ids() == (0,), "its answer comes too late"


def test_a_replica_must_support_the_version_of_the_quorum() -> None:
    site = Site()
    site.fetch(KEYS[4])
    aborted = f"Aborted add voter operation for {shown(KEYS[4])} since the kraft.version range"
    for versions, told in (
        (None, "(min: 0, max: 0)"),
        ((0, 0), "(min: 0, max: 0"),
        ((2, 3), "(min: 2, max: 3"),
    ):
        site.add()
        site.probed(versions)
        problem = f"{aborted} {told} doesn't support the finalized version 1"
        assert site.answered() == (ErrorCode.INVALID_REQUEST, problem)


def test_a_replica_that_lags_is_not_added() -> None:
    site = Site()
    lagging = (
        TIMED_OUT,
        f"Aborted add voter operation for {shown(KEYS[4])} since it is lagging behind",
    )
    site.add()
    site.probed()
    assert site.answered() == lagging, "it has never fetched"
    site.fetch(KEYS[4], 0)
    site.add()
    site.probed()
    assert site.answered() == lagging, "it was never caught up"
    site.fetch(KEYS[4])
    site.now_ms += CAUGHT_UP_MS
    site.add()
    site.probed()
    assert site.answered() == lagging, "it was, an hour ago"
    site.fetch(ReplicaKey(4, STRANGER.directory_id))
    site.add()
    site.probed()
    assert site.answered() == lagging, "another directory was"
    site.fetch(KEYS[4])
    site.add()
    site.probed()
    assert site.ids() == (0, 4)


def test_without_space_for_the_record_nothing_has_changed() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.has_space = False
    site.add()
    site.probed()
    assert site.code() is ErrorCode.KAFKA_STORAGE_ERROR
    site.has_space = True
    site.add()
    site.probed()
    assert site.ids() == (0, 4)


def test_what_is_no_voter_is_refused_before_anything_else_is_looked_at() -> None:
    site = Site(size=3)
    for key in (ReplicaKey(4), ReplicaKey(-1, STRANGER.directory_id)):
        site.add(key)
        problem = "Add voter request didn't include a valid voter"
        assert site.answered() == (ErrorCode.INVALID_REQUEST, problem)
        site.remove(key)
        problem = "Remove voter request didn't include a valid voter"
        assert site.answered() == (ErrorCode.INVALID_REQUEST, problem)
    site.ask(AddVoterRequest(7, KEYS[4], (), problem="nowhere"))
    assert site.answered() == (ErrorCode.INVALID_REQUEST, "nowhere")


def test_only_the_leader_changes_voters() -> None:
    site = Site(size=3)
    site.node.resign(site.now_ms)
    site.add(ReplicaKey(4))
    assert site.answered() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    site.remove(ReplicaKey(4))
    assert site.answered() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    assert site.update(KEYS[1], HERE) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_leader_that_resigns_does_not_know_how_a_change_ends() -> None:
    site = Site()
    site.fetch(KEYS[4])
    site.add()
    site.probed()
    site.node.resign(site.now_ms)
    site.act()
    assert site.answered() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)


# Removing.


def test_a_voter_is_removed_by_id_and_directory() -> None:
    site = Site(size=3)
    site.fetch(KEYS[1])
    other = ReplicaKey(2, STRANGER.directory_id)
    site.remove(other)
    assert site.answered() == (
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {shown(other)} from the set of voters [{shown(*KEYS[:3])}]",
    )
    site.remove(KEYS[2])
    assert site.ids() == (0, 1)
    assert site.answered() is None
    site.fetch(KEYS[1])
    assert site.answered() == (NONE, None)


def test_the_last_voter_stays() -> None:
    site = Site()
    site.remove(KEYS[0])
    assert site.answered() == (
        ErrorCode.VOTER_NOT_FOUND,
        f"Cannot remove voter {shown(KEYS[0])} from the set of voters [{shown(KEYS[0])}]",
    )


def test_a_leader_that_removes_itself_answers_and_then_resigns() -> None:
    site = Site(size=3)
    site.fetch(KEYS[1])
    site.remove(KEYS[0])
    site.fetch(KEYS[1])
    assert site.answered() is None, "one of two voters has it, and the leader does not count"
    site.fetch(KEYS[2])
    assert site.answered() == (NONE, None)
    role = site.node.role
    assert isinstance(role, Resigned)
    assert set(role.preferred_successors) == {KEYS[1], KEYS[2]}
    site.now_ms += 10 * CONFIG.election_timeout_ms
    site.node.tick(site.now_ms)
    site.node.take_ready()
    site.node.check_invariants()
    assert not site.node.is_voter


def test_a_leader_whose_others_are_all_removed_needs_nobody() -> None:
    site = Site(size=2)
    site.fetch(KEYS[1])
    site.remove(KEYS[1])
    assert site.answered() == (NONE, None)
    site.now_ms += 100_000
    site.node.tick(site.now_ms)
    assert site.node.is_leader


# Updating.


def test_a_voter_says_where_it_is_now() -> None:
    site = Site(size=2)
    site.fetch(KEYS[1])
    assert site.update(KEYS[1], HERE) is NONE
    assert site.node.voters.details[1] == HERE
    assert site.update(KEYS[1], HERE) is TIMED_OUT, "the record is not committed"
    site.fetch(KEYS[1])
    assert site.update(STRANGER, HERE) is ErrorCode.VOTER_NOT_FOUND
    wrong = ReplicaKey(1, STRANGER.directory_id)
    assert site.update(wrong, HERE) is ErrorCode.VOTER_NOT_FOUND
    unsupported = HERE._replace(kraft_version_max=0)
    assert site.update(KEYS[1], unsupported) is ErrorCode.INVALID_REQUEST
    assert site.update(ReplicaKey(1), HERE) is ErrorCode.INVALID_REQUEST
    assert site.update(KEYS[1], HERE, epoch=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert site.update(KEYS[1], HERE, epoch=99) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_leader_names_itself_anew_if_it_listens_elsewhere() -> None:
    assert Site().node.voters.details[0] == HERE


def test_static_voters_are_known_when_all_have_said_who_they_are() -> None:
    site = Site(size=3, is_by_log=False)
    site.fetch(KEYS[1])
    leader = site.node.role
    found = leader.volatile_voters  # type: ignore[union-attr]
    assert found is not None
    assert not found.supports(1)
    assert site.update(KEYS[1], THERE) is NONE
    assert site.update(STRANGER, THERE) is ErrorCode.VOTER_NOT_FOUND
    assert site.update(KEYS[2], THERE) is NONE
    found = leader.volatile_voters  # type: ignore[union-attr]
    assert found is not None
    assert found.supports(1)
    assert found.voters == tuple(KEYS[:3])
    assert site.node.voters == VoterSet.of_ids(0, 1, 2), "nothing is in the log"


# A follower and its own entry.


def follower(*, auto_join: bool, voters: VoterSet, details: VoterDetails = HERE) -> RaftNode:
    history = VoterHistory(VoterSet(()))
    history.start_at(0, voters)
    node = make_node(EpochLog(), key=KEYS[2], history=history, details=details, auto_join=auto_join)
    node.take_ready()
    node.step(BeginQuorumEpochRequest(5, KEYS[2], 0, 4), 0)
    assert isinstance(node.role, Follower)
    return node


def asked_of_leader(node: RaftNode, now_ms: int) -> list[object]:
    """What the leader is asked when its answer to the last fetch is here."""
    for target, request in node.take_ready().requests:
        if isinstance(request, FetchRequest):
            answer = FetchResponse(request.correlation_id, target, NONE, 0, 4)
            node.step(answer, now_ms)
    return [
        each.request
        for each in node.take_ready().requests
        if not isinstance(each.request, FetchRequest)
    ]


def test_a_voter_that_moved_says_so_after_a_while() -> None:
    voters = VoterSet(tuple(KEYS[:3]), {2: THERE})
    node = follower(auto_join=False, voters=voters)
    early = follower(auto_join=False, voters=voters)
    assert asked_of_leader(early, CONFIG.own_voter_interval_ms - 1) == []
    (update,) = asked_of_leader(node, CONFIG.own_voter_interval_ms)
    assert isinstance(update, UpdateVoterRequest)
    assert (update.voter, update.details) == (KEYS[2], HERE)
    unmoved = follower(auto_join=False, voters=VoterSet(tuple(KEYS[:3]), {2: HERE}))
    assert asked_of_leader(unmoved, CONFIG.own_voter_interval_ms) == []


def test_a_controller_joins_by_itself_and_removes_its_lost_disk_first() -> None:
    stale = ReplicaKey(2, STRANGER.directory_id)
    node = follower(auto_join=True, voters=VoterSet((KEYS[0], KEYS[1], stale)))
    (remove,) = asked_of_leader(node, CONFIG.own_voter_interval_ms)
    assert isinstance(remove, RemoveVoterRequest)
    assert remove.voter == stale
    joining = follower(auto_join=True, voters=VoterSet(tuple(KEYS[:2])))
    (add,) = asked_of_leader(joining, CONFIG.own_voter_interval_ms)
    assert isinstance(add, AddVoterRequest)
    assert (add.voter, add.ack_when_committed) == (KEYS[2], False)
    idle = follower(auto_join=False, voters=VoterSet(tuple(KEYS[:2])))
    assert asked_of_leader(idle, CONFIG.own_voter_interval_ms) == []
