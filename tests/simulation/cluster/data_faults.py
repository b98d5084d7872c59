"""The faults of clusters with replicated data.

``@data`` is the machine that leads the first partition of the inputs, ``@coordinator`` the one that
leads the first partition of committed offsets.
"""

from typing import Final

from tests.simulation.cluster.faults import KINDS

DATA_LEADER: Final = "@data"
COORDINATOR: Final = "@coordinator"

DATA_KINDS: Final = KINDS
