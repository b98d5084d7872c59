"""What thousands of partitions, many connections and more nodes cost, one after the other.

``python -m bench scale`` takes a quarter of an hour; its parts can be run by themselves:
``scale_node``, ``scale_failover``, ``scale_two_nodes``. ``metadata_scale`` is the control plane
alone, at a size that this machine could not carry.
"""

from collections.abc import Iterator

from bench import scale_failover, scale_node, scale_two_nodes
from bench.timing import Row


def run() -> Iterator[Row]:
    yield from scale_node.run()
    yield from scale_failover.run()
    yield from scale_two_nodes.run()
