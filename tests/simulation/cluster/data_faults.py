"""The faults of clusters with replicated data.

``@data`` is the machine that leads the first partition of the inputs, ``@coordinator`` the one that
leads the first partition of committed offsets.
"""

from typing import Final

from tests.simulation.cluster.faults import KINDS

DATA_LEADER: Final = "@data"
COORDINATOR: Final = "@coordinator"

_LEFT_OUT: Final = ("broken-disk", "full-disk", "overload", "power-all")
DATA_KINDS: Final = {name: each for name, each in KINDS.items() if name not in _LEFT_OUT}
