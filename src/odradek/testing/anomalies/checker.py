"""The one question that the other modules answer together: what is wrong with this history?"""

from collections.abc import Sequence, Set

from odradek.core.ids import TopicPartition
from odradek.testing.anomalies.anomaly import ALLOWED, Kind, Report
from odradek.testing.anomalies.cycles import check_cycles
from odradek.testing.anomalies.facts import Facts
from odradek.testing.anomalies.group_offsets import check_offsets, check_processing
from odradek.testing.anomalies.history import Assignment, Event
from odradek.testing.anomalies.ordering import check_polls, check_send_times, check_sends
from odradek.testing.anomalies.visibility import check_losses, check_places, check_reads


def check(
    history: Sequence[Event],
    *,
    drained: Set[TopicPartition] = frozenset(),
    allowed: Set[Kind] = ALLOWED,
) -> Report:
    """Find every anomaly in a history; near-linear in its length.

    ``drained`` names the partitions that were read to their end, from their start and with
    read_committed, after everything else: only there a value that nobody read is unseen. What
    rebalances do to the positions of a subscriber is allowed by itself.

    Raises:
        ValueError: This is no history: values are not unique, operations have impossible shapes.
    """
    facts = Facts(history)
    report = Report(
        operations=len(facts.operations),
        records_sent=len(facts.written),
        records_read=sum(map(len, facts.reads.values())),
        allowed=frozenset(allowed),
        subscribers=frozenset(
            each.process
            for each in history
            if isinstance(each, Assignment) and each.is_subscription
        ),
    )
    check_places(facts, report)
    check_reads(facts, report)
    check_losses(facts, report, drained)
    check_polls(facts, report)
    check_sends(facts, report)
    check_send_times(facts, report)
    check_cycles(facts, report)
    check_offsets(facts, report)
    check_processing(facts, report)
    return report
