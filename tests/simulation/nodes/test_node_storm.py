"""One whole broker and whole clients, while links, the process, the power and clocks fail.

What was acknowledged is read, exactly once and in the order it was sent; what was not may be there
or not, but not twice.
"""

import asyncio

import pytest

from odradek.client import Consumer, Producer
from odradek.client.errors import KafkaError
from odradek.testing.simulation import SimNode, World
from tests.simulation.nodes.whole_node import PORT, Machine

FAULTS = 6
TOPIC = "events"


class Storm:
    def __init__(self, world: World) -> None:
        self.world = world
        self.machine = Machine(world, "broker")
        self.clients = [world.add_node(f"client-{number}") for number in range(3)]
        self.sent: dict[str, list[bytes]] = {node.name: [] for node in self.clients}
        self.acknowledged: set[bytes] = set()
        self.is_over = False
        self.faults = world.random("faults")
        self.kinds: list[str] = []

    async def produce(self, node: SimNode) -> None:
        sent = self.sent[node.name]
        producer = Producer(
            bootstrap_servers=f"broker:{PORT}",
            max_block_ms=600_000,
            delivery_timeout_ms=600_000,
            request_timeout_ms=5_000,
            random=self.world.random(f"producer/{node.name}"),
            now_ms=node.clock.now_ms,
        )
        async with producer:
            while not self.is_over:
                value = f"{node.name} {len(sent)}".encode()
                sent.append(value)
                try:
                    await (await producer.send(TOPIC, value))
                    self.acknowledged.add(value)
                except KafkaError as error:
                    self.world.note(node.name, f"{value!r}: {error}")
                await asyncio.sleep(0.25)

    async def read_all(self, node: SimNode) -> list[bytes]:
        """Read until all that was acknowledged is there, and a while longer."""
        values: list[bytes] = []
        consumer = Consumer(
            TOPIC,
            bootstrap_servers=f"broker:{PORT}",
            auto_offset_reset="earliest",
            group_id="readers",
            random=self.world.random("consumer"),
            now_ms=node.clock.now_ms,
        )
        async with consumer:
            quiet = 0
            while quiet < 10 or not self.acknowledged <= set(values):
                polled = await consumer.poll(timeout=0.5)
                for records in polled.values():
                    values.extend(record.value for record in records if record.value is not None)
                quiet = 0 if polled else quiet + 1
        return values

    def strike(self) -> None:
        """Let one fault happen and pass."""
        faults, world, machine = self.faults, self.world, self.machine
        client = faults.choice(self.clients).name
        kind = faults.choice(["cut", "one way", "reset", "pause", "kill", "power", "slow", "jump"])
        self.kinds.append(kind)
        match kind:
            case "cut":
                world.network.cut(client, "broker")
            case "one way":
                ends = faults.sample([client, "broker"], 2)
                world.network.cut(*ends, both_ways=False)
            case "reset":
                world.network.reset(client, "broker")
            case "pause":
                machine.sim.pause()
            case "kill":
                machine.kill_broker()
            case "power":
                machine.lose_power()
            case "slow":
                world.network.link(client, "broker").bytes_per_second = 200
            case _:
                machine.sim.clock.jump(faults.uniform(-3600, 3600))
        world.run_for(faults.uniform(0.01, 20))
        self.heal()

    def heal(self) -> None:
        self.world.network.heal_all()
        for client in self.clients:
            self.world.network.link(client.name, "broker").bytes_per_second = None
        if not self.machine.sim.is_up:
            self.machine.come_back()
        self.machine.sim.resume()

    def run(self) -> None:
        tasks = [node.spawn(self.produce(node)) for node in self.clients]
        for _ in range(FAULTS):
            self.world.run_for(self.faults.uniform(0, 3))
            self.strike()
        self.world.run_for(5)
        self.is_over = True
        self.world.run_until(lambda: all(task.done() for task in tasks), 1200)
        for task in tasks:
            task.result()
        reader = self.clients[0]
        self.check(self.world.run_until_done(reader.spawn(self.read_all(reader)), 600))

    def check(self, read: list[bytes]) -> None:
        assert len(set(read)) == len(read), "read twice"
        assert self.acknowledged <= set(read), "acknowledged and lost"
        for name, sent in self.sent.items():
            own = [value for value in read if value.split()[0] == name.encode()]
            assert own == [value for value in sent if value in set(own)], "out of order"
        assert len(self.acknowledged) > FAULTS


def storm(seed: int) -> str:
    with World(seed, trace_lines_max=200) as world:
        Storm(world).run()
        assert world.trace is not None
        return world.trace.digest()


@pytest.mark.parametrize("seed", range(4))
def test_a_storm_loses_and_doubles_nothing(seed: int) -> None:
    storm(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1030))
def test_a_long_row_of_storms(seed: int) -> None:
    storm(seed)
