"""What the active controller does by itself."""

from odradek.controller.result import Result
from odradek.core.ids import Uuid
from odradek.metadata import versioned
from odradek.protocol.generated.metadata_records import NoOpRecord, PartitionRecord, TopicRecord
from tests.unit.control.control_site import ControlSite


def active(**texts: str) -> ControlSite:
    site = ControlSite(**texts)
    site.lead()
    return site


def run(site: ControlSite, time_ms: int, step_ms: int = 100) -> None:
    """Let time pass, and everything that is appended be committed."""
    for _ in range(0, time_ms, step_ms):
        site.timers.advance(step_ms)
        site.commit()


def no_ops(site: ControlSite) -> int:
    return sum(batch == [NoOpRecord()] for batch in site.quorum.batches)


def test_a_silent_broker_is_fenced_within_an_eighth_of_its_session() -> None:
    site = active()
    site.start_broker(2)
    run(site, 8_900)
    assert site.fenced == []
    run(site, 1_400)
    assert site.fenced == [2]


def test_a_session_lasts_as_long_as_the_config_says() -> None:
    site = active(broker_session_timeout_ms="3000")
    site.start_broker(2)
    run(site, 2_900)
    assert site.fenced == []
    run(site, 500)
    assert site.fenced == [2]


def test_brokers_are_fenced_one_at_a_time_and_without_a_pause() -> None:
    site = active()
    for broker_id in (2, 3, 4):
        site.start_broker(broker_id)
    run(site, 8_900)
    site.timers.advance(1_300)
    fenced = []
    for _ in range(4):  # no time passes between them
        site.commit()
        fenced.append(len(site.fenced))
        site.timers.advance(0)
    assert fenced == [1, 2, 3, 3]


def test_a_broker_that_sends_heartbeats_is_left_alone() -> None:
    site = active()
    epoch = site.start_broker(2)
    for _ in range(10):
        run(site, 2_000)
        site.beat(2, epoch)
    assert site.fenced == []


def test_a_controller_that_was_stopped_itself_hears_heartbeats_first() -> None:
    site = active()
    epoch = site.start_broker(2)
    site.timers.sleep(20_000)
    site.beat(2, epoch)  # it waited in the socket
    run(site, 2_000)
    assert (site.fencings, site.fenced) == (0, [])


def test_sessions_and_deadlines_begin_anew_with_each_activation() -> None:
    site = active()
    site.start_broker(2)
    run(site, 8_000)
    site.lose()
    armed = list(site.timers.due)
    assert armed == []
    site.timers.advance(60_000)
    site.lead()
    run(site, 8_900)
    assert site.fenced == []
    run(site, 1_400)
    assert site.fenced == [2]


def test_no_ops_are_written_only_where_another_node_sees_them() -> None:
    site = active()
    run(site, 5_000)
    assert no_ops(site) == 0
    site.quorum.voter_ids = (1, 2, 3)
    run(site, 5_000)
    assert 9 <= no_ops(site) <= 10


def test_a_broker_elsewhere_is_another_node() -> None:
    site = active()
    epoch = site.start_broker(2)
    run(site, 2_000)
    site.beat(2, epoch)
    assert no_ops(site) >= 2


def test_no_ops_can_be_switched_off() -> None:
    site = active(metadata_max_idle_interval_ms="0")
    site.quorum.voter_ids = (1, 2, 3)
    run(site, 5_000)
    assert no_ops(site) == 0


def test_a_log_that_moves_needs_no_no_op() -> None:
    site = active()
    site.quorum.voter_ids = (1, 2, 3)
    before = no_ops(site)
    for broker_id in range(2, 12):
        site.start_broker(broker_id)
        run(site, 300)
    assert no_ops(site) - before <= 1


def test_nothing_spins_while_a_commit_is_long_in_coming() -> None:
    site = active()
    site.quorum.voter_ids = (1, 2, 3)
    armed = site.timers.armed
    site.timers.advance(60_000)  # without a commit
    assert no_ops(site) == 1
    assert site.timers.armed - armed < 200


def test_leaders_go_back_to_preferred_replicas() -> None:
    site = active(leader_imbalance_check_interval_seconds="10")
    epochs = {broker_id: site.start_broker(broker_id) for broker_id in (2, 3)}
    bring_in_a_topic(site, leader=3, replicas=[2, 3])
    run_with_brokers(site, epochs, 8_000)
    assert leader_of(site) == 3
    run_with_brokers(site, epochs, 4_000)
    assert leader_of(site) == 2


def test_leaders_stay_where_they_are_if_that_is_wanted() -> None:
    texts = {"leader_imbalance_check_interval_seconds": "10"}
    site = active(auto_leader_rebalance_enable="false", **texts)
    epochs = {broker_id: site.start_broker(broker_id) for broker_id in (2, 3)}
    bring_in_a_topic(site, leader=3, replicas=[2, 3])
    run_with_brokers(site, epochs, 30_000)
    assert leader_of(site) == 3


def test_unclean_leaders_are_looked_for_where_they_are_allowed() -> None:
    interval = {"unclean_leader_election_interval_ms": "20000"}
    for allowed, leader in (("true", 2), ("false", -1)):
        site = active(unclean_leader_election_enable=allowed, **interval)
        epochs = {2: site.start_broker(2)}
        bring_in_a_topic(site, leader=-1, replicas=[2, 3], isr=[3])
        run_with_brokers(site, epochs, 18_000)
        assert leader_of(site) == -1
        run_with_brokers(site, epochs, 4_000)
        assert leader_of(site) == leader


def run_with_brokers(site: ControlSite, epochs: dict[int, int], time_ms: int) -> None:
    """Let time pass while brokers send heartbeats."""
    for _ in range(0, time_ms, 2_000):
        run(site, 2_000)
        for broker_id, epoch in epochs.items():
            site.beat(broker_id, epoch)


def leader_of(site: ControlSite) -> int:
    return site.server.control.image.topics["t"].partitions[0].leader


def bring_in_a_topic(
    site: ControlSite, leader: int, replicas: list[int], isr: list[int] | None = None
) -> None:
    """Have a topic in a state that requests alone would not lead to so soon."""
    topic_id = Uuid(b"topic of several")
    directories = [Uuid(bytes(15) + b"\x01")] * len(replicas)
    records = [
        TopicRecord(name="t", topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=replicas,
            isr=replicas if isr is None else isr,
            leader=leader,
            directories=directories,
        ),
    ]
    level = site.server.control.image.metadata_version
    assert level is not None
    versioned_records = tuple(versioned(each, level) for each in records)
    site.server.host.submit(lambda _: Result(versioned_records, None), lambda _: None)
    site.commit()
