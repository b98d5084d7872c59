"""The high watermark beside its definition, in thousands of random states.

The twin says what the documents say, without a thought for cost: sets, and one minimum.
"""

from random import Random

import pytest

from odradek.replication.isr import CommittedIsr, PendingExpand, PendingShrink
from odradek.replication.leadership import Broker, LeaderSettings, Leadership, Registration
from tests.simulation.replication.model_log import ModelLog

LAG_MS = 100
NOW_MS = 1_000


def random_leader(random: Random) -> tuple[Leadership, dict[int, Broker]]:
    count = random.randint(1, 5)
    brokers = {
        each: Broker(random.randint(1, 2), random.random() < 0.7)
        for each in range(count)
        if random.random() < 0.9
    }
    log = ModelLog()
    log.log_end_offset = random.randint(0, 8)
    log.high_watermark = random.randint(0, log.log_end_offset)
    settings = LeaderSettings(min_insync_replicas=random.randint(1, 3), lag_ms_max=LAG_MS)
    leadership = Leadership(0, log, settings, brokers.get)
    isr = (0, *(each for each in range(1, count) if random.random() < 0.6))
    leadership.take(Registration(1, 1, tuple(range(count)), isr), NOW_MS - LAG_MS - 1)
    for follower in leadership.followers.values():
        follower.log_end_offset = random.randint(-1, log.log_end_offset)
        follower.last_caught_up_ms = NOW_MS - LAG_MS + random.randint(-2, 2)
        follower.broker_epoch = random.choice((None, -1, 1, 2))
    others = [each for each in range(1, count) if each not in isr]
    members = frozenset(isr)
    leadership.isr = random.choice(
        [
            CommittedIsr(members),
            PendingExpand(members, random.choice(others)) if others else CommittedIsr(members),
            PendingShrink(members, frozenset(isr[1:2])) if isr[1:] else CommittedIsr(members),
        ]
    )
    return leadership, brokers


def defined(leader: Leadership, brokers: dict[int, Broker]) -> int:
    """Return the high watermark by its definition."""
    end = leader.log.log_end_offset
    confirmed, counting = set(leader.isr.committed), set(leader.isr.maximal)
    wanted = min(leader.settings.min_insync_replicas, len(leader.replicas))
    if len(confirmed) < wanted:
        return leader.log.high_watermark
    for node_id, follower in leader.followers.items():
        is_near = follower.log_end_offset == end or follower.last_caught_up_ms >= NOW_MS - LAG_MS
        broker = brokers.get(node_id)
        is_known = broker is not None and follower.broker_epoch in {-1, broker.epoch}
        if is_near and is_known and broker is not None and broker.is_active:
            counting.add(node_id)
    ends = {node_id: each.log_end_offset for node_id, each in leader.followers.items()} | {0: end}
    return max(leader.log.high_watermark, min(ends[each] for each in counting))


@pytest.mark.seed_row("0.7")
def test_the_high_watermark_is_what_its_definition_says() -> None:
    reached = set()
    for seed in range(20_000):
        leader, brokers = random_leader(Random(seed))
        moved_to = leader.high_watermark(NOW_MS)
        assert moved_to == defined(leader, brokers), f"seed {seed}"
        reached.add((type(leader.isr), moved_to > leader.log.high_watermark))
    assert len(reached) == 6
