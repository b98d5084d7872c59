"""Who is in sync, as a leader proposes it and the controller answers.

Of Kafka's PartitionTest: testFollowerDoesNotJoinISRUntilCaughtUpToOffsetWithinCurrentLeaderEpoch,
testIsrExpansion, testIsrNotExpandedIfUpdateFails, testIsrNotExpandedIfReplicaIsFencedOrShutdown,
testIsrCanExpandedIfBrokerEpochsMatchWithKraftMetadataCache, testIsrNotExpandedIfReplicaIsIn-
ControlledShutdown, testFenceFollowerFetchWithStaleBrokerEpoch, testMaybeShrinkIsr, testRetryShrink-
Isr, testIsrNotShrunkIfUpdateFails, testShouldNotShrinkIsrIfPreviousFetchIsCaughtUp, testShouldNot-
ShrinkIsrIfFollowerCaughtUpToLogEnd, testAlterIsrNewLeaderElected, -UnknownTopic, -InvalidVersion,
-UnexpectedError, testInvalidAlterPartitionRequestsAreNotRetried, testSingleInFlightAlterIsr,
testPartitionShouldRetryAlterPartitionRequest, testAlterIsrLeaderAndIsrRace.
"""

import pytest

from odradek.core.errors import ErrorCode
from odradek.replication.follower_state import NO_BROKER_EPOCH
from odradek.replication.leadership import Broker, Proposal
from tests.unit.replication.leading import EPOCHS, LAG_MS, Leading

OUTDATED = [
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
]
NOT_DONE = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED]
UNCLEAR = [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT]


def expanding() -> tuple[Leading, Proposal]:
    leading = Leading(isr=(1, 2), high_watermark=10)
    leading.fetch(2, 10)
    proposal = leading.fetch(3, 10)
    assert proposal is not None
    return leading, proposal


def shrinking() -> tuple[Leading, Proposal]:
    leading = Leading()
    leading.fetch(2, 10)
    leading.fetch(3, 9)
    leading.now_ms += LAG_MS + 1
    proposal = leading.shrink()
    assert proposal is not None
    return leading, proposal


# Joining.


def test_a_follower_that_has_all_is_proposed_with_the_epochs_of_its_members() -> None:
    leading, proposal = expanding()
    assert proposal == Proposal(5, 7, ((1, 101), (2, 102), (3, 103)))
    assert leading.isr == ("expanding", [1, 2, 3])
    assert sorted(leading.leadership.isr.committed) == [1, 2]


def test_a_member_that_has_not_fetched_yet_is_proposed_without_an_epoch() -> None:
    proposal = Leading(isr=(1, 2), high_watermark=10).fetch(3, 10)
    assert proposal == Proposal(5, 7, ((1, 101), (2, NO_BROKER_EPOCH), (3, 103)))


def test_a_leader_that_metadata_does_not_know_yet_proposes_itself_without_an_epoch() -> None:
    leading = Leading(isr=(1,), high_watermark=10)
    del leading.brokers[1]
    assert leading.fetch(3, 10) == Proposal(5, 7, ((1, NO_BROKER_EPOCH), (3, 103)))


def test_a_follower_joins_at_the_high_watermark() -> None:
    leading = Leading(isr=(1, 2), high_watermark=0)
    leading.append(10)
    leading.fetch(2, 15)
    assert leading.high_watermark == 15
    assert leading.fetch(3, 14) is None
    assert leading.fetch(3, 15) is not None


def test_a_follower_joins_at_the_start_of_the_epoch_although_the_high_watermark_is_lower() -> None:
    leading = Leading(isr=(1, 2), high_watermark=4)
    assert [leading.fetch(3, offset) is not None for offset in (4, 9, 10)] == [False, False, True]


def test_only_one_proposal_is_under_way() -> None:
    leading = Leading(isr=(1,), high_watermark=10)
    assert leading.fetch(2, 10) is not None
    assert leading.fetch(3, 10) is None
    leading.now_ms += 10 * LAG_MS
    leading.append(5)
    assert leading.shrink() is None
    assert leading.isr == ("expanding", [1, 2])


@pytest.mark.parametrize(
    "broker",
    [
        None,
        Broker(103, is_active=False, is_fenced=True),
        Broker(103, is_active=False),  # in controlled shutdown
        Broker(104, is_active=True),
        Broker(102, is_active=True),
    ],
)
def test_a_broker_that_may_be_in_no_isr_is_not_proposed(broker: Broker | None) -> None:
    leading = Leading(isr=(1, 2), high_watermark=10)
    if broker is None:
        del leading.brokers[3]
    else:
        leading.brokers[3] = broker
    assert leading.fetch(3, 10) is None
    assert leading.isr == ("committed", [1, 2])


def test_a_follower_that_names_no_epoch_is_not_compared() -> None:
    proposal = Leading(isr=(1, 2), high_watermark=10).fetch(3, 10, NO_BROKER_EPOCH)
    assert proposal is not None
    assert proposal.isr[-1] == (3, NO_BROKER_EPOCH)


@pytest.mark.parametrize(
    ("epoch", "is_overtaken"), [(102, True), (103, False), (104, False), (NO_BROKER_EPOCH, False)]
)
def test_a_fetch_of_an_earlier_run_is_overtaken(epoch: int, is_overtaken: bool) -> None:
    leading = Leading()
    assert leading.leadership.is_overtaken(3, epoch) == is_overtaken
    leading.fetch(3, 5, 104)  # the leader's metadata is behind
    assert leading.leadership.is_overtaken(3, epoch) == (epoch in (102, 103))


def test_a_broker_that_metadata_does_not_know_is_not_overtaken() -> None:
    leading = Leading()
    del leading.brokers[3]
    assert not leading.leadership.is_overtaken(3, 5)


def test_below_min_isr_a_follower_joins_when_it_is_caught_up() -> None:
    """Not at the high watermark alone, which does not move meanwhile (KAFKA-19996)."""
    leading = Leading(isr=(1,), min_isr=2, high_watermark=0)
    leading.append(10)
    assert leading.fetch(3, 15) is None
    leading.now_ms += 1
    assert leading.fetch(3, 20) is not None


# Leaving.


def test_members_that_lag_are_proposed_to_leave() -> None:
    leading, proposal = shrinking()
    assert proposal == Proposal(5, 7, ((1, 101), (2, 102)))
    assert leading.isr == ("shrinking", [1, 2, 3])


@pytest.mark.seed_row("3.7")
def test_a_member_may_lag_for_the_lag_time_and_no_longer() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 9)
    leading.now_ms += LAG_MS
    assert leading.shrink() is None
    leading.now_ms += 1
    assert leading.shrink() is not None


def test_a_member_at_the_end_of_the_log_stays_however_long_ago_it_fetched() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    leading.now_ms += 100 * LAG_MS
    assert leading.shrink() is None


def test_a_member_that_never_fetched_leaves_when_the_lag_time_is_over() -> None:
    leading = Leading(isr=(1, 2))
    leading.now_ms += LAG_MS
    assert leading.shrink() is None
    leading.now_ms += 1
    assert leading.shrink() == Proposal(5, 7, ((1, 101),))


@pytest.mark.seed_row("3.7")
def test_a_member_that_had_all_there_was_at_its_fetch_before_stays() -> None:
    """Under constant writes no fetch asks for the very end."""
    leading = Leading(isr=(1, 2))
    for _ in range(5):
        leading.fetch(2, max(leading.log.log_end_offset - 3, 10))
        leading.append(3)
        leading.now_ms += LAG_MS // 2
    assert leading.shrink() is None
    leading.now_ms += 1
    assert leading.shrink() is not None


def test_a_member_that_is_no_replica_leaves() -> None:
    leading = Leading(isr=(1, 2, 4), replicas=(1, 2, 3))
    assert leading.shrink() == Proposal(5, 7, ((1, 101), (2, NO_BROKER_EPOCH)))


def test_a_leader_alone_proposes_nothing() -> None:
    leading = Leading(isr=(1,))
    leading.now_ms += 100 * LAG_MS
    assert leading.shrink() is None


# Answers.


def test_a_confirmed_member_counts_and_the_partition_epoch_is_taken() -> None:
    leading, proposal = expanding()
    leading.confirm(proposal, 8, (1, 2, 3))
    assert leading.isr == ("committed", [1, 2, 3])
    assert leading.leadership.partition_epoch == 8
    assert not leading.leadership.is_current(proposal)


def test_a_confirmation_without_a_change_ends_a_proposal() -> None:
    leading, proposal = expanding()
    leading.confirm(proposal, 7, (1, 2))
    assert leading.isr == ("committed", [1, 2])


@pytest.mark.parametrize(("partition_epoch", "leader_epoch"), [(6, 5), (8, 4), (8, 6)])
def test_a_confirmation_of_another_epoch_is_void(partition_epoch: int, leader_epoch: int) -> None:
    leading, proposal = expanding()
    leading.confirm(proposal, partition_epoch, (1, 2, 3), leader_epoch)
    assert leading.isr == ("expanding", [1, 2, 3])
    assert leading.leadership.partition_epoch == 7


def test_a_confirmed_leaver_no_longer_holds_the_high_watermark() -> None:
    leading, proposal = shrinking()
    assert leading.high_watermark == 9
    leading.confirm(proposal, 8, (1, 2))
    assert (leading.isr, leading.high_watermark) == (("committed", [1, 2]), 10)


@pytest.mark.parametrize("code", OUTDATED)
def test_metadata_decides_on_a_proposal_that_is_out_of_date(code: ErrorCode) -> None:
    leading, proposal = expanding()
    assert not leading.refuse(proposal, code)
    assert leading.isr == ("expanding", [1, 2, 3])
    leading.take(5, 8, (1, 2))
    assert leading.isr == ("committed", [1, 2])


@pytest.mark.parametrize("code", NOT_DONE)
def test_a_proposal_that_was_not_carried_out_is_taken_back(code: ErrorCode) -> None:
    for leading, proposal in (expanding(), shrinking()):
        before = leading.leadership.isr.committed
        assert not leading.refuse(proposal, code)
        assert leading.isr == ("committed", sorted(before))


@pytest.mark.parametrize("code", UNCLEAR)
def test_a_proposal_is_sent_again_while_it_is_unclear_what_became_of_it(code: ErrorCode) -> None:
    leading, proposal = shrinking()
    assert leading.refuse(proposal, code)
    assert leading.isr == ("shrinking", [1, 2, 3])


@pytest.mark.parametrize("code", [*OUTDATED, *NOT_DONE, *UNCLEAR])
def test_an_answer_that_metadata_has_overtaken_is_void(code: ErrorCode) -> None:
    leading, proposal = expanding()
    leading.take(5, 8, (1, 2, 3))
    assert not leading.refuse(proposal, code)
    leading.confirm(proposal, 9, (1, 2))
    assert leading.isr == ("committed", [1, 2, 3])
    assert leading.leadership.partition_epoch == 8


def test_an_answer_to_another_proposal_of_the_same_epoch_is_void() -> None:
    leading, proposal = expanding()
    assert not leading.refuse(proposal, ErrorCode.INELIGIBLE_REPLICA)
    leading.append(5)
    leading.fetch(2, 15)
    leading.now_ms += LAG_MS + 1
    leading.append(1)
    other = leading.shrink()
    assert other == Proposal(5, 7, ((1, 101),))
    assert not leading.leadership.is_current(proposal)
    leading.confirm(proposal, 8, (1, 2, 3))
    assert leading.isr == ("shrinking", [1, 2])


def test_an_answer_of_an_earlier_leader_epoch_is_void() -> None:
    leading, proposal = expanding()
    leading.take(6, 8, (1, 2))
    leading.confirm(proposal, 9, (1, 2, 3), 6)
    assert leading.isr == ("committed", [1, 2])


def test_who_is_out_of_sync_is_counted_by_what_is_committed() -> None:
    leading, _ = expanding()
    assert list(leading.leadership.out_of_sync()) == [3]


def test_living_replicas_hold_the_low_watermark() -> None:
    leading = Leading(high_watermark=10)
    leadership = leading.leadership
    leading.log.advance_log_start(8)
    assert leadership.low_watermark() == -1, "nobody has said anything yet"
    leadership.on_fetch(2, 10, 6, EPOCHS[2], leading.now_ms)
    leadership.on_fetch(3, 10, 4, EPOCHS[3], leading.now_ms)
    assert leadership.low_watermark() == 4
    leading.brokers[3] = Broker(103, is_active=False)  # in controlled shutdown: it is alive
    assert leadership.low_watermark() == 4
    leading.brokers[3] = Broker(103, is_active=False, is_fenced=True)
    assert leadership.low_watermark() == 6
    del leading.brokers[2]
    assert leadership.low_watermark() == 8


def test_a_follower_that_the_controller_has_taken_out_is_not_waited_for() -> None:
    """Its disk has failed and its broker lives: only the ISR says that it fetches no more."""
    leading = Leading()
    for node_id in (2, 3):
        leading.fetch(node_id, 10)
    assert leading.high_watermark == 10
    leading.take(5, 8, (1, 2))
    leading.append(1)
    leading.fetch(2, 11)
    assert leading.high_watermark == 11
    leading.fetch(3, 10)  # it lives after all, and is caught up as of the fetch before
    assert leading.isr == ("committed", [1, 2])
    assert leading.fetch(3, 11) is not None
