"""What the metadata says to a leader: assignments, epochs, re-elections.

Of Kafka's PartitionTest: testDoNotResetReplicaStateIfLeaderEpochIsNotBumped, testDoNotUpdateEpoch-
StartOffsetIfLeaderEpochIsNotBumped, testIgnoreLeaderPartitionStateChangeWithOlderPartitionEpoch,
testUpdateAssignmentAndIsr, testAtMinIsr, testIsUnderMinIsr, testUpdateFollowerFetchState,
testMonotonicOffsetsAfterLeaderChange, testHighWatermarkIncreasesWithFencedOrShutdownFollower,
testHighWatermarkAdvanceShouldNotAdvanceWhenUnderMinISR.
"""

from odradek.core.errors import ErrorCode
from odradek.replication.follower_state import NEVER_MS
from odradek.replication.leadership import (
    Broker,
    Enough,
    LeaderSettings,
    Leadership,
    Proposal,
    Registration,
)
from tests.simulation.replication.model_log import ModelLog
from tests.unit.replication.leading import LAG_MS, Leading

NOW = 50_000


def states(leading: Leading) -> dict[int, tuple[int, int, int, int, int, int | None]]:
    return {
        node_id: (
            each.log_end_offset,
            each.log_start_offset,
            each.leader_end_at_last_fetch,
            each.last_fetch_ms,
            each.last_caught_up_ms,
            each.broker_epoch,
        )
        for node_id, each in leading.leadership.followers.items()
    }


def test_a_new_leader_knows_nothing_of_its_followers_but_who_is_in_sync() -> None:
    assert states(Leading(isr=(1, 2))) == {
        2: (-1, -1, -1, NEVER_MS, NOW, None),
        3: (-1, -1, -1, NEVER_MS, NEVER_MS, None),
    }


def test_a_fetch_tells_all_of_a_follower() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    leading.append(5)
    leading.now_ms += 10
    leading.leadership.on_fetch(2, 12, 3, 102, leading.now_ms)
    assert states(leading)[2] == (12, 3, 15, NOW + 10, NOW, 102)
    leading.append(5)
    leading.now_ms += 10
    leading.fetch(2, 15)
    assert states(leading)[2] == (15, 0, 20, NOW + 20, NOW + 10, 102)
    leading.now_ms += 10
    leading.fetch(2, 20)
    assert states(leading)[2] == (20, 0, 20, NOW + 30, NOW + 30, 102)


def test_a_follower_may_fetch_below_what_it_had() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    leading.fetch(2, 4)
    assert states(leading)[2][0] == 4


def test_the_same_leader_in_the_next_epoch_keeps_the_ends_of_its_followers_logs() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    leading.fetch(3, 4)
    leading.append(5)
    leading.now_ms += 500
    assert leading.take(6, 8, (1, 2))
    assert states(leading) == {
        2: (10, 0, 15, NOW + 500, NOW + 500, 102),
        3: (4, 0, 15, NEVER_MS, NEVER_MS, 103),
    }
    assert leading.leadership.epoch_start_offset == 15


def test_the_first_leader_of_a_partition_keeps_them_as_well() -> None:
    log = ModelLog()
    leadership = Leadership(1, log, LeaderSettings(), lambda _: None)
    leadership.take(Registration(0, 0, (1, 2), (1, 2)), NOW)
    leadership.on_fetch(2, 0, 0, 102, NOW)
    leadership.take(Registration(1, 1, (1, 2), (1, 2)), NOW)
    assert leadership.followers[2].log_end_offset == 0


def test_a_leader_that_missed_an_epoch_knows_nothing_of_its_followers() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    leading.append(5)
    assert leading.take(7, 9, (1, 2))
    assert states(leading)[2] == (-1, -1, -1, NEVER_MS, NOW, None)
    assert leading.leadership.epoch_start_offset == 15


def test_the_same_epoch_changes_only_assignment_and_isr() -> None:
    leading = Leading(isr=(1, 2))
    leading.fetch(2, 10)
    before = states(leading)
    leading.append(5)
    leading.now_ms += 500
    assert not leading.take(5, 8, (1,), replicas=(1, 3, 4))
    assert states(leading) == {3: before[3], 4: (-1, -1, -1, NEVER_MS, NEVER_MS, None)}
    assert leading.isr == ("committed", [1])
    assert leading.leadership.epoch_start_offset == 10
    assert leading.leadership.replicas == (1, 3, 4)


def test_an_older_partition_epoch_is_ignored() -> None:
    leading = Leading(isr=(1, 2))
    assert not leading.take(6, 6, (1,), replicas=(1,))
    assert leading.leadership.leader_epoch == 5
    assert leading.isr == ("committed", [1, 2])
    assert sorted(leading.leadership.followers) == [2, 3]


def test_a_proposal_stays_pending_when_metadata_brings_a_known_partition_epoch() -> None:
    leading = Leading(isr=(1, 2), high_watermark=10)
    proposal = leading.fetch(3, 10)
    assert not leading.take(5, 7, (1, 2))
    assert leading.isr == ("expanding", [1, 2, 3])
    assert proposal is not None
    assert leading.leadership.is_current(proposal)


def test_a_proposal_of_a_replica_that_has_left_ends_at_a_known_partition_epoch() -> None:
    """The controller's answer brought that epoch, and does not say who the replicas are."""
    leading = Leading(isr=(1, 2), high_watermark=10)
    leading.fetch(3, 10)
    assert not leading.take(5, 7, (1, 2), replicas=(1, 2))
    assert leading.isr == ("committed", [1, 2])


def test_a_leader_after_an_unclean_election_says_that_it_has_recovered() -> None:
    leading = Leading(isr=(1,), high_watermark=10)
    leading.take(6, 8, (1,), recovery_state=1)
    assert leading.leadership.recovery_state == 1
    proposal = leading.fetch(2, 10)
    assert proposal == Proposal(6, 8, ((1, 101), (2, 102)), recovery_state=0)
    leading.confirm(proposal, 9, (1, 2), 6)
    assert leading.leadership.recovery_state == 0


# The high watermark.


def test_a_leader_alone_commits_all() -> None:
    assert Leading(isr=(1,), replicas=(1,)).high_watermark == 10


def test_members_that_have_not_fetched_hold_the_high_watermark_where_it_was() -> None:
    leading = Leading(high_watermark=4)
    leading.fetch(2, 10)
    assert leading.high_watermark == 4
    leading.fetch(3, 7)
    assert leading.high_watermark == 7


def test_the_high_watermark_of_a_leader_never_goes_back() -> None:
    leading = Leading(isr=(1, 2), high_watermark=8)
    leading.fetch(2, 3)
    assert leading.high_watermark == 8


def test_a_follower_that_is_about_to_join_holds_the_high_watermark() -> None:
    leading = Leading(isr=(1, 2), high_watermark=10)
    leading.fetch(2, 10)
    proposal = leading.fetch(3, 10)
    assert proposal is not None
    leading.refuse(proposal, ErrorCode.INELIGIBLE_REPLICA)
    leading.append(5)
    leading.fetch(2, 15)
    assert (leading.isr, leading.high_watermark) == (("committed", [1, 2]), 10)


def test_a_follower_that_may_not_join_or_lags_does_not_hold_the_high_watermark() -> None:
    for broker in (Broker(103, is_active=False), Broker(103, is_active=False, is_fenced=True)):
        leading = Leading(isr=(1, 2), high_watermark=10)
        leading.brokers[3] = broker
        leading.fetch(3, 10)
        leading.append(5)
        leading.fetch(2, 15)
        assert leading.high_watermark == 15
    leading = Leading(isr=(1, 2), high_watermark=10)
    leading.fetch(3, 5)
    leading.append(5)
    leading.now_ms += LAG_MS + 1
    leading.fetch(2, 15)
    assert leading.high_watermark == 15


def test_below_min_isr_the_high_watermark_stands_still() -> None:
    leading = Leading(isr=(1,), min_isr=2, high_watermark=3)
    assert leading.leadership.is_under_min_isr
    leading.append(5)
    assert leading.high_watermark == 3
    leading.fetch(2, 15)
    assert leading.commit() == 3, "who is only proposed does not count for min.insync.replicas"
    leading.take(5, 8, (1, 2))
    assert leading.high_watermark == 15


def test_min_isr_is_at_most_the_number_of_replicas() -> None:
    leading = Leading(isr=(1,), min_isr=3, replicas=(1, 2))
    assert leading.leadership.min_isr == 2
    leading.take(5, 8, (1,), replicas=(1,))
    assert leading.leadership.min_isr == 1
    leading.take(5, 9, (1,), replicas=(1, 2, 3))
    leading.leadership.update_settings(LeaderSettings(min_insync_replicas=2))
    assert leading.leadership.min_isr == 2


def test_what_is_committed_may_be_acknowledged_if_enough_are_in_sync() -> None:
    leading = Leading(isr=(1, 2), min_isr=2)
    enough = leading.leadership.enough
    leading.fetch(2, 9)
    assert [enough(9), enough(10)] == [Enough.YES, Enough.NOT_YET]
    leading.take(5, 8, (1,))
    assert [enough(9), enough(10)] == [Enough.TOO_FEW_IN_SYNC, Enough.NOT_YET]
    leading.fetch(2, 10)
    assert leading.isr == ("expanding", [1, 2])
    assert enough(9) is Enough.YES, "who may be in sync by now counts"
