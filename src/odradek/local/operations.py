"""What the supervisor does when it is told to: an operation for each command.

Those that disturb the cluster go on until it has got over it, and pass on what happens meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from odradek.local.commands import Say
from odradek.local.cuts import lost_brokers, parse_cut, shown_cuts
from odradek.local.errors import LocalClusterError
from odradek.local.growth import add_broker, remove_node
from odradek.local.node_process import NodeProcess, NodeState
from odradek.local.snapshots import check_new, copy_back, swap_in, write_snapshot

if TYPE_CHECKING:
    from odradek.local.supervisor import Supervisor

Request = Mapping[str, Any]
Operation = Callable[["Supervisor", Request, Say], Awaitable[Mapping[str, Any] | None]]

SETTLE_SECONDS_MAX: Final = 15
ACK_SECONDS_MAX: Final = 2
IN_SYNC_SECONDS_MAX: Final = 300
POLL_SECONDS: Final = 0.02
FLAPPING_MAX: Final = 100
"""Partitions of a node that are told: the answer is one line."""


async def processes(supervisor: "Supervisor", _: Request, __: Say) -> Mapping[str, Any]:
    """Tell which nodes run, what is cut, and whom to ask about the cluster."""
    askable = [each.address for each in supervisor.askable() if each.address is not None]
    states = {
        str(node.id): {"state": node.state.value, "pid": node.pid} for node in supervisor.nodes
    }
    return {
        "nodes": states,
        "cuts": shown_cuts(supervisor.cuts),
        "flapping": [
            {
                "node": each.broker_id,
                "partitions": each.partitions[:FLAPPING_MAX],
                "times": each.times,
                "span_ms": each.span_ms,
            }
            for each in supervisor.watch.flapping
        ],
        # The first one is the least cut off.
        "bootstrap": askable[0] if askable else supervisor.layout.bootstrap_servers,
    }


async def down(supervisor: "Supervisor", _: Request, __: Say) -> None:
    supervisor.ask_to_stop()


async def kill(supervisor: "Supervisor", request: Request, say: Say) -> None:
    node = supervisor.nodes.find(request["node"])
    # What was created since the last look would not count as changed by the fault.
    await supervisor.watch.look()
    with _told(supervisor, say):
        node.kill()
        await supervisor.nodes.until(lambda: not node.state.has_process, SETTLE_SECONDS_MAX)
        await _settle(supervisor, request)


async def pause(supervisor: "Supervisor", request: Request, say: Say) -> None:
    node = supervisor.nodes.find(request["node"])
    with _told(supervisor, say):
        node.pause()
        supervisor.events.fault(f"node {node.id} paused (SIGSTOP)")
        supervisor.watch.on_down([node.id])
        await _settle(supervisor, request)


async def resume(supervisor: "Supervisor", request: Request, say: Say) -> None:
    node = supervisor.nodes.find(request["node"])
    with _told(supervisor, say):
        node.resume()
        supervisor.events.fault(f"node {node.id} resumed (SIGCONT)")
        _note_back(supervisor, node)
        await _settle(supervisor, request)


async def restart(supervisor: "Supervisor", request: Request, say: Say) -> None:
    """Restart one node, or start it if it does not run; or all of them, one after the other."""
    with _told(supervisor, say):
        if request["rolling"]:
            await _roll(supervisor)
            return
        node = supervisor.nodes.find(request["node"])
        await _restart(supervisor, node)
        await _settle(supervisor, request)


async def cut(supervisor: "Supervisor", request: Request, say: Say) -> None:
    """Let bytes between nodes wait."""
    pairs = parse_cut(request["word"], supervisor.layout)
    with _told(supervisor, say):
        supervisor.set_cuts(supervisor.cuts | pairs)
        supervisor.events.fault(f"cut {request['word']}: {shown_cuts(pairs)}")
        view = supervisor.watch.story.view
        lost = set() if view is None else lost_brokers(pairs, supervisor.layout, view.controller)
        if not lost:
            supervisor.events.note("both still reach the active controller: nobody is fenced")
            return
        supervisor.watch.on_down(lost)
        await _settle(supervisor, request)


async def heal(supervisor: "Supervisor", request: Request, say: Say) -> None:
    """Undo all cuts."""
    if not supervisor.cuts:
        raise LocalClusterError("nothing is cut")
    with _told(supervisor, say):
        apart = {node for pair in supervisor.cuts for node in pair}
        supervisor.set_cuts(set())
        supervisor.events.fault("healed: all nodes reach each other")
        running = {node.id for node in supervisor.nodes if node.state is NodeState.RUNNING}
        brokers = {node.id for node in supervisor.layout.brokers}
        supervisor.watch.on_back(apart & running & brokers)
        await _settle(supervisor, request)


async def add(supervisor: "Supervisor", request: Request, say: Say) -> None:
    with _told(supervisor, say):
        await add_broker(supervisor, request["rack"])
        await _settle(supervisor, request)


async def remove(supervisor: "Supervisor", request: Request, say: Say) -> None:
    node = supervisor.nodes.find(request["node"])
    with _told(supervisor, say):
        await remove_node(supervisor, node)


async def snapshot(supervisor: "Supervisor", request: Request, say: Say) -> None:
    """Pause all nodes, copy their data, and let them go on."""
    name = request["name"]
    check_new(supervisor.folder, name)
    with _told(supervisor, say):
        paused = [node for node in supervisor.nodes if node.state is NodeState.RUNNING]
        begun_ms = supervisor.clock.monotonic_ms()
        for node in paused:
            node.pause()
        try:
            copied = await asyncio.to_thread(
                write_snapshot, supervisor.folder, supervisor.layout, name
            )
        finally:
            for node in paused:
                if node.state is NodeState.PAUSED:
                    node.resume()
        took = (supervisor.clock.monotonic_ms() - begun_ms) / 1_000
        supervisor.events.fault(
            f"snapshot {name}: {copied / 1e6:.1f} MB, the nodes were paused for {took:.2f} s"
        )


async def restore(supervisor: "Supervisor", request: Request, say: Say) -> None:
    """Stop all nodes, put a snapshot back, and start what it has."""
    name = request["name"]
    layout = await asyncio.to_thread(copy_back, supervisor.folder, name)
    with _told(supervisor, say):
        supervisor.events.fault(f"all nodes are to stop, for snapshot {name}")
        await supervisor.stop_all()
        await asyncio.to_thread(swap_in, supervisor.folder, layout)
        await supervisor.replace_nodes(layout)
        supervisor.events.fault(f"snapshot {name} is restored: {len(layout.nodes)} nodes serve")


async def _restart(supervisor: "Supervisor", node: NodeProcess) -> None:
    if node.state.has_process:
        supervisor.events.fault(f"node {node.id} is to stop (SIGTERM)")
        supervisor.watch.on_down([node.id] if node.layout.is_broker else [])
        await supervisor.nodes.stop([node])
    supervisor.nodes.start(node)
    supervisor.events.fault(f"node {node.id} started")
    _note_back(supervisor, node)
    await supervisor.nodes.until_ready([node])


async def _roll(supervisor: "Supervisor") -> None:
    """Restart brokers, then controllers; the active one last: the quorum has one election."""
    down_ids = [str(node.id) for node in supervisor.nodes if node.state is not NodeState.RUNNING]
    if down_ids:
        raise LocalClusterError(f"node {', '.join(down_ids)} does not run: restart it first")
    view = supervisor.watch.story.view or await supervisor.watch.look()
    active = None if view is None else view.controller
    order = sorted(
        supervisor.nodes, key=lambda node: (node.id == active, not node.layout.is_broker, node.id)
    )
    for node in order:
        await _until_in_sync(supervisor, f"node {node.id} is not restarted")
        await _restart(supervisor, node)
    await _until_in_sync(supervisor, "all nodes were restarted")


async def _until_in_sync(supervisor: "Supervisor", otherwise: str) -> None:
    """Wait until no node that is stopped could take a partition below what it needs.

    Raises:
        LocalClusterError: It takes too long.
    """
    deadline_ms = supervisor.clock.monotonic_ms() + IN_SYNC_SECONDS_MAX * 1_000
    while True:
        view = await supervisor.watch.look()
        if view is not None and supervisor.watch.story.is_settled() and not view.lagging:
            return
        if supervisor.clock.monotonic_ms() > deadline_ms:
            what = (
                ", ".join(map(str, view.lagging[:3])) if view is not None else "no broker answers"
            )
            raise LocalClusterError(
                f"{otherwise}: after {IN_SYNC_SECONDS_MAX} s replicas are still missing ({what})"
            )
        await asyncio.sleep(POLL_SECONDS)


def _note_back(supervisor: "Supervisor", node: NodeProcess) -> None:
    if node.layout.is_broker:
        supervisor.watch.on_back([node.id])


@contextmanager
def _told(supervisor: "Supervisor", say: Say) -> Iterator[None]:
    """Pass on the lines of what happens meanwhile."""
    with supervisor.events.passed_on(say):
        yield


async def _settle(supervisor: "Supervisor", request: Request) -> None:
    """Wait until the cluster has got over what was done to it, as long as that is reasonable."""
    if not request["wait"]:
        return
    story = supervisor.watch.story
    if not await _until(story.is_settled, SETTLE_SECONDS_MAX):
        supervisor.events.note(
            f"not over after {SETTLE_SECONDS_MAX} s: `odradek local status` shows how it stands"
        )
        return
    # Somebody writes, or nobody does.
    await _until(lambda: not story.awaited_acks, ACK_SECONDS_MAX)


async def _until(is_over: Callable[[], bool], seconds_max: float) -> bool:
    try:
        async with asyncio.timeout(seconds_max):
            while not is_over():
                await asyncio.sleep(POLL_SECONDS)
    except TimeoutError:
        return False
    return True


OPERATIONS: Final[Mapping[str, Operation]] = {
    "processes": processes,
    "down": down,
    "kill": kill,
    "pause": pause,
    "resume": resume,
    "restart": restart,
    "cut": cut,
    "heal": heal,
    "add": add,
    "remove": remove,
    "snapshot": snapshot,
    "restore": restore,
}
ONE_AT_A_TIME: Final = frozenset({"restart", "add", "remove", "snapshot", "restore"})
"""None of these begins while another is under way. Faults may come at any time."""
