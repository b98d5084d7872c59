"""Formats the data of a local node, as ``odradek storage format`` does."""

from pathlib import Path
from random import SystemRandom

from odradek.broker.clock import SystemClock
from odradek.broker.format_request import FormatRequest, make_plan
from odradek.broker.formatting import format_directories
from odradek.node.serving import load_config
from odradek.storage.disk import OsDisk


def format_node(properties: Path, cluster_id: str, voters: str | None) -> None:
    """Format; ``voters`` are the first ones, None for a node that is not one of them."""
    request = FormatRequest(
        cluster_id=cluster_id,
        initial_controllers=voters,
        no_initial_controllers=voters is None,
    )
    random = SystemRandom()
    plan = make_plan(load_config(properties, ()).config, request, random)
    now_ms = SystemClock().now_ms()
    format_directories(OsDisk(), plan, now_ms=now_ms, random=random, say=lambda _: None)
