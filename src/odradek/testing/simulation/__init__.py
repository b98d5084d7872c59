"""A world on virtual time in which our asyncio code runs as it is, and one seed decides everything.

``world``      the heap of events, nodes that crash, pause and start again
``loop``       an asyncio event loop per node
``network``    links between nodes and their faults; listening and connecting
``transport``  one end of a connection
``clocks``     a clock per node, with a wall that drifts and jumps
``trace``      what happened, and a hash of it

On top of it, for users: ``simulate`` runs a program of theirs against a cluster and its faults.

``stories``         a story for many seeds, its failure with the faults that matter
``program``         programs that crash and are started again, and the clients that they use
``machine``         a broker: the product's node on a simulated disk
``schedule``        faults as lines: drawn, read, shrunk
``faults_at_work``  … carried out and undone
``exactly_once``    the story of ``odradek simulate``

Rules. One thread, no sockets, no real time. The same seed gives the same trace in every process:
each purpose draws from a random stream of its own, so that one fault more does not reshuffle the
others. Code that walks a set of objects breaks that (sets go by addresses in memory); tasks and
futures of these loops have hashes that are counted, so sets of those are fine.
"""

from typing import TYPE_CHECKING, Any, Final

from odradek.testing.simulation.world import SimNode, SimulationError, World

if TYPE_CHECKING:
    from odradek.testing.simulation.program import Process as Process
    from odradek.testing.simulation.stories import Simulation as Simulation
    from odradek.testing.simulation.stories import SimulationFailedError as SimulationFailedError
    from odradek.testing.simulation.stories import simulate as simulate

__all__ = ["SimNode", "SimulationError", "World"]

_HOMES: Final = {
    "Process": "program",
    "Simulation": "stories",
    "SimulationFailedError": "stories",
    "simulate": "stories",
}


def __getattr__(name: str) -> Any:
    # When it is asked for: a world alone needs no brokers and no clients.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return found
