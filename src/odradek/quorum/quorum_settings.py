"""What the configs say of the metadata quorum: its voters, its times and its limits."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from odradek.core.config import Address, BrokerConfig
from odradek.metadata.features import KRAFT_VERSIONS
from odradek.quorum.metadata_upkeep import MetadataLogConfig
from odradek.raft.config import RaftConfig
from odradek.raft.messages import VoterDetails, VoterEndpoint
from odradek.storage.config import LogConfig

_INDEX_ENTRY_BYTES: Final = 12  # the larger of the two: a time and an offset


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumSettings:
    static_voters: Mapping[int, Address] = field(default_factory=dict)
    """By id, from ``controller.quorum.voters``; they count while the log names no voters."""
    bootstrap_servers: tuple[Address, ...] = ()
    raft: RaftConfig = field(default_factory=RaftConfig)
    log: MetadataLogConfig = field(default_factory=MetadataLogConfig)
    fetch_max_bytes: int = 1 << 20
    listener: str = ""
    """The name of the listener on which controllers talk to each other."""
    endpoints: tuple[VoterEndpoint, ...] = ()
    """Where this node's controller listens, if it has that role."""
    can_become_voter: bool = True
    """Whether it is a controller. Brokers only follow, and do not wait for their flushes."""

    @property
    def details(self) -> VoterDetails | None:
        """What the voters should have of this node; None if it listens nowhere, or never votes."""
        if not self.can_become_voter or not self.endpoints:
            return None
        return VoterDetails(self.endpoints, KRAFT_VERSIONS.min, KRAFT_VERSIONS.max)

    @property
    def is_alone(self) -> bool:
        """Whether no other node is named anywhere: then this one is a quorum by itself."""
        return not self.static_voters and not self.bootstrap_servers

    @property
    def is_only_voter(self) -> bool:
        """Whether this node is the quorum's one voter, as far as its configs say."""
        return self.can_become_voter and len(self.static_voters or self.bootstrap_servers) <= 1

    @classmethod
    def of(cls, config: BrokerConfig) -> "QuorumSettings":
        names = config.controller_listener_names
        return cls(
            static_voters=config.quorum_voters,
            bootstrap_servers=config.quorum_bootstrap_servers,
            raft=raft_config(config),
            log=metadata_log_config(config),
            fetch_max_bytes=config.integer("controller.quorum.fetch.max.bytes"),
            listener=names[0] if names else "",
            endpoints=tuple(
                VoterEndpoint(each.name, each.host, each.port)
                for each in config.advertised_controller_listeners
            ),
            can_become_voter=config.is_controller,
        )


def raft_config(config: BrokerConfig) -> RaftConfig:
    return RaftConfig(
        election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
        fetch_snapshot_max_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        auto_join=config.flag("controller.quorum.auto.join.enable"),
    )


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    return MetadataLogConfig(
        segment_bytes=config.metadata_log_segment_bytes,
        segment_ms=config.metadata_log_segment_ms,
        segment_index_bytes=_index_bytes(config.metadata_log_segment_bytes),
        max_record_bytes_between_snapshots=config.metadata_log_max_record_bytes_between_snapshots,
        max_snapshot_interval_ms=config.metadata_log_max_snapshot_interval_ms,
        max_retention_bytes=config.metadata_max_retention_bytes,
        max_retention_ms=config.metadata_max_retention_ms,
    )


def _index_bytes(segment_bytes: int) -> int:
    """Return what an index of a segment can need: Kafka's size is for ten times as much."""
    defaults = LogConfig()
    entries_max = segment_bytes // defaults.index_interval_bytes + 2
    return min(defaults.segment_index_bytes, entries_max * _INDEX_ENTRY_BYTES)
