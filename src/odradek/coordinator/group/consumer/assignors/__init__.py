"""Who gets which partition: pure functions from members and topics to a target assignment."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from odradek.coordinator.group.consumer.member import Partitions
from odradek.core.ids import Uuid


class AssignorMember(NamedTuple):
    """What an assignor may know of a member. Members that subscribe alike share ``topic_ids``."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[Uuid]
    target: Partitions
    """Its part of the last target assignment."""


class AssignorInput(NamedTuple):
    members: Sequence[AssignorMember]
    partition_counts: Mapping[Uuid, int]
    """Of every topic that a member subscribes to and that exists."""


Assignor: TypeAlias = Callable[[AssignorInput], dict[str, Partitions]]
