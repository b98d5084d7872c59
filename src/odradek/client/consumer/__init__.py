"""The consumer, and what it hands out and takes in."""

from odradek.client.consumer.consumer import Consumer
from odradek.client.consumer.errors import (
    CommitFailedError,
    CorruptRecordError,
    FencedError,
    LogTruncationError,
    NoOffsetError,
    RebalanceInProgressError,
    RecordDeserializationError,
)
from odradek.client.consumer.extensions import ConsumerInterceptor, Deserializer
from odradek.client.consumer.pattern import SubscriptionPattern
from odradek.client.consumer.records import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RebalanceListener,
)
from odradek.core.ids import TopicPartition

__all__ = [
    "CommitFailedError",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "CorruptRecordError",
    "Deserializer",
    "FencedError",
    "LogTruncationError",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceInProgressError",
    "RebalanceListener",
    "RecordDeserializationError",
    "SubscriptionPattern",
    "TopicPartition",
]
