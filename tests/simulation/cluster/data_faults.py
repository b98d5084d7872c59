"""The faults of clusters with replicated data.

``@data`` is the machine that leads the first partition of the inputs, ``@coordinator`` the one that
leads the first partition of committed offsets.
"""

from typing import Final

from tests.simulation.cluster.faults import KINDS

DATA_LEADER: Final = "@data"
COORDINATOR: Final = "@coordinator"

DATA_KINDS: Final = {name: each for name, each in KINDS.items() if name != "power-all"}
FLUSHED_KINDS: Final = KINDS
"""Where all is flushed, all machines may lose their power at once."""
