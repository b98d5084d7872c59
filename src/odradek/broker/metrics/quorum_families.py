"""``kafka_server_raftmetrics_…``: this node as a member of the metadata quorum."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from odradek.broker.metrics.family import Family, Kind, Sample, gauge
from odradek.raft.leader import Leader

if TYPE_CHECKING:
    from odradek.broker.broker_server import BrokerServer


class QuorumFamilies:
    def __init__(self, broker: "BrokerServer") -> None:
        self._broker = broker

    def collect(self) -> Iterator[Family]:
        for name, help_text, value in self._gauges():
            yield gauge(f"kafka_server_raftmetrics_{name}", help_text, value)
        yield Family(
            "kafka_server_raftmetrics_current_state",
            "1, labelled with this node's role in the quorum.",
            Kind.GAUGE,
            [Sample({"current_state": self._broker.metadata.state_name}, 1)],
        )

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        metadata = self._broker.metadata
        raft, log = metadata.raft, metadata.log
        voted, high_watermark = raft.hard_state.voted, metadata.high_watermark
        leader_id = -1 if metadata.leader_id is None else metadata.leader_id
        observers = len(raft.role.observers) if isinstance(raft.role, Leader) else 0
        yield "current_leader", "The id of the quorum's leader; -1: not known.", leader_id
        yield (
            "current_vote",
            "For whom it voted in this epoch; -1: none.",
            voted.id if voted else -1,
        )
        yield "current_epoch", "The quorum's epoch.", metadata.epoch
        yield (
            "high_watermark",
            "Up to where the metadata log is committed; -1: not known.",
            -1 if high_watermark is None else high_watermark,
        )
        yield "log_end_offset", "Where the metadata log ends.", log.log_end_offset
        yield "log_end_epoch", "The epoch of its end.", log.leader_epochs.latest_epoch or 0
        yield "number_of_voters", "The voters that this node counts.", len(metadata.voter_ids)
        yield "number_of_observers", "Replicas without a vote that follow this leader.", observers
        yield "is_observer", "1 if this node has no vote.", int(not raft.is_voter)
        yield (
            "ignored_static_voters",
            "1 if controller.quorum.voters is set and the log names the voters.",
            int(bool(metadata.settings.static_voters) and metadata.voters is not None),
        )
        now_ms = self._broker.clock.monotonic_ms()
        for name, latencies in (
            ("commit", metadata.times.commits),
            ("election", metadata.times.elections),
        ):
            recent = latencies.recent(now_ms)
            what = f"How long a {name} took in the last minute, in ms"
            yield f"{name}_latency_avg", f"{what}: the average.", recent.average_ms
            yield f"{name}_latency_max", f"{what}: the most.", recent.max_ms
