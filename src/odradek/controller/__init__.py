"""The controller: plans the records of the metadata log; ``Controller.replay`` applies them.

``controller``        ``Controller``: one method for each request, the image, sessions
``result``            ``Result``: records and reply
``settings``          ``ControllerSettings`` and ``ConfigRules``, what is told from outside
``view``              what every plan reads
``topic_changes``     CreateTopics, CreatePartitions; ``topic_deletion`` DeleteTopics
``topic_names``       which names a topic may have
``assignments``       replicas that a request lists or that are to be placed …
``placement``         … and where they are placed
``config_changes``    AlterConfigs, IncrementalAlterConfigs
``registrations``     BrokerRegistration, UnregisterBroker
``heartbeats``        BrokerHeartbeat: fenced, unfenced, shutting down; ``sessions`` time it
``leaders``           leaders when brokers come and go, ElectLeaders
``isr_changes``       AlterPartition
``directory_changes`` AssignReplicasToDirs
``partition_change``  the election itself
``feature_changes``   UpdateFeatures, the first records of a cluster
``producer_ids``      AllocateProducerIds
"""

from odradek.controller.controller import Controller
from odradek.controller.feature_changes import bootstrap_records, format_records
from odradek.controller.producer_ids import PRODUCER_IDS_PER_BLOCK
from odradek.controller.result import Result
from odradek.controller.settings import AnyConfig, ConfigRules, ControllerSettings
from odradek.core.topic_names import check_topic_name

__all__ = [
    "PRODUCER_IDS_PER_BLOCK",
    "AnyConfig",
    "ConfigRules",
    "Controller",
    "ControllerSettings",
    "Result",
    "bootstrap_records",
    "check_topic_name",
    "format_records",
]
