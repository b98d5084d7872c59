"""Carries out a schedule of faults on a cluster, and knows whom each of them hurt and when."""

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from odradek.testing.simulation import World
from odradek.testing.simulation.loop import SimLoop
from tests.simulation.cluster.faults import FOLLOWER, LEADER, Fault
from tests.simulation.cluster.machine import Machine

if TYPE_CHECKING:
    from tests.simulation.cluster.cluster import Cluster

_DEFAULT_WORK_SECONDS: Final = 0.002
_STEP_US: Final = 1_000
_METADATA_FILES: Final = "/data/__cluster_metadata-0/*"
_OTHER_DIRECTORY: Final = ("/more/*", "/more/*/*")

Undo = Callable[[], None]


class Nemesis:
    def __init__(self, cluster: "Cluster", schedule: Iterable[Fault]) -> None:
        self._cluster = cluster
        self._world: World = cluster.world
        self.schedule = list(schedule)
        self.hurt: dict[str, list[tuple[float, float]]] = {name: [] for name in cluster.machines}
        """When each machine, or a link of it, was not as it should be: from, to."""
        self.broken_disks: set[str] = set()
        self._broken_directories: set[str] = set()
        self._is_over = False
        self._strikes: dict[str, Callable[[Fault, str, str], Undo]] = {
            "kill": self._kill,
            "power": self._lose_power,
            "restart": self._restart,
            "pause": self._pause,
            "stall": self._pause,
            "isolate": self._isolate,
            "deafen": self._deafen,
            "mute": self._mute,
            "crash-in-write": self._crash_in_write,
            "slow-start": self._start_slowly,
            "overload": self._overload,
            "slow-disk": self._slow_disk,
            "full-disk": self._fill_disk,
            "broken-disk": self._break_disk,
            "broken-directory": self._break_directory,
            "clock-jump": self._jump,
            "clock-drift": self._drift,
            "cut": self._cut,
            "one-way": self._cut_one_way,
            "reset": self._reset,
            "slow": self._slow_link,
            "lag": self._lag_link,
            "lose-answers": self._lose_answers,
            "power-all": self._lose_power_of_all,
            "rolling-restart": self._restart_in_turn,
            "split": self._split,
        }

    def begin(self) -> None:
        """Let the faults come, counted from now."""
        for fault in self.schedule:
            self._world.call_later(fault.at, self._strike, fault)

    def end(self) -> None:
        """Undo all there is, and let nothing more come."""
        self._is_over = True
        network = self._world.network
        network.heal_all()
        names = [*self._world.nodes]
        for one in names:
            for other in names:
                link = network.link(one, other)
                link.bytes_per_second = None
                link.extra_latency_seconds = 0.0
        for machine in self._cluster.machines.values():
            if machine.name in self._broken_directories:
                machine.lose_power()
            self._mend_disk(machine)
            machine.load_seconds = 0.0
            machine.sim.clock.drift(0)
            machine.resume()
            if machine.is_stopping:
                machine.kill()
            machine.start()

    def was_hurt(self, name: str, since: float) -> bool:
        """Whether a fault hit a machine at or after a time."""
        return any(end >= since for _, end in self.hurt[name])

    def _strike(self, fault: Fault) -> None:
        if self._is_over:
            return
        who, whom = self._resolve(fault.who), self._resolve(fault.whom)
        if who is None or whom is None or (fault.whom and who == whom):
            return  # there is no leader now, or it is the one that is meant anyway
        self._world.note("nemesis", f"{fault.kind} {who} {whom} for {fault.duration:.3f}")
        self._cluster.say(f"nemesis: {fault.kind} {who} {whom} +{fault.duration:.3f}")
        undo = self._strikes[fault.kind](fault, who, whom)
        self._world.call_later(fault.duration, self._undo, undo)

    def _undo(self, undo: Undo) -> None:
        if not self._is_over:
            undo()

    def _resolve(self, name: str) -> str | None:
        if name == LEADER:
            leader = self._cluster.leader()
            return None if leader is None else leader.name
        if name == FOLLOWER:
            leader = self._cluster.leader()
            others = [
                machine.name
                for machine in self._cluster.machines.values()
                if machine.place.is_controller and machine is not leader
            ]
            return others[0] if others else None
        return self._cluster.find_role(name) if name.startswith("@") else name

    def _machine(self, name: str) -> Machine:
        return self._cluster.machines[name]

    def _mark(self, fault: Fault, *names: str) -> None:
        now = self._world.now
        for name in names:
            if name in self.hurt:
                self.hurt[name].append((now, now + fault.duration))

    # One machine.

    def _kill(self, fault: Fault, who: str, _: str) -> Undo:
        self._mark(fault, who)
        self._machine(who).kill()
        return self._machine(who).start

    def _lose_power(self, fault: Fault, who: str, _: str) -> Undo:
        self._mark(fault, who)
        self._machine(who).lose_power()
        return self._machine(who).start

    def _restart(self, fault: Fault, who: str, _: str) -> Undo:
        machine = self._machine(who)
        self._mark(fault, who)
        machine.stop()
        return lambda: self._start_when_stopped(machine, fault)

    def _start_when_stopped(self, machine: Machine, fault: Fault) -> None:
        if self._is_over:
            return
        self._mark(fault, machine.name)
        if machine.is_stopping:
            self._world.call_later(0.1, self._start_when_stopped, machine, fault)
        else:
            machine.start()

    def _pause(self, fault: Fault, who: str, _: str) -> Undo:
        self._mark(fault, who)
        self._machine(who).pause()
        return self._machine(who).resume

    def _crash_in_write(self, fault: Fault, who: str, _: str) -> Undo:
        machine = self._machine(who)
        self._mark(fault, who)
        machine.disk.stop_at = machine.disk.operations + int(fault.amount)

        def undo() -> None:
            machine.disk.stop_at = None
            self._mark(fault, who)
            machine.start()

        return undo

    def _start_slowly(self, fault: Fault, who: str, _: str) -> Undo:
        """Kill and start a process that then takes its time with the metadata."""
        machine = self._machine(who)
        self._mark(fault, who)
        machine.kill()
        machine.load_seconds = fault.amount
        machine.start()

        def undo() -> None:
            machine.load_seconds = 0.0

        return undo

    def _overload(self, fault: Fault, who: str, _: str) -> Undo:
        """Let work take time, and bring more of it; nobody but clients has to suffer from that."""
        sim = self._machine(who).sim
        loop = sim.loop
        loop.round_seconds, sim.clock.step_us = fault.amount, _STEP_US
        self._cluster.flood(fault.duration)
        if self._cluster.has_data_traffic:
            # Its brokers' requests wait behind each other then, and some sessions end.
            self._mark(fault, *self._cluster.machines)

        def undo() -> None:
            loop.round_seconds, sim.clock.step_us = 0.0, 0

        return undo

    def _slow_disk(self, fault: Fault, who: str, _: str) -> Undo:
        loop: SimLoop = self._machine(who).sim.loop
        self._mark(fault, who)
        loop.work_seconds_max = fault.amount

        def undo() -> None:
            loop.work_seconds_max = _DEFAULT_WORK_SECONDS

        return undo

    def _fill_disk(self, fault: Fault, who: str, _: str) -> Undo:
        machine = self._machine(who)
        self._mark(fault, who)
        self.broken_disks.add(who)  # it may give up: at a start, for one
        machine.disk.capacity_bytes = machine.disk.used_bytes() + int(fault.amount)

        def undo() -> None:
            self._mark(fault, who)
            self._mend_disk(machine)
            machine.start()

        return undo

    def _break_disk(self, fault: Fault, who: str, _: str) -> Undo:
        machine = self._machine(who)
        self._mark(fault, who)
        self.broken_disks.add(who)
        machine.disk.fail("sync", errno.EIO, path=_METADATA_FILES, after=int(fault.amount))

        def undo() -> None:
            self._mark(fault, who)
            self._mend_disk(machine)
            machine.start()

        return undo

    def _break_directory(self, fault: Fault, who: str, _: str) -> Undo:
        """Let writes to a log directory fail that is not the metadata's; its broker goes on."""
        machine = self._machine(who)
        if not machine.may_lose_power():
            return _nothing  # for what is not on disk is lost with it
        self._mark(fault, who)
        machine.power_lost_at = self._world.now
        for kind in ("write", "sync", "create"):
            for files in _OTHER_DIRECTORY:
                machine.disk.fail(kind, errno.EIO, path=files, after=int(fault.amount), times=None)
        self._broken_directories.add(who)
        self._cluster.oracle.reached["directories failed"] += 1
        return lambda: self._mend_directory(fault, machine)

    def _mend_directory(self, fault: Fault, machine: Machine) -> None:
        """Give a machine a good directory with what was synced; it is used from a start on."""
        self._mark(fault, machine.name)
        self._broken_directories.discard(machine.name)
        machine.disk.faults.clear()
        machine.lose_power()
        machine.start()

    def _mend_disk(self, machine: Machine) -> None:
        machine.disk.capacity_bytes = None
        machine.disk.faults.clear()
        machine.disk.stop_at = None
        machine.sim.loop.work_seconds_max = _DEFAULT_WORK_SECONDS
        machine.sim.loop.round_seconds = 0.0
        machine.sim.clock.step_us = 0

    def _jump(self, fault: Fault, who: str, _: str) -> Undo:
        self._machine(who).sim.clock.jump(fault.amount)
        return _nothing

    def _drift(self, fault: Fault, who: str, _: str) -> Undo:
        clock = self._machine(who).sim.clock
        clock.drift(fault.amount)
        return lambda: clock.drift(0)

    # Links.

    def _isolate(self, fault: Fault, who: str, _: str) -> Undo:
        return self._cut_all(fault, who, there=True, back=True)

    def _deafen(self, fault: Fault, who: str, _: str) -> Undo:
        return self._cut_all(fault, who, there=False, back=True)

    def _mute(self, fault: Fault, who: str, _: str) -> Undo:
        return self._cut_all(fault, who, there=True, back=False)

    def _cut_all(self, fault: Fault, who: str, *, there: bool, back: bool) -> Undo:
        others = [name for name in self._cluster.machines if name != who]
        pairs = [(who, other) for other in others] * there
        pairs += [(other, who) for other in others] * back
        self._mark(fault, who, *others)
        return self._cut_pairs(pairs)

    def _cut_pairs(self, pairs: list[tuple[str, str]]) -> Undo:
        network = self._world.network
        for pair in pairs:
            network.cut(*pair, both_ways=False)

        def undo() -> None:
            for pair in pairs:
                network.heal(*pair, both_ways=False)

        return undo

    def _cut(self, fault: Fault, who: str, whom: str) -> Undo:
        self._mark(fault, who, whom)
        return self._cut_pairs([(who, whom), (whom, who)])

    def _cut_one_way(self, fault: Fault, who: str, whom: str) -> Undo:
        self._mark(fault, who, whom)
        return self._cut_pairs([(who, whom)])

    def _reset(self, fault: Fault, who: str, whom: str) -> Undo:
        self._mark(fault, who, whom)
        self._world.network.reset(who, whom)
        return _nothing

    def _lose_answers(self, fault: Fault, who: str, whom: str) -> Undo:
        """Let requests arrive and be carried out, and break the connections before the answers."""
        self._mark(fault, who, whom)
        heal = self._cut_pairs([(whom, who)])

        def undo() -> None:
            self._world.network.reset(who, whom)
            heal()

        return undo

    def _slow_link(self, fault: Fault, who: str, whom: str) -> Undo:
        link = self._world.network.link(who, whom)
        self._mark(fault, who, whom)
        link.bytes_per_second = fault.amount

        def undo() -> None:
            link.bytes_per_second = None

        return undo

    def _lag_link(self, fault: Fault, who: str, whom: str) -> Undo:
        link = self._world.network.link(who, whom)
        self._mark(fault, who, whom)
        link.extra_latency_seconds = fault.amount

        def undo() -> None:
            link.extra_latency_seconds = 0.0

        return undo

    # All.

    def _lose_power_of_all(self, fault: Fault, *_: str) -> Undo:
        machines = list(self._cluster.machines.values())
        self._mark(fault, *self._cluster.machines)
        for machine in machines:
            machine.lose_power()

        def undo() -> None:
            for machine in machines:
                machine.start()

        return undo

    def _restart_in_turn(self, fault: Fault, *_: str) -> Undo:
        self._restart_next(list(self._cluster.machines.values()), fault)
        return _nothing

    def _restart_next(self, machines: list[Machine], fault: Fault) -> None:
        if self._is_over or not machines:
            return
        machine, *others = machines
        self._mark(fault, machine.name)
        if not machine.is_up or machine.is_stopping:
            if not machine.is_stopping:
                machine.start()
            self._world.call_later(0.1, self._restart_next, [*others], fault)
            return
        machine.stop()
        self._world.call_later(0.1, self._back_in_turn, machine, others, fault)

    def _back_in_turn(self, machine: Machine, others: list[Machine], fault: Fault) -> None:
        if self._is_over:
            return
        self._mark(fault, machine.name)
        if machine.is_stopping:
            self._world.call_later(0.1, self._back_in_turn, machine, others, fault)
            return
        machine.start()
        self._world.call_later(1.0, self._restart_next, others, fault)

    def _split(self, fault: Fault, *_: str) -> Undo:
        """Cut the cluster in two, at a place that the duration decides."""
        names = list(self._cluster.machines)
        self._mark(fault, *names)
        side = [
            name for number, name in enumerate(names) if int(fault.duration * 1000) >> number & 1
        ]
        rest = [name for name in names if name not in side]
        return self._cut_pairs([pair for a in side for b in rest for pair in ((a, b), (b, a))])


def _nothing() -> None:
    pass
