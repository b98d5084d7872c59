"""Features with levels, and what each level of ``metadata.version`` allows in the log.

A feature is switched on for a whole cluster by a ``FeatureLevelRecord``. ``metadata.version`` is
the one that every cluster has: it says which versions of records may be written, so that the
oldest broker can read them. ``kraft.version`` is not here: it is a control record of the log.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from odradek.core.errors import OdradekError

METADATA_VERSION: Final = "metadata.version"
ELIGIBLE_LEADER_REPLICAS_VERSION: Final = "eligible.leader.replicas.version"
GROUP_VERSION: Final = "group.version"
SHARE_VERSION: Final = "share.version"
STREAMS_VERSION: Final = "streams.version"
TRANSACTION_VERSION: Final = "transaction.version"
KRAFT_VERSION: Final = "kraft.version"


class VersionRange(NamedTuple):
    """Levels of a feature, both ends included."""

    min: int
    max: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.min <= level <= self.max


class UnsupportedLevelError(OdradekError):
    """The cluster has raised a feature beyond what this software knows."""


class MetadataVersion(NamedTuple):
    level: int
    name: str
    changes_records: bool
    """Whether this level brought records or fields that the level before cannot express."""


METADATA_VERSIONS: Final = tuple(
    MetadataVersion(level, name, changes == "changed")
    for level, name, changes in (
        (7, "3.3-IV3", "changed"),
        (8, "3.4-IV0", "changed"),
        (9, "3.5-IV0", ""),
        (10, "3.5-IV1", ""),
        (11, "3.5-IV2", "changed"),
        (12, "3.6-IV0", ""),
        (13, "3.6-IV1", "changed"),
        (14, "3.6-IV2", "changed"),
        (15, "3.7-IV0", "changed"),
        (16, "3.7-IV1", ""),
        (17, "3.7-IV2", "changed"),
        (18, "3.7-IV3", ""),
        (19, "3.7-IV4", ""),
        (20, "3.8-IV0", ""),
        (21, "3.9-IV0", ""),
        (22, "4.0-IV0", ""),
        (23, "4.0-IV1", "changed"),
        (24, "4.0-IV2", ""),
        (25, "4.0-IV3", ""),
        (26, "4.1-IV0", ""),
        (27, "4.1-IV1", ""),
        (28, "4.2-IV0", ""),
        (29, "4.2-IV1", ""),
        (30, "4.3-IV0", "changed"),
    )
)
UNSTABLE_METADATA_VERSIONS: Final = (MetadataVersion(31, "4.4-IV0", False),)
"""Known by name to Kafka 4.3 and to nobody else: no cluster may be at them yet."""

METADATA_VERSION_MIN: Final = METADATA_VERSIONS[0].level
METADATA_VERSION_LATEST: Final = METADATA_VERSIONS[-1].level

# The first level of metadata.version that knows them.
ZK_MIGRATION_FROM: Final = 8
SCRAM_FROM: Final = 11
TRANSACTIONS_FROM: Final = 13
CONTROLLER_REGISTRATION_FROM: Final = 15
DIRECTORY_ASSIGNMENT_FROM: Final = 17
ELR_FROM: Final = 23
CORDONED_LOG_DIRS_FROM: Final = 30
NO_EPOCH_BUMP_ON_ISR_SHRINK_FROM: Final = 12
KRAFT_VERSION_1_FROM: Final = 21
KRAFT_VERSIONS: Final = VersionRange(0, 1)

_DEFAULT_FROM: Final[Mapping[str, tuple[tuple[int, int], ...]]] = MappingProxyType(
    {
        ELIGIBLE_LEADER_REPLICAS_VERSION: ((1, 26),),
        GROUP_VERSION: ((1, 22),),
        SHARE_VERSION: ((1, 28),),
        STREAMS_VERSION: ((1, 29),),
        TRANSACTION_VERSION: ((1, 24), (2, 24)),
    }
)
"""Each level of a feature, and the metadata.version from which new clusters start with it."""

SUPPORTED_FEATURES: Final[Mapping[str, VersionRange]] = MappingProxyType(
    {
        METADATA_VERSION: VersionRange(METADATA_VERSION_MIN, METADATA_VERSION_LATEST),
        **{name: VersionRange(0, levels[-1][0]) for name, levels in _DEFAULT_FROM.items()},
    }
)
"""What this software can do in levels of the metadata log."""

ANNOUNCED_FEATURES: Final[Mapping[str, VersionRange]] = MappingProxyType(
    {**SUPPORTED_FEATURES, KRAFT_VERSION: KRAFT_VERSIONS}
)
"""What a node says it can do, in ApiVersions and when it registers.

Controllers at kraft.version 1 refuse the registration of a broker that does not name it.
"""

REQUIRED_METADATA_VERSION: Final[Mapping[str, Mapping[int, int]]] = MappingProxyType(
    {ELIGIBLE_LEADER_REPLICAS_VERSION: {1: ELR_FROM}}
)
"""By feature and level: the metadata.version without which it cannot be switched on."""


def default_features(metadata_version: int = METADATA_VERSION_LATEST) -> dict[str, int]:
    """Return the levels with which a new cluster of that version starts, without the zeros."""
    levels = {METADATA_VERSION: metadata_version}
    for name, known in _DEFAULT_FROM.items():
        reached = [level for level, since in known if since <= metadata_version]
        if reached:
            levels[name] = reached[-1]
    return levels


def check_known(name: str, level: int) -> None:
    """Check a level that the cluster is at.

    A controller that went on would write records as an older version does, and drop what it does
    not know. Features of other names are the brokers' business, whose registration is refused.

    Raises:
        UnsupportedLevelError: It is above what this software can do.
    """
    known = SUPPORTED_FEATURES.get(name)
    if known is not None and level > known.max:
        raise UnsupportedLevelError(
            f"the cluster has {name} {level}, and this version of Odradek supports {known.min} to"
            f" {known.max}: start a newer one"
        )
