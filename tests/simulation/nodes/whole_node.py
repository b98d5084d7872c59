"""A whole node of ours, as it is, on a machine of a simulated world with a simulated disk."""

from collections.abc import Mapping

from odradek.core.config import STANDALONE, load_broker_config, parse_overrides
from odradek.node.node import Node
from odradek.node.ports import real_ports
from odradek.testing.disk import SimulatedDisk
from odradek.testing.simulation import World

PORT = 9092
CONFIGS = {
    "log.dirs": "/data",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.enable": "false",  # it works in processes
    "log.flush.interval.messages": "1",
    "log.index.size.max.bytes": "65536",  # the simulated disk copies a file whole at each sync
}


class Machine:
    """A machine with a disk; what runs on it comes and goes."""

    def __init__(self, world: World, name: str, configs: Mapping[str, str] | None = None) -> None:
        self.world = world
        self.sim = world.add_node(name)
        self.disk = SimulatedDisk(world.random(f"disk/{name}"), clock=self.sim.clock)
        listener = {"listeners": f"PLAINTEXT://{name}:{PORT}"}
        texts = {**CONFIGS, **listener, **(configs or {})}
        overrides = parse_overrides(f"{key}={value}" for key, value in texts.items())
        self._config = load_broker_config(overrides, base=STANDALONE, small_segments=True).config
        self._starts = 0
        self.start_broker()

    def start_broker(self) -> None:
        self._starts += 1
        random = self.world.random(f"broker/{self.sim.name}/{self._starts}")
        secrets = self.world.random(f"secrets/{self.sim.name}/{self._starts}")
        ports = real_ports(
            disk=self.disk,
            clock=self.sim.clock,
            random=random,
            secret_bytes=secrets.randbytes,
            network=self.sim.network,
        )
        self.node = Node(self._config, ports)
        self.world.run_until_done(self.sim.spawn(self.node.start()), 60)

    def lose_power(self) -> None:
        """Stop without a word to peers; what was not synced is left to chance."""
        self.sim.crash()
        self.disk.crash()

    def kill_broker(self) -> None:
        """End the process; the kernel writes what it has and closes its connections."""
        self.sim.crash(says_goodbye=True)
        self.disk.kill()

    def come_back(self) -> None:
        self.sim.start()
        self.start_broker()
