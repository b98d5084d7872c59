"""Storms: many seeds, everything goes wrong for a while, then the group has to come to rest.

The rules are in ``consumer_world``; a failure names its seed.
"""

import pytest

from odradek.coordinator.group.consumer.config import ConsumerGroupConfig, MigrationPolicy
from odradek.coordinator.group.consumer.consumer_group import ConsumerGroup
from tests.simulation.groups.consumer_world import World
from tests.simulation.groups.group_clients import ClassicClient, Client, ConsumerClient

STORM_MS = 400_000
SEEDS, MORE_SEEDS = 4, 24
seeds = pytest.mark.parametrize(
    "seed",
    [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, MORE_SEEDS))],
)
TOPICS = ["orders", "orders_eu", "payments", "returns"]


class Storm:
    def __init__(self, seed: int, *, classic_share: float, policy: MigrationPolicy) -> None:
        config = ConsumerGroupConfig(
            session_timeout_ms=15_000,
            assignment_interval_ms=seed % 3 * 1_000,
            regex_refresh_interval_ms=60_000,
            migration_policy=policy,
        )
        self.world = World(seed, config)
        self.random = self.world.random
        self.classic_share = classic_share
        self.is_cooperative = seed % 2 == 0
        self._made = 0
        self.world.topics.create("orders", 4)

    def run(self) -> World:
        for _ in range(3):
            self._join()
        self._next()
        self.world.run(STORM_MS)
        self.world.settle(200_000)
        self.world.check_settled()
        if isinstance(self.world.group, ConsumerGroup):
            self._change_once_more()
        return self.world

    def _change_once_more(self) -> None:
        """Change topics when all is calm: nothing else can cover up for what goes unnoticed."""
        world = self.world
        world.clients.append(ConsumerClient(world, "last", ["orders"], regex="orders.*"))
        world.settle(100_000)
        for name in ("orders", "orders_late"):
            if world.topics.find(name) is None:
                world.topics.create(name, 2)
            else:
                world.topics.grow(name, world.topics.count_of(name) + 1)
            world.settle(100_000)
            world.check_settled()

    def _next(self) -> None:
        if self.world.is_calm:
            return
        events = (
            self._join,
            self._join,
            self._leave,
            self._crash,
            self._pause,
            self._subscribe,
            self._change_topics,
            self._restart_static,
            self._leave_by_protocol if self.classic_share > 0.5 else self._leave,
            self.world.fail_over,
        )
        self.random.choice(events)()
        self.world.after(self.random.randrange(1, 12_000), self._next)

    def _live(self) -> list[Client]:
        return [client for client in self.world.clients if client.is_alive]

    def _join(self) -> None:
        if len(self._live()) >= 7:
            return
        self._made += 1
        name = f"c{self._made}"
        topics = self.random.choice([["orders"], ["orders"], TOPICS[:2], TOPICS])
        client: Client
        if self.random.random() < self.classic_share:
            client = ClassicClient(self.world, name, topics, is_cooperative=self.is_cooperative)
        elif self.random.random() < 0.25:
            client = ConsumerClient(self.world, name, None, regex=r"orders.*")
        else:
            is_static = self.random.random() < 0.3
            instance_id = f"i-{name}" if is_static else None
            client = ConsumerClient(self.world, name, topics, "", instance_id)
        self.world.clients.append(client)

    def _leave(self) -> None:
        if live := self._live():
            self.random.choice(live).leave()

    def _leave_by_protocol(self) -> None:
        """Let the group change its protocol: all consumers leave, or one comes."""
        consumers = [each for each in self._live() if isinstance(each, ConsumerClient)]
        for client in consumers:
            client.leave()
        if not consumers:
            self._made += 1
            name = f"c{self._made}"
            self.world.clients.append(ConsumerClient(self.world, name, ["orders"]))

    def _crash(self) -> None:
        if live := self._live():
            self.random.choice(live).crash()

    def _pause(self) -> None:
        if live := self._live():
            self.random.choice(live).pause(self.random.randrange(1_000, 40_000))

    def _subscribe(self) -> None:
        consumers = [each for each in self._live() if isinstance(each, ConsumerClient)]
        if consumers:
            topics = self.random.sample(TOPICS, self.random.randrange(1, 4))
            self.random.choice(consumers).subscribe(topics)

    def _restart_static(self) -> None:
        away = [
            client
            for client in self.world.clients
            if isinstance(client, ConsumerClient) and client.instance_id and not client.is_waiting
        ]
        if away:
            self.random.choice(away).restart()

    def _change_topics(self) -> None:
        topics = self.world.topics
        name = self.random.choice(TOPICS)
        if topics.find(name) is None:
            topics.create(name, self.random.randrange(1, 6))
        elif self.random.random() < 0.3:
            topics.delete(name)
        else:
            topics.grow(name, topics.count_of(name) + self.random.randrange(1, 3))


@seeds
def test_consumers_only(seed: int) -> None:
    world = Storm(seed, classic_share=0, policy=MigrationPolicy.BIDIRECTIONAL).run()
    assert world.failovers


@seeds
def test_classic_members_among_consumers(seed: int) -> None:
    world = Storm(seed, classic_share=0.4, policy=MigrationPolicy.UPGRADE).run()
    assert world.failovers


@seeds
def test_groups_that_change_their_protocol_to_and_fro(seed: int) -> None:
    storm = Storm(seed, classic_share=0.6, policy=MigrationPolicy.BIDIRECTIONAL)
    storm.world.begin_classic()
    world = storm.run()
    assert world.upgrades + world.downgrades
