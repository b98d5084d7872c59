"""What happens to partitions and leaves no trace in the image: elections, changes of the ISR.

Counted by comparing each new image with the one before it.
"""

from odradek.core.slices import Steps
from odradek.metadata.image import ClusterImage, MetadataUpdate
from odradek.metadata.partition import NO_LEADER, LeaderRecoveryState, PartitionImage


class PartitionChanges:
    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._image: ClusterImage | None = None
        self.unclean_elections = 0
        self.elections_from_elr = 0
        self.isr_shrinks = 0
        self.isr_expands = 0

    def count_in_steps(self, update: MetadataUpdate) -> Steps[None]:
        """Count what an update changes, a partition in each step."""
        before, self._image = self._image, update.image
        if before is None:
            return
        for topic_id, number in update.delta.partitions_changed:
            yield
            old = before.topics_by_id.get(topic_id)
            was = None if old is None else old.partitions.get(number)
            if was is not None:
                self._count(was, update.image.topics_by_id[topic_id].partitions[number])

    def _count(self, was: PartitionImage, now: PartitionImage) -> None:
        is_election = now.leader not in (NO_LEADER, was.leader)
        if is_election and now.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            self.unclean_elections += 1
        elif is_election and now.leader in was.elr:
            self.elections_from_elr += 1
        if now.leader == self._node_id:  # each change of an ISR is counted by one node only
            self.isr_shrinks += len(now.isr) < len(was.isr)
            self.isr_expands += len(now.isr) > len(was.isr)
