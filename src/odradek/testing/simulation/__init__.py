"""A world on virtual time in which our asyncio code runs as it is, and one seed decides everything.

``world``      the heap of events, nodes that crash, pause and start again
``loop``       an asyncio event loop per node
``network``    links between nodes and their faults; listening and connecting
``transport``  one end of a connection
``clocks``     a clock per node, with a wall that drifts and jumps
``trace``      what happened, and a hash of it

Rules. One thread, no sockets, no real time. The same seed gives the same trace in every process:
each purpose draws from a random stream of its own, so that one fault more does not reshuffle the
others. Code that walks a set of objects breaks that (sets go by addresses in memory); tasks and
futures of these loops have hashes that are counted, so sets of those are fine.
"""

from odradek.testing.simulation.world import SimNode, SimulationError, World

__all__ = ["SimNode", "SimulationError", "World"]
