"""Where the members of the quorum listen, by id, from all that knows something of it.

A voter that the log names is where the log says. A static voter is where the config says. Any node
may lead by what a response or a BeginQuorumEpoch said last. Bootstrap servers have ids of their own
below zero, so that none is ever mistaken for a node: who is behind the address is not known.
"""

from typing import Final

from odradek.core.config import Address
from odradek.protocol.generated.control_records import VotersRecord
from odradek.quorum.quorum_settings import QuorumSettings
from odradek.quorum.raft_channel_port import LeaderAddress

BOOTSTRAP_ID_FIRST: Final = -2
"""Ids go down from here: -1 is Kafka's word for no replica."""


class PeerAddresses:
    def __init__(self, settings: QuorumSettings) -> None:
        self._static = settings.static_voters
        self._listener = settings.listener
        self._bootstrap = dict(
            zip(
                range(BOOTSTRAP_ID_FIRST, -len(settings.bootstrap_servers) - 2, -1),
                settings.bootstrap_servers,
                strict=False,
            )
        )
        self._by_log: dict[int, Address] = {}
        self._leader: LeaderAddress | None = None

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        return tuple(self._bootstrap)

    def find(self, node_id: int) -> Address | None:
        if node_id in self._bootstrap:
            return self._bootstrap[node_id]
        if self._leader is not None and self._leader.leader_id == node_id:
            return Address(self._leader.host, self._leader.port)
        return self._by_log.get(node_id) or self._static.get(node_id)

    def on_voters(self, record: VotersRecord | None) -> None:
        """Take in what the log says; the listener of the quorum first, else any."""
        self._by_log.clear()
        for voter in () if record is None else record.voters:
            for endpoint in reversed(voter.endpoints):
                if endpoint.name == self._listener or voter.voter_id not in self._by_log:
                    address = Address(endpoint.host, endpoint.port)
                    self._by_log[voter.voter_id] = address

    def on_leader(self, leader: LeaderAddress) -> None:
        """Take in where a leader says it listens; only the latest is kept."""
        if leader.leader_id >= 0 and leader.host:
            self._leader = leader
