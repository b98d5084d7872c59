"""A node that knows features up to an older release: ``older_node.py RELEASE server.properties``.

It announces and takes on no higher levels than that release has by default, as a node of that
release does. All else is of this version: requests, records, files.
"""

import sys
from types import MappingProxyType

import odradek.metadata
from odradek.metadata import features
from odradek.metadata.features import VersionRange, default_features


def forget_what_came_after(release: str) -> None:
    """Lower the levels; to be called before what copies them is imported."""
    (level,) = (each.level for each in features.METADATA_VERSIONS if each.name == release)
    defaults = default_features(level)
    known = {
        name: VersionRange(levels.min, min(levels.max, defaults.get(name, 0)))
        for name, levels in features.SUPPORTED_FEATURES.items()
    }
    announced = {**known, features.KRAFT_VERSION: features.KRAFT_VERSIONS}
    features.SUPPORTED_FEATURES = MappingProxyType(known)  # type: ignore[misc]
    odradek.metadata.SUPPORTED_FEATURES = features.SUPPORTED_FEATURES  # type: ignore[misc]
    features.ANNOUNCED_FEATURES = MappingProxyType(announced)  # type: ignore[misc]


if __name__ == "__main__":
    forget_what_came_after(sys.argv[1])
    from odradek.cli.main import main

    sys.argv = ["odradek", "serve", sys.argv[2]]
    main()
