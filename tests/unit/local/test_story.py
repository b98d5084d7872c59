"""What is told of a cluster from one view to the next."""

from odradek.core.ids import TopicPartition
from odradek.local.story import STORY_MS_MAX, ClusterView, Effect, PartitionView, Story

ALL = (1, 2, 3)


def view(
    leaders: list[int], *, unfenced: tuple[int, ...] = ALL, controller: int = 1, missing: int = 0
) -> ClusterView:
    """Partitions of a topic by their leaders; ``missing`` is in no ISR."""
    isr = tuple(node for node in ALL if node != missing)
    return ClusterView(
        controller,
        frozenset(unfenced),
        {
            TopicPartition("t", index): PartitionView(leader, 5, ALL, isr)
            for index, leader in enumerate(leaders)
        },
    )


def test_a_kill_is_told_from_the_death_to_the_first_ack() -> None:
    story = Story()
    assert story.on_view(view([1, 2, 3, 2]), 900) == []
    story.on_down([2], 1_000)
    assert story.on_view(view([1, 2, 3, 2]), 1_500) == []
    assert not story.is_settled()
    gone = view([1, 1, 3, 3], unfenced=(1, 3), missing=2)
    assert story.on_view(gone, 4_100) == [Effect(3_100, "node 2 fenced")]
    assert not story.is_settled(), "more leaders may change"
    assert story.on_view(gone, 4_150) == [Effect(3_100, "2 partitions have new leaders")]
    assert story.is_settled()
    assert sorted(story.awaited_acks) == [TopicPartition("t", 1), TopicPartition("t", 3)]
    assert story.on_ack(4_260) == Effect(3_260, "first ack of a new leader after 3.26 s")
    assert not story.awaited_acks


def test_leaders_that_change_in_several_steps_are_counted_together() -> None:
    story = Story()
    story.on_view(view([2, 2, 2]), 0)
    story.on_down([2], 0)
    story.on_view(view([1, 2, 2], unfenced=(1, 3)), 100)
    story.on_view(view([1, 3, 2], unfenced=(1, 3)), 200)
    last = view([1, 3, 1], unfenced=(1, 3))
    assert story.on_view(last, 300) == []
    assert story.on_view(last, 400) == [Effect(300, "3 partitions have new leaders")]


def test_partitions_that_nobody_can_lead_are_named() -> None:
    story = Story()
    story.on_view(view([2, 2, 2, 2, 2]), 0)
    story.on_down([2], 0)
    gone = view([1, -1, -1, -1, -1], unfenced=(1, 3))
    story.on_view(gone, 100)
    assert story.on_view(gone, 150) == [
        Effect(100, "1 partition has a new leader"),
        Effect(100, "4 partitions have no leader: t-1, t-2, t-3…"),
    ]
    assert list(story.awaited_acks) == [TopicPartition("t", 0)]
    assert story.is_settled(), "nothing more will come of it"


def test_a_node_is_back_when_it_has_caught_up() -> None:
    story = Story()
    story.on_view(view([1, 1]), 0)
    story.on_down([2], 0)
    story.on_view(view([1, 1], unfenced=(1, 3), missing=2), 0)
    story.on_back([2], 0)
    assert story.on_view(view([1, 1], missing=2), 200) == [Effect(200, "node 2 serves again")]
    assert not story.is_settled()
    caught_up = [Effect(400, "all replicas are in sync again")]
    assert story.on_view(view([1, 1]), 400) == caught_up
    assert story.is_settled()


def test_another_controller_is_told_and_none_is_not() -> None:
    story = Story()
    story.on_view(view([1]), 0)
    story.on_down([1], 0)
    assert story.on_view(view([1], controller=-1), 50) == []
    effects = story.on_view(view([1], controller=3), 90)
    assert effects == [Effect(90, "node 3 is the active controller")]


def test_a_pause_that_was_short_is_over_without_a_word() -> None:
    story = Story()
    story.on_view(view([2]), 0)
    story.on_down([2], 0)
    story.on_back([2], 500)
    assert story.on_view(view([2]), 600) == []
    assert story.is_settled()


def test_what_comes_late_or_by_itself_is_put_down_to_no_fault() -> None:
    story = Story()
    story.on_view(view([1]), 0)
    assert story.on_view(view([1], unfenced=(1, 2)), 100) == [Effect(None, "node 3 fenced")]
    story.on_down([2], 1_000)
    story.on_view(view([1], unfenced=(1,)), 2_000)
    late_ms = 1_001 + STORY_MS_MAX
    back = story.on_view(view([1], unfenced=(1, 3)), late_ms)
    assert back == [Effect(None, "node 3 serves again")]


def test_topics_that_come_and_go_have_no_new_leaders() -> None:
    story = Story()
    story.on_view(view([1]), 0)
    assert story.on_view(view([1, 2, 3]), 100) == []
    assert story.on_view(view([1]), 200) == []
    assert story.is_settled()


def test_a_node_that_was_added_serves_for_the_first_time() -> None:
    story = Story()
    story.on_view(view([1]), 0)
    story.on_back([4], 0)
    added = view([1], unfenced=(1, 2, 3, 4))
    assert story.on_view(added, 1_100) == [Effect(1_100, "node 4 serves")]


def test_leaders_that_changed_just_before_a_fault_did_so_at_once() -> None:
    story = Story()
    story.on_view(view([1]), 0)
    story.on_view(view([2]), 900)
    story.on_down([3], 1_000)
    assert story.on_view(view([2]), 1_010) == [Effect(0, "1 partition has a new leader")]


def test_a_node_whose_replicas_leave_and_rejoin_is_remembered() -> None:
    story = Story()
    well, without_3 = view([1, 2]), view([1, 2], missing=3)
    for second in range(0, 300, 100):
        assert story.flaps.find(second * 1_000) == []
        story.on_view(well, second * 1_000)
        story.on_view(without_3, second * 1_000 + 1_000)
    assert [(each.broker_id, each.times) for each in story.flaps.find(300_000)] == [(3, 3)]
