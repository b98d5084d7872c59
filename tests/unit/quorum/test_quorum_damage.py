"""What a member does about bad bytes from its leader and about a disk that fails."""

import errno
import logging
from collections.abc import Callable

import pytest

from odradek.core.event import Event
from odradek.protocol.generated.fetch import EpochEndOffset, FetchResponse
from odradek.protocol.message import Message
from odradek.raft import QuorumError
from tests.unit.quorum.quorum_members import Member, QuorumCluster


def spoil_fetches(
    cluster: QuorumCluster, spoil: Callable[[bytearray], None], count: int
) -> list[int]:
    """Change the records of the next ``count`` fetches that have any; return their sizes."""
    post, spoilt = cluster.post, list[int]()

    def spoiling(
        source: Member,
        target: Member,
        message: Message,
        answered: Callable[[Message], None],
        fail: Callable[[], None],
    ) -> None:
        def change(answer: Message) -> None:
            if isinstance(answer, FetchResponse) and len(spoilt) < count and answer.responses:
                part = answer.responses[0].partitions[0]
                if part.records:
                    data = bytearray(part.records)
                    spoilt.append(len(data))
                    spoil(data)
                    part.records = bytes(data)
            answered(answer)

        post(source, target, message, change, fail)

    cluster.post = spoiling  # type: ignore[method-assign]
    cluster.world.run_for(1)  # the fetches that wait already
    return spoilt


def flip(data: bytearray) -> None:
    data[-1] ^= 1


def move_on(data: bytearray) -> None:
    data[7] += 5  # the base offset, which no checksum covers


def cut(data: bytearray) -> None:
    del data[20:]


@pytest.mark.parametrize("spoil", [flip, move_on, cut])
def test_damaged_records_are_not_appended_and_fetched_again(
    spoil: Callable[[bytearray], None], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = QuorumCluster(1)
    leader = cluster.begin()
    spoilt = spoil_fetches(cluster, spoil, 6)
    with caplog.at_level(logging.WARNING, "odradek.quorum"):
        cluster.wait_loaded(leader.create_topic("orders"))
    assert all(each.topics == {"orders"} for each in cluster.up())
    assert all(each.failure is None for each in cluster.up())
    assert len(spoilt) == 6
    refused = [each.msg for each in caplog.records if isinstance(each.msg, Event)]
    assert bool(refused) == (spoil is not cut)  # what is cut short is no damage
    for member in cluster.up():
        member.quorum.log.check_invariants()


def test_a_follower_backs_off_from_a_leader_that_sends_garbage() -> None:
    cluster = QuorumCluster(2)
    leader = cluster.begin()
    spoilt = spoil_fetches(cluster, flip, 1_000_000)
    leader.create_topic("orders")
    before = cluster.sent["Fetch"]
    cluster.world.run_for(1)
    # Each of two followers asks once in 20 ms, and others for the leader meanwhile.
    assert spoilt
    assert cluster.sent["Fetch"] - before < 400


def test_a_follower_without_space_goes_on_when_there_is_some() -> None:
    cluster = QuorumCluster(3)
    leader = cluster.begin()
    follower = next(each for each in cluster.up() if each is not leader)
    follower.disk.fail("write", errno.ENOSPC, path="*.log", times=3)
    cluster.wait_loaded(leader.create_topic("orders"))
    assert follower.topics == {"orders"}
    assert follower.failure is None


def test_a_new_leader_without_space_leaves_it_to_another() -> None:
    cluster = QuorumCluster(6)
    leader = cluster.begin()
    # The one with the smaller id is the first successor of a leader that resigns.
    full = next(each for each in cluster.up() if each is not leader)
    full.disk.fail("write", errno.ENOSPC, path="*.log", times=None)
    leader.quorum.resign()
    others = [each for each in cluster.up() if each is not full]
    cluster.run_until(lambda: any(each.quorum.is_leader for each in others))
    assert full.quorum.epoch > 2  # the second epoch was its own
    assert full.failure is None
    assert full.lost == len(full.leading) == 1
    full.disk.faults.clear()
    cluster.wait_loaded(cluster.wait_for_leader().create_topic("orders"))


def test_a_voter_that_is_alone_leads_as_soon_as_it_has_space() -> None:
    cluster = QuorumCluster(7, voters=1)
    leader = cluster.begin()
    leader.disk.fail("write", errno.ENOSPC, path="*.log", times=2)
    epoch = leader.quorum.epoch
    leader.quorum.resign()
    cluster.run_until(lambda: leader.quorum.epoch > epoch)
    assert cluster.wait_for_leader() is leader
    # Refused twice: each election takes an epoch, and so does each resignation.
    assert leader.quorum.epoch == epoch + 3 * 2
    assert leader.failure is None


@pytest.mark.parametrize("path", ["*.log", "quorum-state*"])
def test_a_member_whose_disk_fails_gives_up_and_the_others_go_on(path: str) -> None:
    cluster = QuorumCluster(4)
    leader = cluster.begin()
    leader.disk.fail("sync", errno.EIO, path=path, times=None)
    leader.create_topic("orders")
    leader.quorum.resign()
    cluster.run_until(lambda: leader.failure is not None)
    leader.kill()
    again = cluster.wait_for_leader()
    cluster.wait_loaded(again.create_topic("more"))
    assert isinstance(leader.failure, OSError)


def test_a_leader_that_lacks_committed_records_stops_the_follower_with_words() -> None:
    cluster = QuorumCluster(5)
    leader = cluster.begin()
    follower = next(each for each in cluster.up() if each is not leader)
    post = cluster.post

    def forget(
        source: Member,
        target: Member,
        message: Message,
        answered: Callable[[Message], None],
        fail: Callable[[], None],
    ) -> None:
        def change(answer: Message) -> None:
            if isinstance(answer, FetchResponse) and source is follower:
                part = answer.responses[0].partitions[0]
                part.records = b""
                part.diverging_epoch = EpochEndOffset(epoch=0, end_offset=0)
            answered(answer)

        post(source, target, message, change, fail)

    cluster.post = forget  # type: ignore[method-assign]
    end_offset = follower.quorum.log_end_offset
    cluster.run_until(lambda: follower.failure is not None)
    assert isinstance(follower.failure, QuorumError)
    assert "committed" in str(follower.failure)
    assert follower.quorum.log_end_offset == end_offset  # it cut nothing
    others = [each for each in cluster.up() if each is not follower]
    cluster.wait_loaded(leader.create_topic("goes on"), others)


def test_two_voters_that_lost_their_disks_do_not_undo_what_was_committed() -> None:
    """The one that led stops with words; the other follows the one that has its disk."""
    cluster = QuorumCluster(6)
    leader = cluster.begin()
    cluster.wait_loaded(leader.create_topic("orders"))
    witness, other = [each for each in cluster.up() if each is not leader]
    for member in (leader, other):
        member.kill()
    fresh_leader, fresh = cluster.replace(leader), cluster.replace(other)
    fresh_leader.start()
    fresh.start()
    cluster.run_until(lambda: fresh_leader.failure is not None)
    assert "quorum-state file lost" in str(fresh_leader.failure)
    fresh_leader.kill()
    assert cluster.wait_for_leader() is witness
    assert fresh.topics == witness.topics == {"orders"}
