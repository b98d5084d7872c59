"""What keeps a node from serving, as far as others can tell.

The supervisor of a local cluster knows what became of a process. Of any other broker there is what
the controller thinks of it (fenced or not), whether its address answers, and when it last fetched
metadata. The three together tell a process that ended from one that stands still, and from one that
runs and does not reach the controller.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from odradek.cli.broker_reach import Reach
from odradek.cli.cluster_facts import ClusterStatus, LocalProcess
from odradek.cli.findings import Commands, Finding, State, duration
from odradek.client.admin.brokers import BrokerDescription, QuorumReplica

RECENT_MS: Final = 5_000
"""Replicas fetch metadata at least every 500 ms."""
_DOWN: Final[Mapping[str, str]] = {"died": "it died", "stopped": "it was stopped"}

_UNTIL_THEN: Final = (
    "while the old session lasts (broker.session.timeout.ms) the new process is refused with"
    " DUPLICATE_BROKER_REGISTRATION, and tries again by itself"
)


class Condition(NamedTuple):
    """Why a node does not serve."""

    state: State
    what: str
    """After the name of the node: ``does not run``."""
    detail: str
    step: str


class Nodes:
    def __init__(
        self,
        status: ClusterStatus,
        processes: Sequence[LocalProcess],
        commands: Commands,
        *,
        has_cuts: bool = False,
    ) -> None:
        self._status = status
        self._processes = {each.id: each for each in processes}
        self._brokers = {each.node_id: each for each in status.brokers}
        self._commands = commands
        self._has_cuts = has_cuts

    def findings(self) -> list[Finding]:
        found = []
        for node in sorted({*self._processes, *self._brokers}):
            condition = self.find_condition(node)
            if condition is not None:
                state, what, detail, step = condition
                why = f" ({detail})" if detail else ""
                found.append(Finding(state, f"node {node} {what}{why}: {step}", (), (node,)))
        return found

    def find_condition(self, node: int) -> Condition | None:
        """Return why a node does not serve; None if it does, as far as is known."""
        process = self._processes.get(node)
        state = process.state if process is not None else ""
        if state in _DOWN:
            return self._down(node, _DOWN[state])
        if state == "paused":
            resume = self._commands.local(f"resume {node}")
            detail = "SIGSTOP: connections stay open, and nothing answers"
            return Condition(State.NODE_PAUSED, "is paused", detail, f"{resume} lets it go on")
        broker = self._brokers.get(node)
        if state == "starting":
            return self._starting(node, broker)
        if broker is None:
            return None if process is not None else self._down(node, "no live broker has this id")
        if broker.is_fenced:
            return self._fenced(broker)
        return self._unfenced(broker)

    def _starting(self, node: int, broker: BrokerDescription | None) -> Condition:
        step = f"wait; {self._commands.log(node)} says what for"
        if broker is None or broker.is_fenced:
            return Condition(State.NODE_FENCED, "starts", "", step)
        detail = f"the session of its earlier process is not over: {_UNTIL_THEN}"
        return Condition(State.OLD_SESSION, "starts", detail, step)

    def _down(self, node: int, why: str) -> Condition:
        detail = "; ".join([why, *self._last_heard(node)])
        return Condition(State.NODE_DOWN, "does not run", detail, self._commands.start(node))

    def _fenced(self, broker: BrokerDescription) -> Condition:
        node, address = broker.node_id, f"{broker.host}:{broker.port}"
        reach = self._status.reach.get(node)
        if reach is Reach.REFUSED:
            return self._down(node, f"fenced; {address} refuses connections")
        log = self._commands.log(node)
        if reach is Reach.SILENT:
            detail = [f"no answer at {address}", "the process is paused or stalled, or its host is"]
            return Condition(
                State.NODE_SILENT,
                "is fenced and stands still",
                "; ".join([*detail, *self._last_heard(node)]),
                f"let it go on (`kill -CONT` and its pid), or look at {log} and restart it",
            )
        if self._fetches(node):
            detail = ["it fetches metadata: it starts, or is about to stop"]
            step = f"wait; {log} says what it does"
        else:
            detail = ["it runs; the controller has no heartbeat of it", *self._last_heard(node)]
            step = self._reconnect(node)
        return Condition(State.NODE_FENCED, "is fenced", "; ".join(detail), step)

    def _reconnect(self, node: int) -> str:
        heal = self._commands.local("heal")
        if heal is not None and self._has_cuts:
            return f"{heal} undoes the cut"
        quorum = self._status.quorum
        leader = "the active controller" if quorum is None else f"controller {quorum.leader_id}"
        log = self._commands.log(node)
        return f"check the network from it to {leader}; {log} names the address (`peer lost`)"

    def _unfenced(self, broker: BrokerDescription) -> Condition | None:
        node, address = broker.node_id, f"{broker.host}:{broker.port}"
        reach = self._status.reach.get(node)
        if reach is Reach.REFUSED:
            return Condition(
                State.OLD_SESSION,
                "is not fenced and refuses connections",
                f"its process ended, or {address} is not its address",
                f"{self._commands.start(node)}; {_UNTIL_THEN}",
            )
        if reach is Reach.SILENT:
            return Condition(
                State.NODE_SILENT,
                "does not answer",
                f"nothing comes back from {address}; it is fenced when its session is over",
                f"look at {self._commands.log(node)} for `the event loop stalled`, or restart it",
            )
        return None

    # By the quorum.

    def _last_heard(self, node: int) -> list[str]:
        ms = self.silent_ms(node)
        return [] if ms is None else [f"it last fetched metadata {duration(ms)} ago"]

    def _fetches(self, node: int) -> bool:
        ms = self.silent_ms(node)
        return ms is not None and ms < RECENT_MS

    def silent_ms(self, node: int) -> int | None:
        """Return how long ago a node last fetched metadata; None if that is not known."""
        replica, now_ms = self._replica(node), self.now_ms
        if replica is None or now_ms is None or replica.last_fetch_timestamp < 0:
            return None
        return max(now_ms - replica.last_fetch_timestamp, 0)

    def _replica(self, node: int) -> QuorumReplica | None:
        quorum = self._status.quorum
        if quorum is None:
            return None
        found = (each for each in (*quorum.voters, *quorum.observers) if each.replica_id == node)
        return next(found, None)

    @property
    def now_ms(self) -> int | None:
        """The time of the quorum's leader, which is up to date by its own account."""
        quorum = self._status.quorum
        leader = None if quorum is None else self._replica(quorum.leader_id)
        if leader is None or leader.last_fetch_timestamp < 0:
            return None
        return leader.last_fetch_timestamp
