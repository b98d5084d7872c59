"""Which node's bytes to which other node wait: from the words of ``local cut`` to orders for each
node. Pure.

``2`` cuts node 2 off from all others, ``1:2`` cuts both directions between two nodes, ``1>2`` only
what goes from the first to the second.
"""

import re
from collections.abc import Collection
from typing import Final

from odradek.local.errors import LocalClusterError
from odradek.local.gate import BOTH, RECEIVE, SEND
from odradek.local.layout import Layout

_WORD: Final = re.compile(r"(\d{1,9})(?:([:>])(\d{1,9}))?")

Pair = tuple[int, int]
"""From a node to another."""


def parse_cut(word: str, layout: Layout) -> set[Pair]:
    """Return what a word cuts.

    Raises:
        LocalClusterError: It is no such word, or names nodes that there are not.
    """
    match = _WORD.fullmatch(word)
    if match is None:
        raise LocalClusterError(f"{word!r}: give N, N:M, or 'N>M' for one direction")
    source = layout.find(int(match[1])).id
    others = {node.id for node in layout.nodes} - {source}
    if match[3] is not None:
        others = {layout.find(int(match[3])).id}
    if not others or source in others:
        raise LocalClusterError(f"{word!r}: there must be two nodes")
    cut = {(source, other) for other in others}
    return cut if match[2] == ">" else cut | {(other, source) for source, other in cut}


def held_ports(cuts: Collection[Pair], layout: Layout, node_id: int) -> dict[int, str]:
    """Return what a node is to hold back, on the connections that it opens."""
    held = {}
    for other in layout.nodes:
        sends, receives = (node_id, other.id) in cuts, (other.id, node_id) in cuts
        if not (sends or receives):
            continue
        directions = BOTH if sends and receives else SEND if sends else RECEIVE
        held.update(dict.fromkeys(other.ports, directions))
    return held


def lost_brokers(cuts: Collection[Pair], layout: Layout, controller: int) -> set[int]:
    """Return the brokers that the cluster will do without, as far as can be known beforehand.

    Those that cannot talk with the active controller; if that is cut off itself from most of the
    others, another will be active, and it is the one that is lost.
    """
    voters = {node.id for node in layout.nodes if node.is_voter}
    apart = {source for source, target in cuts if target == controller}
    apart |= {target for source, target in cuts if source == controller}
    if 2 * len(voters - apart - {controller}) + 2 <= len(voters):
        apart = {controller}
    return apart & {node.id for node in layout.brokers}


def shown_cuts(cuts: Collection[Pair]) -> str:
    """Return the cuts for people: ``1 and 2, 1 to 3``."""
    texts = []
    for source, target in sorted(cuts):
        if (target, source) not in cuts:
            texts.append(f"{source} to {target}")
        elif source < target:
            texts.append(f"{source} and {target}")
    return ", ".join(texts)
