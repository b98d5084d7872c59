"""Brokers that join a local cluster, and nodes that leave it for good."""

import asyncio
import shutil
from typing import TYPE_CHECKING, Final

from odradek.core.ids import Uuid
from odradek.local.draining import plan_drain
from odradek.local.errors import LocalClusterError
from odradek.local.layout import NodeLayout
from odradek.local.ports import check_ports

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.local.node_process import NodeProcess
    from odradek.local.supervisor import Supervisor

DRAIN_SECONDS_MAX: Final = 600
LOOK_SECONDS: Final = 0.1


async def add_broker(supervisor: "Supervisor", rack: str | None) -> None:
    """Start a broker that the cluster has not had, and wait until it serves.

    Raises:
        LocalClusterError: It cannot be.
    """
    layout = supervisor.layout.with_broker(rack)
    added = layout.nodes[-1]
    check_ports([added])
    await asyncio.to_thread(supervisor.folder.create_node, layout, added)
    supervisor.folder.write_layout(layout)
    supervisor.layout = layout
    node = supervisor.nodes.add(added)
    supervisor.nodes.start(node)
    supervisor.events.fault(f"node {node.id} added, on {added.address}")
    supervisor.watch.on_back([node.id])
    await supervisor.nodes.until_ready([node])
    supervisor.events.note(
        "it has no partitions yet: new topics use it, `odradek reassign-partitions` moves others"
    )


async def remove_node(supervisor: "Supervisor", node: "NodeProcess") -> None:
    """Move all replicas away from a node, stop it, and have the cluster and the folder forget it.

    Raises:
        LocalClusterError: It cannot be spared. Nothing was changed, or only moves were begun.
    """
    # Not at the top: the supervisor of a cluster that nobody changes needs no admin client.
    from odradek.client.admin.admin import Admin

    layout = node.layout
    left = supervisor.layout.without(node.id)
    if not left.controllers or not left.brokers:
        kind = "controller" if not left.controllers else "broker"
        raise LocalClusterError(f"node {node.id} is the only {kind}")
    servers = [each.address or "" for each in supervisor.askable() if each.id != node.id]
    if not servers:
        raise LocalClusterError("no other broker runs")
    async with Admin(bootstrap_servers=",".join(servers)) as admin:
        if layout.is_broker:
            await _drain(supervisor, layout, admin)
        if layout.directory_id is not None:
            directory_id = Uuid.from_text(layout.directory_id)
            await admin.remove_raft_voter(node.id, directory_id)
            supervisor.events.note(f"node {node.id} has no vote in the quorum any more")
        if node.state.has_process:
            supervisor.events.fault(f"node {node.id} is to stop (SIGTERM)")
            supervisor.watch.on_down([node.id] if layout.is_broker else [])
            await supervisor.nodes.stop([node])
        if layout.is_broker:
            await admin.unregister_broker(node.id)
    supervisor.nodes.forget(node.id)
    supervisor.layout = left
    supervisor.folder.write_layout(left)
    supervisor.write_run()
    await asyncio.to_thread(shutil.rmtree, supervisor.folder.node_folder(node.id))
    supervisor.events.fault(f"node {node.id} removed, and its folder")


async def _drain(supervisor: "Supervisor", leaving: NodeLayout, admin: "Admin") -> None:
    """Move partitions until none is left, also those of topics that are created meanwhile."""
    deadline_ms = supervisor.clock.monotonic_ms() + DRAIN_SECONDS_MAX * 1_000
    begun: set[object] = set()
    while True:
        view = await supervisor.watch.look()
        if view is not None:
            there = {k: v for k, v in view.partitions.items() if leaving.id in v.replicas}
            if not there:
                return
            racks = {
                each.layout.id: each.layout.rack
                for each in supervisor.nodes
                if each.id in view.unfenced and each.id != leaving.id
            }
            new = {k: v for k, v in view.partitions.items() if k not in begun or k not in there}
            moves = plan_drain(new, leaving.id, racks)
            if moves:
                supervisor.events.fault(f"{len(moves)} partitions move from node {leaving.id}")
                supervisor.watch.on_down([])
                (await admin.alter_partition_reassignments(moves)).unwrap()
                begun |= moves.keys()
        if supervisor.clock.monotonic_ms() > deadline_ms:
            raise LocalClusterError(
                f"node {leaving.id} stays: its partitions were not moved within"
                f" {DRAIN_SECONDS_MAX} s; `odradek reassign-partitions --list` says what they wait"
                " for"
            )
        await asyncio.sleep(LOOK_SECONDS)
