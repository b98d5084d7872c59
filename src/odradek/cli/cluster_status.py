"""What ``odradek local status`` prints of a cluster: tables, counts and findings; or JSON."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from odradek.cli.cluster_facts import MIN_ISR, ClusterStatus, LocalProcess, is_lagging
from odradek.cli.findings import Finding, count, partition_names
from odradek.cli.tables import MISSING, aligned, camel_case, json_partition
from odradek.client.admin.brokers import BrokerDescription, QuorumInfo

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_UNIT: Final = 1024


def status_lines(
    status: ClusterStatus, findings: Sequence[Finding], processes: Sequence[LocalProcess] = ()
) -> list[str]:
    """Return all of it: the quorum, a row for each node, partitions, and what is wrong."""
    return [
        *_quorum_lines(status),
        "",
        *aligned(_node_rows(status, processes)),
        "",
        *_partition_lines(status),
        *_move_lines(status),
        *([""] if findings else []),
        *(each.sentence for each in findings),
    ]


def process_lines(processes: Iterable[LocalProcess]) -> list[str]:
    """Return what is known of nodes while no broker answers."""
    rows: list[tuple[object, ...]] = [("node", "roles", "state", "pid", "listener", "rack")]
    rows += [
        (each.id, each.roles, each.state, each.pid, each.listener, each.rack) for each in processes
    ]
    return aligned(rows)


def _quorum_lines(status: ClusterStatus) -> list[str]:
    quorum = status.quorum
    if quorum is None:
        return [f"cluster {status.cluster_id}, its quorum does not answer"]
    voters = ", ".join(str(each.replica_id) for each in quorum.voters)
    return [
        f"cluster {status.cluster_id}, active controller {quorum.leader_id}"
        f" (epoch {quorum.leader_epoch}, voters {voters}, metadata offset {quorum.high_watermark})"
    ]


def _node_rows(
    status: ClusterStatus, processes: Sequence[LocalProcess]
) -> list[tuple[object, ...]]:
    known = {each.id: each for each in processes}
    brokers = {each.node_id: each for each in status.brokers}
    quorum = status.quorum
    voters = {each.replica_id for each in quorum.voters} if quorum else set()
    lags = _metadata_lags(quorum)
    leads = Counter(each.leader for each in status.partitions.values())
    has = Counter(node for each in status.partitions.values() for node in each.replicas)
    late = Counter(
        node for each in status.partitions.values() for node in set(each.replicas) - set(each.isr)
    )
    pid = ["pid"] if known else []
    header = ["node", "roles", "state", "listener", "rack", *pid, "leads", "replicas"]
    rows: list[tuple[object, ...]] = [(*header, "not in sync", "metadata lag", "disk")]
    for node_id in sorted({*known, *brokers, *voters}):
        process, broker = known.get(node_id), brokers.get(node_id)
        roles = process.roles if process else _roles(node_id in brokers, node_id in voters)
        listener = process.listener if process else MISSING
        rack = process.rack if process else None
        if broker is not None and process is None:
            listener, rack = f"{broker.host}:{broker.port}", broker.rack
        row: list[object] = [node_id, roles, _state(process, broker), listener, rack]
        if known:
            row.append(process.pid if process else None)
        counts = (leads[node_id], has[node_id], late[node_id]) if broker else (None, None, None)
        disk = status.disk_bytes.get(node_id)
        rows.append((*row, *counts, lags.get(node_id), None if disk is None else shown_bytes(disk)))
    return rows


def _roles(is_broker: bool, is_controller: bool) -> str:
    words = (("broker", is_broker), ("controller", is_controller))
    return ",".join(word for word, is_one in words if is_one)


def _state(process: LocalProcess | None, broker: BrokerDescription | None) -> str:
    state = process.state if process is not None else None
    if state is not None and state != "running":
        return state
    if broker is not None and broker.is_fenced:
        return "fenced" if state is None else f"{state}, fenced"
    return state or "up"


def _metadata_lags(quorum: QuorumInfo | None) -> dict[int, int]:
    if quorum is None:
        return {}
    replicas = (*quorum.voters, *quorum.observers)
    end = max((each.log_end_offset for each in replicas), default=0)
    return {each.replica_id: end - each.log_end_offset for each in replicas}


def _partition_lines(status: ClusterStatus) -> list[str]:
    found = list(status.partitions.values())
    if not found:
        return ["no topics yet"]
    topics = len({key.topic for key in status.partitions})
    offline = status.leaderless
    lagging = [each for each in found if is_lagging(each)]
    short = status.under_min_isr
    line = f"{count(len(found), 'partition')} of {count(topics, 'topic')}"
    if not offline and not lagging:
        return [f"{line}: all replicas in sync"]
    return [
        f"{line}: {len(lagging)} under-replicated, {len(short)} under {MIN_ISR},"
        f" {len(offline)} without a leader"
    ]


def _move_lines(status: ClusterStatus) -> list[str]:
    if not status.moves:
        return []
    return [f"{count(len(status.moves), 'partition')} moving: {partition_names(status.moves)}"]


def status_json(
    status: ClusterStatus, findings: Sequence[Finding], processes: Sequence[LocalProcess] = ()
) -> dict[str, object]:
    """Return the same for programs; a node has the columns of the table."""
    quorum = status.quorum
    return {
        "clusterId": status.cluster_id,
        "controllerId": None if quorum is None else quorum.leader_id,
        "nodes": _json_nodes(status, processes),
        "partitions": len(status.partitions),
        "withoutLeader": [json_partition(each) for each in status.leaderless],
        "underMinIsr": [json_partition(each) for each in status.under_min_isr],
        "findings": [
            {
                "state": each.state,
                "sentence": each.sentence,
                "partitions": [json_partition(key) for key in each.partitions],
                "nodes": each.nodes,
            }
            for each in findings
        ],
    }


def _json_nodes(
    status: ClusterStatus, processes: Sequence[LocalProcess]
) -> list[dict[str, object]]:
    header, *rows = _node_rows(status, processes)
    names = [camel_case(str(column).replace(" ", "_")) for column in header]
    nodes = []
    for row in rows:
        cells = [None if cell == MISSING else cell for cell in row]
        node = dict(zip(names, cells, strict=True))
        del node["disk"]
        nodes.append({**node, "diskBytes": status.disk_bytes.get(int(str(row[0])))})
    return nodes


def shown_bytes(count: float) -> str:
    for unit in _UNITS:
        if count < _UNIT or unit == _UNITS[-1]:
            break
        count /= _UNIT
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
