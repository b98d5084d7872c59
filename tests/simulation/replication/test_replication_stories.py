"""Failures in a certain order, of the kind that a storm seldom meets.

The first stories are those of KIP-101 and KIP-279: logs that part, and one round of fetching after
the other until they are equal. The others need a broker that hears of metadata late. Each of those
is also told with the bug that it is about, and then the oracle speaks up.
"""

from collections.abc import Callable
from typing import Any

import pytest

from odradek.core.errors import ErrorCode
from odradek.replication.following import Append, Following, Progress, Truncate, Wanted
from odradek.replication.leadership import Registration
from tests.simulation.replication import planted_bugs
from tests.simulation.replication.model_controller import Rules
from tests.simulation.replication.model_log import ModelLog, Record
from tests.simulation.replication.replica import Fetch, Replica, find_divergence
from tests.simulation.replication.world import CALM, World


def log_of(*epochs: tuple[int, int], end: int, high_watermark: int = 0) -> ModelLog:
    """Make a log whose epochs begin at those offsets."""
    log = ModelLog()
    starts = [start for _, start in epochs]
    for (epoch, start), next_start in zip(epochs, [*starts[1:], end], strict=True):
        log.begin_epoch(epoch)
        values = [Record(epoch, offset) for offset in range(start, next_start)]
        log.append(start, values, leader_epoch=epoch)
    log.high_watermark = high_watermark
    return log


def fetch_until_equal(leader: ModelLog, follower: ModelLog, leader_epoch: int) -> list[int]:
    """Let a follower fetch; return the offsets at which it cut its log."""
    following, cuts = Following(follower, 1, leader_epoch), []
    for _ in range(10):
        wanted = following.plan(0)
        assert isinstance(wanted, Wanted)
        diverged = find_divergence(leader, wanted)
        if diverged is not None:
            assert not isinstance(diverged, int)
            action = following.on_diverged(wanted, diverged)
            assert isinstance(action, Truncate)
            cuts.append(action.offset)
            follower.truncate_to(action.offset)
        else:
            assert following.on_records(wanted) == Append(leader_epoch)
            records = leader.read(wanted.offset, 100)
            follower.append(wanted.offset, records, leader_epoch=leader_epoch)
            progress = Progress(leader.high_watermark, leader.log_start_offset)
            follower.high_watermark = following.high_watermark_after(progress)
    assert follower.records == leader.records
    assert follower.leader_epochs.epochs == leader.leader_epochs.epochs
    assert follower.leader_epochs.starts == leader.leader_epochs.starts
    return cuts


def test_a_follower_that_was_restarted_keeps_what_is_above_its_high_watermark() -> None:
    """KIP-101, scenario 1: if it cut its log there, the leader's death would lose a record."""
    leader, restarted = log_of((0, 0), end=2, high_watermark=2), log_of((0, 0), end=2)
    assert Following(restarted, 0, 0).plan(0) == Wanted(0, 2, 0, 0)
    restarted.begin_epoch(1)
    restarted.append(2, [Record(1, 2)], leader_epoch=1)
    assert fetch_until_equal(restarted, leader, 1) == []


def test_logs_that_part_after_a_loss_of_power_become_equal() -> None:
    """KIP-101, scenario 2: the new leader has lost a record, and wrote another in its place."""
    leader = log_of((0, 0), (1, 1), end=2)
    returned = log_of((0, 0), end=2, high_watermark=2)
    assert fetch_until_equal(leader, returned, 1) == [1]


@pytest.mark.seed_row("3.5")
def test_logs_that_parted_in_one_change_of_leaders_become_equal() -> None:
    """KIP-279: the leader has no records of the follower's last epoch."""
    leader = log_of((0, 0), (2, 10), end=20)
    assert fetch_until_equal(leader, log_of((0, 0), (1, 10), end=15), 3) == [10]


@pytest.mark.seed_row("3.5")
def test_logs_that_parted_in_many_changes_of_leaders_become_equal() -> None:
    """KIP-279: neither has the epochs of the other, and each round of fetching skips some."""
    leader = log_of((0, 0), (2, 10), (4, 15), end=18)
    follower = log_of((0, 0), (1, 5), (3, 12), end=20)
    assert fetch_until_equal(leader, follower, 5) == [12, 5]


def test_a_new_leader_without_a_record_of_its_own_can_say_where_logs_part() -> None:
    """Its epoch begins at its log's end before anything is appended (KAFKA-6361)."""
    leader = log_of((0, 0), end=10)
    leader.begin_epoch(2)
    follower = log_of((0, 0), (1, 10), end=13)
    following = Following(follower, 1, 2)
    diverged = find_divergence(leader, following.wanted)
    assert diverged == (0, 10)
    leader.append(10, [Record(2, 10)], leader_epoch=2)
    assert fetch_until_equal(leader, follower, 2) == [10]


# Stories of brokers and a controller.


def world_of(size: int = 3) -> World:
    world = World(1, size=size, rules=Rules(min_isr=1), faults=CALM)
    world.run(500)
    return world


def stop_learning(replica: Replica) -> Callable[[], None]:
    """Let no more metadata reach a broker; return what lets it on."""
    replica.learn = lambda: None  # type: ignore[method-assign]

    def learn_on() -> None:
        del replica.learn
        replica.learn()

    return learn_on


def produce(replica: Replica, count: int) -> None:
    for value in range(count):
        replica.produce(1_000 * replica.leader_epoch + value, acks_all=False)


def a_leader_misses_that_another_led() -> None:
    """Broker 0 leads, then 1, then 0 again, and 0 hears of both changes at once.

    Meanwhile 2 has cut its log for 1. Broker 0 must not commit what 2 had before.
    """
    world = world_of()
    leader, other, follower = world.replicas.values()
    world.cut = {(0, 1), (1, 0)}
    produce(leader, 5)
    world.run(300)
    assert (other.log.log_end_offset, follower.log.log_end_offset) == (0, 5)
    learn_on = stop_learning(leader)
    world.controller.prefer(1)
    world.run(700)
    assert follower.log.log_end_offset == 0
    stop_learning(follower)
    world.controller._leave(1)
    assert (world.controller.partition.leader, world.controller.partition.isr) == (0, (0, 2))
    learn_on()
    world.run(100)
    assert leader.leader_epoch == 2


def metadata_comes_after_the_answer_that_it_confirms() -> None:
    """Broker 0 learns of its new ISR from the answer, and proposes another; then of the first one.

    The second one is carried out, and its answer is lost: the broker that joined must count.
    """
    world = world_of(2)
    leader, follower = world.replicas.values()
    stop_learning(leader)
    world.cut = {(1, 0)}
    produce(leader, 1)
    assert world.run_until(lambda: world.controller.partition.isr == (0,), within_ms=9_000)
    assert world.run_until(lambda: leader.leadership.partition_epoch == 1, within_ms=1_000)  # type: ignore[union-attr]
    first = world.controller.version
    world.cut.clear()
    alter = world.controller.alter_partition

    def alter_in_vain(*args: Any) -> Registration | ErrorCode:
        world.cut.add((-1, 0))
        return alter(*args)

    world.controller.alter_partition = alter_in_vain  # type: ignore[method-assign, assignment]
    assert world.run_until(lambda: len(world.controller.partition.isr) == 2, within_ms=5_000)
    world.cut = {(1, 0), (0, 1), (-1, 0)}
    world.run(300)
    leader._apply(first)
    world.run(world.rules.lag_ms + 500)
    produce(leader, 3)
    assert follower.log.log_end_offset < leader.log.log_end_offset


def a_fetch_of_an_earlier_run_arrives() -> None:
    """Broker 1 lost its power and some records; then a fetch arrives from before that."""
    world = world_of()
    leader, follower, _ = world.replicas.values()
    produce(leader, 10)
    world.run(300)
    asked, epoch = follower.following.wanted, follower.broker_epoch  # type: ignore[union-attr]
    assert asked.offset == 10
    follower.log.flushed_offset = 0
    follower.crash(loses=False)
    follower.log.truncate_to(4)
    follower.is_lossy = True
    world.controller._leave(1)
    world.cut = {(1, 0)}
    follower.start()
    produce(leader, 1)
    assert world.run_until(lambda: world.controller.brokers[1].epoch > epoch, within_ms=5_000)
    unfenced = lambda: world.controller.brokers[1].is_active and leader.brokers[1].is_active  # noqa: E731
    assert world.run_until(unfenced, within_ms=5_000)
    leader.on_fetch(Fetch(1, epoch, asked._replace(offset=11), lambda _: None))
    world.run(300)


STORIES = [
    (a_leader_misses_that_another_led, planted_bugs.keep_followers_of_missed_epochs),
    (
        metadata_comes_after_the_answer_that_it_confirms,
        planted_bugs.drop_proposals_for_equal_epochs,
    ),
    (a_fetch_of_an_earlier_run_arrives, planted_bugs.ignore_broker_epochs),
]
IDS = [story.__name__ for story, _ in STORIES]


@pytest.mark.parametrize(("story", "_plant"), STORIES, ids=IDS)
def test_a_story_ends_well(story: Callable[[], None], _plant: planted_bugs.Plant) -> None:
    story()


@pytest.mark.parametrize(("story", "plant"), STORIES, ids=IDS)
def test_a_story_ends_badly_with_its_bug(
    story: Callable[[], None], plant: planted_bugs.Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=r"of the ISR|joins with") as failure:
        story()
    print(failure.value)
