"""The consumer's own protocol inside JoinGroup and SyncGroup: subscriptions and assignments.

Each is behind its version. A reader takes a newer version for the newest it knows; an assignment
goes out in the version of the subscription that asked for it.
"""

from typing import Final

from odradek.coordinator.group.consumer.member import Partitions
from odradek.coordinator.group.topic_view import TopicView
from odradek.protocol.generated.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from odradek.protocol.versioned import decode_versioned, encode_versioned

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_VERSION_BYTES: Final = 2


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    return decode_versioned(ConsumerProtocolSubscription, data, newest_if_newer=True)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    return decode_versioned(ConsumerProtocolAssignment, data, newest_if_newer=True)


def encode_assignment(partitions: Partitions, topics: TopicView, subscription: bytes) -> bytes:
    """Encode what a member gets; topics that are gone are left out."""
    assigned = [
        TopicPartition(topic=topic.name, partitions=sorted(numbers))
        for topic_id, numbers in partitions.items()
        if (topic := topics.find_by_id(topic_id)) is not None
    ]
    message = ConsumerProtocolAssignment(assigned_partitions=assigned)
    return encode_versioned(message, _version_of(subscription))


def _version_of(subscription: bytes) -> int:
    # Only the first of a member's protocols was ever read; another one may be anything.
    version = int.from_bytes(subscription[:_VERSION_BYTES], "big", signed=True)
    return max(0, min(version, ConsumerProtocolAssignment.VERSION_MAX))


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: TopicView) -> Partitions:
    """Return what a cooperative member still has."""
    return {
        topic.topic_id: frozenset(owned.partitions)
        for owned in subscription.owned_partitions
        if owned.partitions and (topic := topics.find(owned.topic)) is not None
    }
