"""What a node learns from its metadata quorum."""

from typing import NamedTuple

from odradek.core.errors import OdradekError
from odradek.metadata.image import MetadataUpdate


class NotLeaderError(OdradekError):
    """The quorum has another leader by now, or none."""


class LeaderAndEpoch(NamedTuple):
    leader_id: int | None
    epoch: int


class QuorumListener:
    """What happens in the quorum; override what is of interest. All is called on the loop."""

    def on_update(self, update: MetadataUpdate) -> None:
        """Take a new committed image, and how it differs from the one before."""

    def on_loaded(self, end_offset: int) -> None:
        """All up to ``end_offset`` is committed and in the image; called after ``on_update``."""

    def on_leading(self, epoch: int, epoch_start_offset: int) -> None:
        """This node leads ``epoch``, whose first record is at ``epoch_start_offset``."""

    def on_leadership_lost(self) -> None:
        """This node leads no more; what it appended may still be committed, or not."""

    def on_leader_changed(self, leader: LeaderAndEpoch) -> None:
        """Another leader is known, or another epoch; this node included."""
