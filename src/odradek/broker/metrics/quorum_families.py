"""``kafka_server_raftmetrics_…``: this node as a member of the metadata quorum."""

from collections.abc import Iterator

from odradek.broker.metrics.family import Family, Kind, Sample, gauge
from odradek.core.clock import Clock
from odradek.quorum.metadata_quorum import MetadataQuorum
from odradek.raft.leader import Leader


class QuorumFamilies:
    def __init__(self, metadata: MetadataQuorum, clock: Clock) -> None:
        self._metadata = metadata
        self._clock = clock

    def collect(self) -> Iterator[Family]:
        for name, help_text, value in self._gauges():
            yield gauge(f"kafka_server_raftmetrics_{name}", help_text, value)
        yield Family(
            "kafka_server_raftmetrics_current_state",
            "1, labelled with this node's role in the quorum.",
            Kind.GAUGE,
            [Sample({"current_state": self._metadata.state_name}, 1)],
        )

    def _gauges(self) -> Iterator[tuple[str, str, float]]:
        metadata = self._metadata
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
        yield (
            "uncommitted_voter_change",
            "1 on the leader while a change of the voters is not committed.",
            int(isinstance(raft.role, Leader) and raft.role.change is not None),
        )
        yield "is_observer", "1 if this node has no vote.", int(not raft.is_voter)
        yield (
            "ignored_static_voters",
            "1 if controller.quorum.voters is set and the log names the voters.",
            int(bool(metadata.settings.static_voters) and metadata.voters is not None),
        )
        now_ms = self._clock.monotonic_ms()
        for name, latencies in (
            ("commit", metadata.times.commits),
            ("election", metadata.times.elections),
        ):
            recent = latencies.recent(now_ms)
            what = f"How long a {name} took in the last minute, in ms"
            yield f"{name}_latency_avg", f"{what}: the average.", recent.average_ms
            yield f"{name}_latency_max", f"{what}: the most.", recent.max_ms
