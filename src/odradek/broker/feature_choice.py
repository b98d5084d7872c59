"""Which features a new cluster starts with: a release by its name, and levels chosen by hand.

The rules of Kafka's ``kafka-storage``. ``kraft.version`` is among the features here, although it is
a control record of the log and no metadata record.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from odradek.core.errors import OdradekError
from odradek.metadata.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    KRAFT_VERSION_1_FROM,
    KRAFT_VERSIONS,
    METADATA_VERSION,
    METADATA_VERSIONS,
    REQUIRED_METADATA_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    SUPPORTED_FEATURES,
    TRANSACTION_VERSION,
    UNSTABLE_METADATA_VERSIONS,
    MetadataVersion,
    VersionRange,
    default_features,
)

FEATURES: Final[Mapping[str, VersionRange]] = {
    KRAFT_VERSION: KRAFT_VERSIONS,
    **{
        name: SUPPORTED_FEATURES[name]
        for name in (
            TRANSACTION_VERSION,
            GROUP_VERSION,
            ELIGIBLE_LEADER_REPLICAS_VERSION,
            SHARE_VERSION,
            STREAMS_VERSION,
        )
    },
}
"""All but metadata.version, in the order in which Kafka's tool lists them."""

_KNOWN_VERSIONS: Final = (*METADATA_VERSIONS, *UNSTABLE_METADATA_VERSIONS)
_INT16_MAX: Final = 2**15 - 1


class FeatureError(OdradekError):
    """There is no such feature or level, or it does not go with the others."""


def release_named(text: str, *, unstable: bool = False) -> MetadataVersion:
    """Find a release: ``4.0-IV1``, or ``4.0`` and ``4.0.1`` for the last of its kind.

    An unstable one has its full name only.

    Raises:
        FeatureError: There is none of that name.
    """
    name = ".".join(text.split(".")[:2])
    versions = _KNOWN_VERSIONS if unstable else METADATA_VERSIONS
    found = [each for each in METADATA_VERSIONS if each.name.partition("-")[0] == name]
    found += [each for each in versions if each.name == name]
    if not found:
        names = ", ".join(each.name for each in versions)
        raise FeatureError(f"Unknown {METADATA_VERSION} '{text}'. Known are: {names}")
    return found[-1]


def release_at(level: int) -> MetadataVersion:
    """Find a release by its level of metadata.version.

    Raises:
        FeatureError: There is none.
    """
    for version in _KNOWN_VERSIONS:
        if version.level == level:
            return version
    lowest, highest = _KNOWN_VERSIONS[0].level, _KNOWN_VERSIONS[-1].level
    raise FeatureError(f"{METADATA_VERSION} {level} is unknown: it goes from {lowest} to {highest}")


def parse_feature(text: str) -> tuple[str, int]:
    """Read ``feature=level``.

    Raises:
        FeatureError: It is something else.
    """
    name, equals, level = (part.strip() for part in text.partition("="))
    if not equals or not level.isdecimal() or int(level) > _INT16_MAX:
        raise FeatureError(f"{text!r} is not feature=level, such as group.version=1")
    return name, int(level)


def default_level(name: str, metadata_version: int) -> int:
    """Return the level of a feature with which a cluster of that metadata.version starts."""
    if name == KRAFT_VERSION:
        return int(metadata_version >= KRAFT_VERSION_1_FROM)
    return default_features(metadata_version).get(name, 0)


def dependencies_of(name: str, level: int) -> dict[str, int]:
    """Return the features without which one cannot be at ``level``, and their levels.

    Raises:
        FeatureError: There is no such feature, or it has no such level.
    """
    if name == METADATA_VERSION:
        release_at(level)
        return {}
    if name not in FEATURES:
        raise FeatureError(f"Unknown feature: {name}")
    if level not in FEATURES[name]:
        raise FeatureError(f"{name} has no level {level}")
    needed = REQUIRED_METADATA_VERSION.get(name, {}).get(level)
    return {} if needed is None else {METADATA_VERSION: needed}


def choose_features(
    release: MetadataVersion | None, chosen: Mapping[str, int], *, dynamic_quorum: bool
) -> dict[str, int]:
    """Return the levels of all features, metadata.version first; what is not chosen has a default.

    Raises:
        FeatureError: A choice is impossible, by itself or beside the others.
    """
    version = _choose_release(release, chosen)
    unknown = [name for name in chosen if name not in FEATURES and name != METADATA_VERSION]
    if unknown:
        supported = ", ".join(sorted(FEATURES))
        raise FeatureError(f"Unsupported feature: {unknown[0]}. Supported are: {supported}")
    levels = {METADATA_VERSION: version.level}
    for name in sorted(FEATURES):
        levels[name] = chosen.get(name, default_level(name, version.level))
    levels[KRAFT_VERSION] = _choose_kraft_version(chosen.get(KRAFT_VERSION), dynamic_quorum)
    for name in FEATURES:
        for needed, least in dependencies_of(name, levels[name]).items():
            if levels[needed] < least:
                raise FeatureError(
                    f"{name} cannot be {levels[name]}: it depends on {needed} level {least}"
                )
    return levels


def _choose_release(release: MetadataVersion | None, chosen: Mapping[str, int]) -> MetadataVersion:
    level = chosen.get(METADATA_VERSION)
    if level is None:
        return release or METADATA_VERSIONS[-1]
    if release is not None:
        raise FeatureError(f"--release-version and --feature {METADATA_VERSION}: give one of them")
    version = release_at(level)
    if version in UNSTABLE_METADATA_VERSIONS:
        raise FeatureError(f"{METADATA_VERSION} {version.name} is not yet stable")
    return version


def _choose_kraft_version(chosen: int | None, dynamic_quorum: bool) -> int:
    """Voters are either in controller.quorum.voters or, from kraft.version 1 on, in the log."""
    if chosen is None:
        return int(dynamic_quorum)
    if (chosen > 0) != dynamic_quorum:
        where = "is not set" if dynamic_quorum else "is set"
        raise FeatureError(f"{KRAFT_VERSION} cannot be {chosen}: controller.quorum.voters {where}")
    return chosen


def dependency_lines(text: str) -> Iterator[str]:
    """Tell what ``feature=level`` needs, in the lines of Kafka's tool.

    Raises:
        FeatureError: There is no such feature, or it has no such level.
    """
    name, level = parse_feature(text)
    needed = dependencies_of(name, level)
    shown = _show(name, level)
    if not needed:
        yield f"{shown} has no dependencies."
        return
    yield f"{shown} requires:"
    for other, least in needed.items():
        yield f"    {_show(other, least)}"


def _show(name: str, level: int) -> str:
    release = f" ({release_at(level).name})" if name == METADATA_VERSION else ""
    return f"{name}={level}{release}"
