"""What tests need: an embedded broker or cluster, its clock and faults, fixtures, disks that fail.

>>> from odradek.testing import Broker, Cluster
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.testing.broker import Broker as Broker
    from odradek.testing.cluster.cluster import Cluster as Cluster

_HOMES: Final = {
    "Broker": "odradek.testing.broker",
    "Cluster": "odradek.testing.cluster.cluster",
}


def __getattr__(name: str) -> Any:
    # When it is asked for: every pytest run of every user imports this package for its plugin.
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
