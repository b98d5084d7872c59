"""The cluster's metadata: an immutable image built by replaying the records of the metadata log.

``image``            ``ClusterImage``, ``ImageBuilder``: replay, snapshot records, invariants
``loader``           ``MetadataLoader``: committed batches in, updates out; holds transactions back
``delta``            ``MetadataDelta``: what changed between two images
``topics``           topics and their partitions …
``partition``        … and one partition
``nodes``            brokers and controllers
``configs``          dynamic configs; ``config_resource`` is what they belong to
``features``         names and levels of features, metadata.version among them
``kept_records``     ACLs, SCRAM credentials, quotas and delegation tokens, kept as they came
``record_versions``  in which version a record is written
``snapshots``        what is in a snapshot of the metadata log
``draft``            copy-on-write sections; ``touched`` the keys that records touched
"""

from odradek.metadata.config_resource import CLUSTER_DEFAULTS, ConfigResource, ResourceType
from odradek.metadata.delta import MetadataDelta
from odradek.metadata.features import SUPPORTED_FEATURES, VersionRange, default_features
from odradek.metadata.image import (
    ClusterImage,
    ImageBuilder,
    MetadataProvenance,
    MetadataUpdate,
)
from odradek.metadata.loader import MetadataLoader
from odradek.metadata.nodes import BrokerImage, ControllerImage, Endpoint
from odradek.metadata.partition import NO_LEADER, LeaderRecoveryState, PartitionImage
from odradek.metadata.record_versions import VersionedRecord, versioned
from odradek.metadata.topics import TopicImage
from odradek.metadata.touched import TopicIdPartition

__all__ = [
    "CLUSTER_DEFAULTS",
    "NO_LEADER",
    "SUPPORTED_FEATURES",
    "BrokerImage",
    "ClusterImage",
    "ConfigResource",
    "ControllerImage",
    "Endpoint",
    "ImageBuilder",
    "LeaderRecoveryState",
    "MetadataDelta",
    "MetadataLoader",
    "MetadataProvenance",
    "MetadataUpdate",
    "PartitionImage",
    "ResourceType",
    "TopicIdPartition",
    "TopicImage",
    "VersionRange",
    "VersionedRecord",
    "default_features",
    "versioned",
]
