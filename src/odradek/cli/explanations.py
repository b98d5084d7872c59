"""What is wrong with a cluster and what to do about it: a sentence for each thing. Pure.

The states are those that users of Kafka report most. Each sentence names the cause first and then
the next step, as a command where there is one. What is wrong with the quorum comes first, since it
keeps the rest from getting well, then what clients cannot do, then nodes.
"""

from collections.abc import Sequence

from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.cli.findings import Commands, Finding
from odradek.cli.node_findings import Nodes
from odradek.cli.partition_findings import PartitionFindings
from odradek.cli.quorum_findings import quorum_findings


def explain(
    status: ClusterStatus,
    processes: Sequence[LocalProcess] = (),
    commands: Commands | None = None,
    *,
    has_cuts: bool = False,
) -> list[Finding]:
    """Return what is wrong; ``processes`` and ``has_cuts`` are what a supervisor knows."""
    commands = commands or Commands()
    nodes = Nodes(status, processes, commands, has_cuts=has_cuts)
    return [
        *quorum_findings(status, processes, commands, nodes),
        *PartitionFindings(status, commands, nodes).findings(),
        *nodes.findings(),
    ]
