"""Why partitions cannot be written or read, or lack replicas: a sentence for those of a kind."""

from collections.abc import Iterable, Mapping, Sequence

from odradek.cli.cluster_facts import MIN_ISR, ClusterStatus, is_lagging
from odradek.cli.findings import (
    Commands,
    Finding,
    State,
    count,
    duration,
    node_names,
    partition_names,
    verb,
)
from odradek.cli.node_findings import Nodes
from odradek.cli.unclean_loss import expected_loss, last_in_sync
from odradek.client.admin.log_dirs import TopicPartitionReplica
from odradek.core.ids import TopicPartition

Group = Sequence[TopicPartition]


class PartitionFindings:
    def __init__(self, status: ClusterStatus, commands: Commands, nodes: Nodes) -> None:
        self._status = status
        self._commands = commands
        self._nodes = nodes

    def findings(self) -> list[Finding]:
        return [
            *self._without_leader(),
            *self._under_min_isr(),
            *self._moving(),
            *self._catching_up(),
            *self._flapping(),
        ]

    # No leader.

    def _without_leader(self) -> list[Finding]:
        groups: dict[tuple[tuple[int, ...], int | None], list[TopicPartition]] = {}
        for key in self._status.leaderless:
            groups.setdefault((self._holders(key), self._find_next(key)), []).append(key)
        return [
            Finding(
                State.NO_LEADER,
                f"{partition_names(group)} {verb(group, 'has', 'have')} no leader:"
                f" {self._who_may_lead(group, holders)}{self._unclean(group, holders, node)}",
                tuple(group),
                holders,
            )
            for (holders, node), group in groups.items()
        ]

    def _holders(self, key: TopicPartition) -> tuple[int, ...]:
        """Return the replicas that are known to have all that is committed."""
        partition = self._status.partitions[key]
        eligible = partition.eligible_leader_replicas or ()
        return tuple(sorted({*partition.isr, *eligible}))

    def _find_next(self, key: TopicPartition) -> int | None:
        """Return which replica an unclean election would choose; None if none of them runs."""
        partition = self._status.partitions[key]
        live = (
            each
            for each in partition.replicas
            if each not in partition.offline_replicas and self._nodes.find_condition(each) is None
        )
        return next(live, None)

    def _who_may_lead(self, group: Group, holders: Sequence[int]) -> str:
        if not holders:
            return self._after_unclean_stops(group)
        known = f"only {node_names(holders)} {verb(holders, 'has', 'have')} all committed records"
        down = [each for each in holders if self._nodes.find_condition(each) is not None]
        if len(down) < len(holders):
            return f"{known}, and {self._is_back(group, holders)}"
        conditions = [each for node in down if (each := self._nodes.find_condition(node))]
        what = " or ".join(f"it {each.what}" for each in conditions[:1])
        if len(conditions) > 1:
            what = "none of them serves"
        return f"{known}, and {what}; {' or '.join(each.step for each in conditions)}"

    def _is_back(self, group: Group, holders: Sequence[int]) -> str:
        offline = {node for key in group for node in self._status.partitions[key].offline_replicas}
        failed = sorted(offline.intersection(holders))
        if not failed:
            return "the controller is about to let it lead; ask again in some seconds"
        asked = f"log-dirs --describe --broker-list {','.join(map(str, failed))}"
        return (
            f"its log directory there is offline; {self._commands.tool(asked)} says why, and the"
            " node must be restarted when the disk is well"
        )

    def _after_unclean_stops(self, group: Group) -> str:
        known = "no replica is known to have all committed records"
        last = sorted(
            {node for key in group for node in last_in_sync(self._status.partitions[key])}
        )
        if not last:
            return f"{known}, and only an unclean election gives it one"
        down = [each for each in last if self._nodes.find_condition(each) is not None]
        if not down:
            stopped = verb(last, "was", "were")
            return (
                f"{known}, because {node_names(last)}, which {stopped} the last in sync, stopped"
                " uncleanly"
            )
        steps = [each.step for node in down if (each := self._nodes.find_condition(node))]
        return f"{known}; {node_names(down)} had, and must come back: {' or '.join(steps)}"

    def _unclean(self, group: Group, holders: Sequence[int], node: int | None) -> str:
        """Return what an unclean election would do, with the command for it."""
        if node is None:
            return "; no other replica runs that could be elected"
        if node in holders:
            return ""
        loss = expected_loss(
            {key: self._ends(key) for key in group},
            {key: last_in_sync(self._status.partitions[key]) for key in group},
            node,
        )
        return f", or {self._election(group)} makes node {node} lead, and {loss}"

    def _election(self, group: Group) -> str:
        if len(group) == 1:
            scope = f"--topic {group[0].topic} --partition {group[0].partition}"
        elif len(group) == len(self._status.leaderless):
            scope = "--all-topic-partitions"
        else:
            scope = "--path-to-json-file FILE"
        return self._commands.tool(f"leader-election --election-type unclean {scope}")

    def _ends(self, key: TopicPartition) -> Mapping[int, int]:
        ends = self._status.log_ends
        return {
            node: end
            for node in self._status.partitions[key].replicas
            if (end := ends.get(TopicPartitionReplica(*key, node))) is not None
        }

    # Too few in sync.

    def _under_min_isr(self) -> list[Finding]:
        groups: dict[tuple[int, int, tuple[int, ...]], list[TopicPartition]] = {}
        leaderless = set(self._status.leaderless)
        for key in self._status.under_min_isr:
            if key not in leaderless:
                partition, needed = self._status.partitions[key], self._status.needed_isr(key)
                missing = tuple(each for each in partition.replicas if each not in partition.isr)
                groups.setdefault((len(partition.isr), needed, missing), []).append(key)
        return [
            Finding(
                State.UNDER_MIN_ISR,
                f"{partition_names(group)} {verb(group, 'refuses', 'refuse')} records with acks=all"
                f" (NOT_ENOUGH_REPLICAS): {count(in_sync, 'replica')}"
                f" {'is' if in_sync == 1 else 'are'} in sync, and {MIN_ISR} is {needed};"
                f" {'; '.join(self._why_missing(group, each) for each in missing)}",
                tuple(group),
                missing,
            )
            for (in_sync, needed, missing), group in groups.items()
        ]

    def _why_missing(self, group: Group, node: int) -> str:
        condition = self._nodes.find_condition(node)
        if condition is not None:
            return f"node {node} {condition.what}: {condition.step}"
        lacks = self._lacks(group, node)
        if lacks is None:
            return f"node {node} runs and is not in sync yet: look at {self._commands.log(node)}"
        if not lacks:
            return f"node {node} has all records: wait a moment until it is in sync"
        return f"node {node} catches up and lacks {count(lacks, 'record')}: wait for it"

    def _lacks(self, group: Iterable[TopicPartition], node: int) -> int | None:
        """Return how many records a replica lacks; None where that is not known."""
        lacks = 0
        for key in group:
            ends = self._ends(key)
            leader = self._status.partitions[key].leader
            if leader not in ends or node not in ends:
                return None
            lacks += max(ends[leader] - ends[node], 0)
        return lacks

    # On the way.

    def _moving(self) -> list[Finding]:
        return [
            Finding(State.MOVING, reason, (key,))
            for key, reasons in sorted(self._status.move_reasons.items())
            for reason in reasons
        ]

    def _catching_up(self) -> list[Finding]:
        """Return nodes that run and have replicas that are not in sync, where nothing else is said.

        A replica that a move adds is said to be on its way by the move.
        """
        partitions = self._status.partitions
        told = {*self._status.leaderless, *self._status.under_min_isr, *self._status.moves}
        late: dict[int, list[TopicPartition]] = {}
        for key, each in sorted(partitions.items()):
            if key not in told and is_lagging(each):
                for node in sorted(set(each.replicas) - set(each.isr)):
                    late.setdefault(node, []).append(key)
        return [
            Finding(
                State.CATCHING_UP,
                f"{partition_names(group)} {verb(group, 'has', 'have')} a replica that is not in"
                f" sync: {self._why_missing(group, node)}",
                tuple(group),
                (node,),
            )
            for node, group in sorted(late.items())
            if self._nodes.find_condition(node) is None
        ]

    def _flapping(self) -> list[Finding]:
        return [
            Finding(
                State.FLAPPING,
                f"node {each.broker_id} left the ISR of {partition_names(each.partitions)}"
                f" {each.times} times in {duration(each.span_ms)} and rejoined: it is too slow, or"
                " stands still now and then; look at"
                f" {self._commands.log(each.broker_id)} for `the event loop stalled` and `peer"
                " lost`, and raise replica.lag.time.max.ms of the leaders only if it is neither",
                each.partitions,
                (each.broker_id,),
            )
            for each in self._status.flapping
        ]
