"""A member of a classic group: what it said when it joined, and which reply it waits for."""

from collections.abc import Iterable, Set
from dataclasses import dataclass

from odradek.coordinator.result import Caller
from odradek.protocol.generated.describe_groups import DescribedGroupMember
from odradek.protocol.generated.join_group import JoinGroupRequestProtocol

Protocols = tuple[tuple[str, bytes], ...]
"""Name and metadata of each protocol a member supports, the one it likes best first."""


def protocols_of(offered: Iterable[JoinGroupRequestProtocol]) -> Protocols:
    """Return the protocols of a request; of two with one name the first counts.

    A name counted twice would look like two members that support it.
    """
    unique: dict[str, bytes] = {}
    for protocol in offered:
        unique.setdefault(protocol.name, protocol.metadata)
    return tuple(unique.items())


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""

    # Soft: gone with a change of coordinator.
    is_new: bool = False
    awaiting_join: Caller | None = None
    awaiting_sync: Caller | None = None

    @property
    def is_excused(self) -> bool:
        """Whether a session may run out without harm: who waits for us cannot heartbeat.

        Not so before a member's first generation: nobody would miss a dead newcomer otherwise.
        """
        waits = self.awaiting_join is not None or self.awaiting_sync is not None
        return waits and not self.is_new

    def metadata(self, protocol_name: str) -> bytes:
        return next(metadata for name, metadata in self.protocols if name == protocol_name)

    def vote(self, candidates: Set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)

    def describe(self, protocol_name: str | None) -> DescribedGroupMember:
        """Describe the member; its metadata is known once a protocol is chosen."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )
