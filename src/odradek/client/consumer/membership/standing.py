"""Whether a consumer may commit for its group, and as whom.

A coordinator takes a commit without a member id if the group is empty: that is how consumers that
assign partitions to themselves commit. A member that was expelled has no generation any more, and
would pass for one of them: it would take the group back to where it was itself. So membership is
looked at here first, before each attempt.
"""

from typing import Final, NamedTuple

from odradek.client.consumer.errors import CommitFailedError
from odradek.client.consumer.records import ConsumerGroupMetadata
from odradek.client.errors import KafkaError

NO_LIFE: Final = -1
"""That of consumers which choose their partitions themselves: they cannot be expelled."""


class Standing(NamedTuple):
    metadata: ConsumerGroupMetadata
    """As of the last generation that the consumer was in, even if it is in none now: what a
    producer's transaction commits with it is refused then, as with Java's."""
    life: int = NO_LIFE
    """Goes up whenever the member loses what it had."""
    problem: KafkaError | None = None
    """Why it may not commit now."""

    def check_commit(self, since: "Standing") -> None:
        """Check that what an application committed in one standing may be committed in this one.

        Raises:
            KafkaError: The consumer was no member then, is none now, or was not one in between:
                others may have gone further meanwhile.
        """
        for each in (since, self):
            if each.problem is not None:
                raise each.problem
        if self.life != since.life:
            raise not_a_member(self.metadata.group_id, "it was expelled, and has joined again")


def not_a_member(group_id: str, reason: str) -> CommitFailedError:
    return CommitFailedError(
        f"commit of {group_id}: nothing was committed, for this consumer is not the member that"
        f" read the records: {reason}; others may have its partitions by now (poll to join again)"
    )
