"""A single node: leads at once, commits what is flushed, needs no message and no timer."""

from odradek.raft import AppendLeaderChange, BecameLeader, HardState, ReplicaKey
from odradek.raft.ready import LeaderChanged, LostLeadership, Ready
from tests.unit.raft.epoch_log import KEYS, EpochLog, make_node


def test_empty_log_gets_a_leader_in_epoch_1() -> None:
    node = make_node(EpochLog(), size=1)
    assert node.is_leader
    assert node.take_ready() == Ready(
        hard_state=HardState(1, 0),
        log_instruction=AppendLeaderChange(1, 0, (0,), (0,)),
        events=(LeaderChanged(1, None), BecameLeader(1, 0)),
    )
    assert node.next_deadline_ms() is None


def test_each_restart_makes_a_new_epoch() -> None:
    log = EpochLog([3, 3, 5])
    node = make_node(log, HardState(5, 0), size=1)
    ready = node.take_ready()
    assert ready.hard_state == HardState(6, 0)
    assert BecameLeader(6, 3) in ready.events
    node.check_invariants()


def test_lost_quorum_state_is_made_up_for_by_the_log() -> None:
    node = make_node(EpochLog([3, 3, 5]), HardState(), size=1)
    assert node.take_ready().hard_state == HardState(6, 0)


def test_vote_without_victory_is_continued_in_its_epoch() -> None:
    node = make_node(EpochLog([3]), HardState(4, None, KEYS[0]), size=1)
    assert node.take_ready().hard_state == HardState(4, 0)


def test_nothing_is_committed_before_it_is_flushed() -> None:
    log = EpochLog([1, 1])
    node = make_node(log, HardState(1, 0), size=1)
    node.take_ready()
    log.epochs.append(2)
    node.on_appended(0)
    assert node.take_ready() == Ready()
    node.on_flushed(3, 5)
    assert node.take_ready() == Ready(high_watermark=3)
    log.epochs += [2, 2]
    node.on_appended(6)
    node.on_flushed(4, 7)
    assert node.take_ready() == Ready(high_watermark=4)
    assert node.high_watermark == 4
    node.check_invariants()


def test_resigned_single_node_leads_again_after_a_while() -> None:
    log = EpochLog()
    node = make_node(log, size=1)
    node.take_ready()
    log.epochs.append(1)
    node.on_flushed(1, 0)
    node.take_ready()
    node.resign(10)
    assert node.take_ready().events == (LostLeadership(1),)
    deadline = node.next_deadline_ms()
    assert deadline is not None
    node.tick(deadline)
    assert node.is_leader
    assert node.epoch == 3


def test_other_directory_is_another_voter() -> None:
    stranger = ReplicaKey(0, KEYS[1].directory_id)
    node = make_node(EpochLog(), key=stranger, size=1)
    assert not node.is_leader
    assert node.next_deadline_ms() is None
