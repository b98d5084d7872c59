"""What is wrong with the metadata quorum: no majority, a voter that is away, a node that lags."""

from collections.abc import Sequence
from typing import Final

from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.cli.findings import Commands, Finding, State, count, duration, node_names, verb
from odradek.cli.node_findings import RECENT_MS, Nodes
from odradek.client.admin.brokers import QuorumInfo, QuorumReplica

LAG_RECORDS_MIN: Final = 100
"""What a busy cluster writes in a moment is no lag."""
_CONTROLLER: Final = "controller"
_STANDS_STILL: Final = "until then no topic, leader or ISR changes"


def quorum_findings(
    status: ClusterStatus, processes: Sequence[LocalProcess], commands: Commands, nodes: Nodes
) -> list[Finding]:
    quorum = status.quorum
    if quorum is None:
        return [_no_answer(processes, commands, nodes)]
    lost = [each.replica_id for each in quorum.voters if not _fetches(each, quorum, nodes)]
    return [
        *([_lost_voters(lost, quorum, nodes)] if lost else []),
        *_lagging(quorum, commands, nodes),
    ]


def _no_answer(processes: Sequence[LocalProcess], commands: Commands, nodes: Nodes) -> Finding:
    voters = [each for each in processes if _CONTROLLER in each.roles.split(",")]
    absent = [each.id for each in voters if each.state != "running"]
    running, needed = len(voters) - len(absent), len(voters) // 2 + 1
    if not voters:
        sentence = (
            "the metadata quorum does not answer: start controllers until a majority of the voters"
            f" runs; {_STANDS_STILL}"
        )
    elif running < needed:
        sentence = (
            f"the metadata quorum has no majority ({running} of {count(len(voters), 'controller')}"
            f" {'runs' if running == 1 else 'run'}, {needed} must): {_step(absent[0], nodes)};"
            f" {_STANDS_STILL}"
        )
    else:
        sentence = (
            "the metadata quorum does not answer although a majority of its controllers runs (it"
            " elects a leader, or they do not reach each other): ask again in some seconds, or look"
            f" at {commands.log(voters[0].id)} of node {voters[0].id}"
        )
    return Finding(State.NO_QUORUM, sentence, (), tuple(absent))


def _step(node: int, nodes: Nodes) -> str:
    condition = nodes.find_condition(node)
    return f"start node {node}" if condition is None else condition.step


def _lost_voters(lost: Sequence[int], quorum: QuorumInfo, nodes: Nodes) -> Finding:
    voters, needed = len(quorum.voters), len(quorum.voters) // 2 + 1
    left = voters - len(lost)
    are_left = f"{left} of {voters} voters {'is' if left == 1 else 'are'} left"
    risk = ""
    if left == needed:
        risk = ", so one more loss stops all changes of the metadata"
    elif left < needed:
        risk = ", so no topic, leader or ISR changes"
    fetches = verb(lost, "does not fetch metadata", "do not fetch metadata")
    sentence = (
        f"{node_names(lost)} {fetches}, {are_left} and {needed} are needed{risk}:"
        f" {'; '.join(_step(each, nodes) for each in lost)}"
    )
    return Finding(State.VOTER_LOST, sentence, (), tuple(lost))


def _fetches(replica: QuorumReplica, quorum: QuorumInfo, nodes: Nodes) -> bool:
    if nodes.now_ms is None or replica.replica_id == quorum.leader_id:
        return True  # times are not told before DescribeQuorum v1
    silent_ms = nodes.silent_ms(replica.replica_id)
    return silent_ms is not None and silent_ms < RECENT_MS


def _lagging(quorum: QuorumInfo, commands: Commands, nodes: Nodes) -> list[Finding]:
    """Return those that fetch and are behind: what they tell clients, and decide, is old."""
    replicas = (*quorum.voters, *quorum.observers)
    end = max((each.log_end_offset for each in replicas), default=0)
    found = []
    for each in replicas:
        node, behind = each.replica_id, end - each.log_end_offset
        late_ms = (nodes.now_ms or 0) - each.last_caught_up_timestamp
        is_late = behind >= LAG_RECORDS_MIN and late_ms >= RECENT_MS
        if nodes.now_ms is None or not is_late or not _fetches(each, quorum, nodes):
            continue
        since = (
            f"up to date {duration(late_ms)} ago"
            if each.last_caught_up_timestamp >= 0
            else ("it is catching up since its start")
        )
        sentence = (
            f"node {node} is {count(behind, 'metadata record')} behind ({since}), so it serves by"
            f" an old view: look at {commands.log(node)} for stalls or a slow disk, or restart it"
        )
        found.append(Finding(State.METADATA_LAG, sentence, (), (node,)))
    return found
