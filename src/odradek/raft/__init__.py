"""The metadata quorum: KRaft as a pure state machine (step / tick / ready).

The translation between ``messages`` and the protocol's generated messages belongs to the broker's
driver (``broker/raft_messages.py``): it is one to one, plus what is the same in each message of a
cluster (cluster id, topic) and the endpoints that only the driver needs.
"""

from odradek.raft.config import RaftConfig
from odradek.raft.driver import DriverPorts, RaftDriver
from odradek.raft.hard_state import HardState
from odradek.raft.log_view import LogView
from odradek.raft.messages import Message, OffsetAndEpoch, QuorumError, ReplicaKey
from odradek.raft.node import RaftNode
from odradek.raft.quorum_state import QUORUM_STATE_FILE, read_quorum_state, write_quorum_state
from odradek.raft.ready import (
    AppendFetched,
    AppendLeaderChange,
    BecameLeader,
    LeaderChanged,
    LostLeadership,
    Ready,
    Truncate,
)
from odradek.raft.voter_history import VoterHistory
from odradek.raft.voters import VoterSet

__all__ = [
    "QUORUM_STATE_FILE",
    "AppendFetched",
    "AppendLeaderChange",
    "BecameLeader",
    "DriverPorts",
    "HardState",
    "LeaderChanged",
    "LogView",
    "LostLeadership",
    "Message",
    "OffsetAndEpoch",
    "QuorumError",
    "RaftConfig",
    "RaftDriver",
    "RaftNode",
    "Ready",
    "ReplicaKey",
    "Truncate",
    "VoterHistory",
    "VoterSet",
    "read_quorum_state",
    "write_quorum_state",
]
