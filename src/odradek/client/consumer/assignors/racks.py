"""Which members are near which partitions (KIP-881). Pure.

A member that says where it is (``client.rack``) shall get partitions that have a replica there, as
far as balance allows. That is worth the trouble only if some partitions are nearer than others: if
every rack has all of them, or none of the members' racks has any, racks are left out of it.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from odradek.client.consumer.assignors.assignor import Members, Racks, Topics
from odradek.core.ids import TopicPartition

_NOWHERE: Final[frozenset[str]] = frozenset()


class Nearness:
    """The racks of some members and of the partitions that they may get."""

    def __init__(
        self, members: Members, member_ids: Iterable[str], topics: Topics, racks: Racks
    ) -> None:
        self._rack_of = {each: rack for each in member_ids if (rack := members[each].rack_id)}
        self._racks = racks if self._rack_of else {}
        per_rack: dict[str, int] = {}
        for rack in self._rack_of.values():
            per_rack[rack] = per_rack.get(rack, 0) + 1
        self._members_in: Mapping[str, int] = per_rack
        self.matters = bool(self._rack_of) and self._differs(topics)

    def _differs(self, topics: Topics) -> bool:
        found = [self.of(TopicPartition(t, n)) for t, size in topics.items() for n in range(size)]
        everywhere = _NOWHERE.union(*found)
        if everywhere.isdisjoint(self._members_in):
            return False
        return any(each != everywhere for each in found)

    @property
    def has_members(self) -> bool:
        """Whether any member says where it is."""
        return bool(self._rack_of)

    def of(self, partition: TopicPartition) -> frozenset[str]:
        return self._racks.get(partition, _NOWHERE)

    def rack_of(self, member_id: str) -> str | None:
        return self._rack_of.get(member_id)

    def is_far(self, member_id: str, partition: TopicPartition) -> bool:
        """Whether a member is somewhere, and the partition is not there."""
        rack = self._rack_of.get(member_id)
        return rack is not None and rack not in self.of(partition)

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        return self._rack_of.get(member_id) in self.of(partition)

    def count_near(self, partition: TopicPartition) -> int:
        """Return how many members are near."""
        return sum(self._members_in.get(rack, 0) for rack in self.of(partition))
