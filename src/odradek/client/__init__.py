"""Clients: producer, consumer and admin, in asyncio, with blocking twins. Any Kafka will do.

Nothing is imported before it is asked for: an admin tool does not pay for the consumer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.client.admin.admin import Admin
    from odradek.client.admin.brokers import FeatureUpdate, UpgradeType
    from odradek.client.admin.configs import Append, ConfigResource, Subtract
    from odradek.client.admin.group_offsets import CommittedOffset
    from odradek.client.admin.log_dirs import TopicPartitionReplica
    from odradek.client.admin.partitions import ElectionType, OffsetSpec
    from odradek.client.admin.results import Result, Results
    from odradek.client.admin.topics import NewPartitions, NewTopic
    from odradek.client.admin.users import (
        RemoveScramCredential,
        ScramCredentialInfo,
        SetScramCredential,
    )
    from odradek.client.blocking.admin import BlockingAdmin
    from odradek.client.blocking.consumer import BlockingConsumer
    from odradek.client.blocking.producer import BlockingProducer
    from odradek.client.consumer import (
        Consumer,
        ConsumerRecord,
        OffsetAndMetadata,
        RebalanceListener,
        RecordDeserializationError,
        SubscriptionPattern,
    )
    from odradek.client.errors import (
        AuthenticationError,
        BrokerError,
        ClosedError,
        ConfigurationError,
        ConnectionLostError,
        KafkaError,
        KafkaTimeoutError,
        UnsupportedError,
    )
    from odradek.client.producer import (
        OffsetRange,
        Producer,
        RecordMetadata,
        RowsMetadata,
        RowsNotDeliveredError,
    )
    from odradek.client.setting_types import AdminSettings, ConsumerSettings, ProducerSettings
    from odradek.client.settings import as_settings
    from odradek.core.errors import ErrorCode
    from odradek.core.ids import TopicPartition
    from odradek.core.scram import ScramMechanism

_MODULES: Final = {
    "Admin": "odradek.client.admin.admin",
    "AdminSettings": "odradek.client.setting_types",
    "Append": "odradek.client.admin.configs",
    "AuthenticationError": "odradek.client.errors",
    "BlockingAdmin": "odradek.client.blocking.admin",
    "BlockingConsumer": "odradek.client.blocking.consumer",
    "BlockingProducer": "odradek.client.blocking.producer",
    "BrokerError": "odradek.client.errors",
    "ClosedError": "odradek.client.errors",
    "CommittedOffset": "odradek.client.admin.group_offsets",
    "ConfigResource": "odradek.client.admin.configs",
    "ConfigurationError": "odradek.client.errors",
    "ConnectionLostError": "odradek.client.errors",
    "Consumer": "odradek.client.consumer",
    "ConsumerRecord": "odradek.client.consumer",
    "ConsumerSettings": "odradek.client.setting_types",
    "ElectionType": "odradek.client.admin.partitions",
    "ErrorCode": "odradek.core.errors",
    "FeatureUpdate": "odradek.client.admin.brokers",
    "KafkaError": "odradek.client.errors",
    "KafkaTimeoutError": "odradek.client.errors",
    "NewPartitions": "odradek.client.admin.topics",
    "NewTopic": "odradek.client.admin.topics",
    "OffsetAndMetadata": "odradek.client.consumer",
    "OffsetRange": "odradek.client.producer",
    "OffsetSpec": "odradek.client.admin.partitions",
    "Producer": "odradek.client.producer",
    "ProducerSettings": "odradek.client.setting_types",
    "RebalanceListener": "odradek.client.consumer",
    "RecordDeserializationError": "odradek.client.consumer",
    "RecordMetadata": "odradek.client.producer",
    "RemoveScramCredential": "odradek.client.admin.users",
    "Result": "odradek.client.admin.results",
    "Results": "odradek.client.admin.results",
    "RowsMetadata": "odradek.client.producer",
    "RowsNotDeliveredError": "odradek.client.producer",
    "ScramCredentialInfo": "odradek.client.admin.users",
    "ScramMechanism": "odradek.core.scram",
    "SetScramCredential": "odradek.client.admin.users",
    "SubscriptionPattern": "odradek.client.consumer",
    "Subtract": "odradek.client.admin.configs",
    "TopicPartition": "odradek.core.ids",
    "TopicPartitionReplica": "odradek.client.admin.log_dirs",
    "UnsupportedError": "odradek.client.errors",
    "UpgradeType": "odradek.client.admin.brokers",
    "as_settings": "odradek.client.settings",
}

__all__ = [
    "Admin",
    "AdminSettings",
    "Append",
    "AuthenticationError",
    "BlockingAdmin",
    "BlockingConsumer",
    "BlockingProducer",
    "BrokerError",
    "ClosedError",
    "CommittedOffset",
    "ConfigResource",
    "ConfigurationError",
    "ConnectionLostError",
    "Consumer",
    "ConsumerRecord",
    "ConsumerSettings",
    "ElectionType",
    "ErrorCode",
    "FeatureUpdate",
    "KafkaError",
    "KafkaTimeoutError",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetRange",
    "OffsetSpec",
    "Producer",
    "ProducerSettings",
    "RebalanceListener",
    "RecordDeserializationError",
    "RecordMetadata",
    "RemoveScramCredential",
    "Result",
    "Results",
    "RowsMetadata",
    "RowsNotDeliveredError",
    "ScramCredentialInfo",
    "ScramMechanism",
    "SetScramCredential",
    "SubscriptionPattern",
    "Subtract",
    "TopicPartition",
    "TopicPartitionReplica",
    "UnsupportedError",
    "UpgradeType",
    "as_settings",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(module), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
