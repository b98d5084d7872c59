"""Replicas of one partition and their controller on virtual time: one heap, one seed.

Messages between two nodes keep their order, are lost and delayed; links are cut in one direction or
both; a request may come long after its sender has given it up. Nodes crash, lose their power (and
what was not flushed), stop cleanly, and stand still. Metadata comes late, at times very late.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.replication.model_controller import ModelController, Rules
from tests.simulation.replication.oracle import Oracle
from tests.simulation.replication.replica import Replica

Event = Callable[[], None]
CONTROLLER = -1


@dataclass(frozen=True)
class Faults:
    loss: float = 0.0
    delay_ms: int = 20
    straggler: float = 0.0
    late_metadata: float = 0.0
    batched_metadata: float = 0.5
    trouble: float = 0.0
    """At each step of the nemesis."""
    mix: tuple[int, ...] = (2, 2, 2, 1, 1)
    """How many of the troubles are crashes, cuts, elections, pauses, clean stops."""
    interval_ms: int = 600
    """At most that much lies between two steps of the nemesis."""
    power: float = 0.5
    """How many crashes are losses of power."""
    at_once: float = 0.3
    """How many brokers register without waiting for the end of their session."""
    flushes_all: bool = False
    """``flush.messages=1``"""


CALM = Faults()
STORM = Faults(loss=0.02, delay_ms=40, straggler=0.02, late_metadata=0.08, trouble=0.5)


class World:
    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        rules: Rules | None = None,
        faults: Faults = STORM,
        trace: bool = False,
    ) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.rules = rules or Rules()
        self.faults = faults
        self.now_ms = 0
        self.events = 0
        self.cut: set[tuple[int, int]] = set()
        self.lines: list[str] | None = [] if trace else None
        self._heap: list[tuple[int, int, Event]] = []
        self._sequence = 0
        self._arrivals: dict[tuple[int, int], int] = {}
        self._values = 0
        self._has_clients = False
        nodes = list(range(size))
        troubles = (self._crash, self._cut, self._prefer, self._pause, self._stop)
        pairs = zip(troubles, faults.mix, strict=True)
        self._troubles = [each for each, share in pairs for _ in range(share)]
        self.controller = ModelController(nodes, self.rules, self._on_metadata)
        self.oracle = Oracle(self)
        self.replicas = {node_id: Replica(self, node_id) for node_id in nodes}
        for replica in self.replicas.values():
            replica.start()
            replica.broker_epoch = 0
            replica.learn()
        self.at(100, self._tick_controller)

    # Time and messages.

    def at(self, delay_ms: int, event: Event) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (self.now_ms + delay_ms, self._sequence, event))

    def run(self, for_ms: int) -> None:
        self.run_until(lambda: False, within_ms=for_ms)

    def run_until(self, is_done: Callable[[], bool], *, within_ms: int) -> bool:
        end_ms, heap = self.now_ms + within_ms, self._heap
        while heap and heap[0][0] <= end_ms:
            self.now_ms, _, event = heapq.heappop(heap)
            self.events += 1
            event()
            if is_done():
                return True
        self.now_ms = end_ms
        return False

    def send(
        self,
        source: int,
        target: int,
        event: Event,
        *,
        is_metadata: bool = False,
        may_straggle: bool = False,
    ) -> None:
        faults, random, pair = self.faults, self.random, (source, target)
        delay_ms = random.randint(1, faults.delay_ms)
        if is_metadata:  # it comes late, never not at all
            if random.random() < faults.late_metadata:
                delay_ms = random.randint(200, 3_000)
            elif pair in self.cut:
                delay_ms = 300
        elif pair in self.cut or random.random() < faults.loss:
            return
        if may_straggle and random.random() < faults.straggler:
            self._deliver(target, random.randint(500, 4_000), event)  # its connection was cut
            return
        lane = (source, target + 100) if is_metadata else pair
        arrives_ms = max(self.now_ms + delay_ms, self._arrivals.get(lane, 0))
        self._arrivals[lane] = arrives_ms
        self._deliver(target, arrives_ms - self.now_ms, event)

    def _deliver(self, target: int, delay_ms: int, event: Event) -> None:
        if target == CONTROLLER:
            self.at(delay_ms, event)
        elif self.replicas[target].is_up:
            self.replicas[target].later(delay_ms, event)

    def note(self, text: str, *args: object) -> None:
        if self.lines is not None:
            self.lines.append(f"{self.now_ms} " + text % args)

    # The controller's side.

    def _on_metadata(self) -> None:
        before, partition = self.controller.states[-2].partition, self.controller.partition
        self.oracle.on_isr(before.isr, partition.isr)
        self.note(
            "metadata %d: leader %d in %d.%d, ISR %s, ELR %s",
            self.controller.version,
            partition.leader,
            partition.leader_epoch,
            partition.partition_epoch,
            partition.isr,
            partition.elr,
        )
        for replica in self.replicas.values():
            if replica.is_up and replica.applied >= self.controller.version - 1:
                replica.learn()

    def register(self, replica: Replica, *, is_clean: bool) -> int | None:
        epoch = self.controller.register(
            replica.node_id,
            replica.run,
            is_clean=is_clean,
            at_once=self.random.random() < self.faults.at_once,
            now_ms=self.now_ms,
        )
        if epoch is not None:
            replica.is_lossy = False
            self.note("%d registers as %d", replica.node_id, epoch)
        return epoch

    def heartbeat(self, node_id: int, epoch: int, applied: int) -> None:
        self.controller.heartbeat(node_id, epoch, applied, self.now_ms)

    def on_stopped(self, replica: Replica, epoch: int) -> None:
        self.controller.stopped(replica.node_id, epoch)
        self.at(self.random.randint(50, 2_000), replica.start)

    def _tick_controller(self) -> None:
        self.at(100, self._tick_controller)
        self.controller.fence_overdue(self.now_ms)
        for replica in self.replicas.values():
            if replica.is_up and not self.random.randrange(5):
                replica.learn()  # what it heard before may have been lost with a run of it

    # Clients and faults.

    def start_clients(self) -> None:
        self._has_clients = True
        self.at(10, self._produce)
        self.at(300, self._nemesis)

    def stop_clients(self) -> None:
        self._has_clients = False

    def _produce(self) -> None:
        random = self.random
        if not self._has_clients:
            return
        self.at(random.randint(5, 90), self._produce)
        for replica in self.replicas.values():
            if replica.is_up and replica.paused_until_ms <= self.now_ms:
                for _ in range(random.choice((0, 1, 1, 1, 3))):
                    self._values += 1
                    replica.produce(self._values, acks_all=random.random() < 0.7)
        if random.random() < 0.01:
            for replica in self.replicas.values():
                replica.delete_records(random.randint(0, replica.log.high_watermark))

    def _nemesis(self) -> None:
        random = self.random
        if not self._has_clients:
            return
        self.at(
            random.randint(self.faults.interval_ms // 10, self.faults.interval_ms), self._nemesis
        )
        if random.random() >= self.faults.trouble:
            return
        replica = random.choice(list(self.replicas.values()))
        leader = self.replicas.get(self.controller.partition.leader)
        if leader is not None and random.random() < 0.5:
            replica = leader
        random.choice(self._troubles)(replica)

    def _crash(self, replica: Replica) -> None:
        if not replica.is_up:
            return
        # Without eligible leader replicas the last one in sync leads again, whatever it has lost.
        loses = self.rules.has_elr and self.random.random() < self.faults.power
        replica.crash(loses=loses)
        self.at(self.random.choice((20, 200, 900, 2_500)), replica.start)

    def _cut(self, replica: Replica) -> None:
        """Cut one node off from all others, from one, or from the controller; or heal."""
        random, nodes = self.random, [CONTROLLER, *self.replicas]
        self.cut.clear()
        others = random.choice((nodes, [random.choice(nodes)], [CONTROLLER], list(self.replicas)))
        for other in others:
            way = random.randrange(3)
            if way != 1:
                self.cut.add((replica.node_id, other))
            if way != 2:
                self.cut.add((other, replica.node_id))
        self.note("cut %s", sorted(self.cut))
        self.at(random.randint(200, 4_000), self.cut.clear)

    def _pause(self, replica: Replica) -> None:
        replica.paused_until_ms = self.now_ms + self.random.choice((100, 700, 2_500))

    def _stop(self, replica: Replica) -> None:
        replica.stop()

    def _prefer(self, _replica: Replica) -> None:
        self.controller.prefer(self.random.choice(list(self.replicas)))

    # After the storm.

    def settle(self) -> None:
        """Heal; in the end all logs are equal and all replicas are in sync."""
        self.note("heal")
        self.faults = replace(CALM, flushes_all=self.faults.flushes_all)
        self.cut.clear()
        for replica in self.replicas.values():
            replica.paused_until_ms = 0
            replica.start()
        assert self.run_until(self._is_settled, within_ms=40_000), self._describe()
        self.oracle.check_end()

    def _is_settled(self) -> bool:
        partition, replicas = self.controller.partition, list(self.replicas.values())
        if len(partition.isr) < len(replicas) or partition.leader < 0:
            return False
        end = replicas[0].log.log_end_offset
        return all(
            each.applied == self.controller.version
            and each.log.log_end_offset == each.log.high_watermark == end
            for each in replicas
        )

    def _describe(self) -> str:
        logs = [
            (each.log.log_start_offset, each.log.high_watermark, each.log.log_end_offset)
            for each in self.replicas.values()
        ]
        return f"not settled: {self.controller.partition}, logs {logs}"

    def check_invariants(self) -> None:
        for replica in self.replicas.values():
            if replica.leadership is not None:
                replica.leadership.check_invariants()
            if replica.following is not None:
                replica.following.check_invariants()
