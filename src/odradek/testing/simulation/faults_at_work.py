"""Carries out the faults of a schedule, and undoes them."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from odradek.testing.simulation.machine import BrokerMachine
from odradek.testing.simulation.program import Program
from odradek.testing.simulation.schedule import Fault
from odradek.testing.simulation.world import World

_SLOW_SECONDS: Final = 0.2

Undo = Callable[[], None]


class FaultsAtWork:
    def __init__(
        self,
        world: World,
        machines: Mapping[str, BrokerMachine],
        programs: Mapping[str, Program],
        say: Callable[[str], None],
    ) -> None:
        self._world = world
        self._machines = machines
        self._programs = programs
        self._say = say
        self._is_over = False

    def begin(self, faults: Iterable[Fault]) -> None:
        """Let them come, counted from now."""
        for fault in faults:
            self._world.call_later(fault.at, self._strike, fault)

    def end(self) -> None:
        """Undo all there is, and let nothing more come."""
        self._is_over = True
        network = self._world.network
        network.heal_all()
        for one in self._world.nodes:
            for other in self._world.nodes:
                network.link(one, other).extra_latency_seconds = 0.0
        for machine in self._machines.values():
            machine.resume()
            machine.start()
        for program in self._programs.values():
            program.resume()
            program.start()

    def _strike(self, fault: Fault) -> None:
        if self._is_over:
            return
        known = self._world.nodes
        if fault.who not in known or fault.whom not in (*known, "-"):
            return  # a program that is not there, or not yet
        self._say(f"fault: {fault}")
        undo = self._carry_out(fault)
        self._world.call_later(fault.duration, self._undo, undo)

    def _undo(self, undo: Undo) -> None:
        if not self._is_over:
            undo()

    def _carry_out(self, fault: Fault) -> Undo:
        match fault.kind:
            case "crash":
                self._programs[fault.who].crash()
                return self._programs[fault.who].start
            case "stall":
                self._programs[fault.who].pause()
                return self._programs[fault.who].resume
            case "isolate":
                others = [name for name in self._machines if name != fault.who]
                return self._cut([(fault.who, other) for other in others])
            case "cut":
                return self._cut([(fault.who, fault.whom)])
            case "lose-answers":
                return self._lose_answers(fault)
            case "slow":
                return self._slow(fault)
        machine = self._machines[fault.who]
        match fault.kind:
            case "kill":
                machine.kill()
                return machine.start
            case "pause":
                machine.pause()
                return machine.resume
        machine.stop(then=lambda: self._world.call_later(fault.duration, machine.start))
        return lambda: None

    def _cut(self, pairs: Iterable[tuple[str, str]]) -> Undo:
        cut = list(pairs)
        for pair in cut:
            self._world.network.cut(*pair)

        def undo() -> None:
            for pair in cut:
                self._world.network.heal(*pair)

        return undo

    def _lose_answers(self, fault: Fault) -> Undo:
        """Let requests arrive and be carried out, and break connections before the answers."""
        network = self._world.network
        network.cut(fault.who, fault.whom, both_ways=False)

        def undo() -> None:
            network.reset(fault.who, fault.whom)
            network.heal(fault.who, fault.whom, both_ways=False)

        return undo

    def _slow(self, fault: Fault) -> Undo:
        link = self._world.network.link(fault.who, fault.whom)
        link.extra_latency_seconds = _SLOW_SECONDS

        def undo() -> None:
            link.extra_latency_seconds = 0.0

        return undo
