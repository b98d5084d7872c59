"""Which cluster a node belongs to: what its directories say, before any of them is opened.

A node that is alone makes a cluster of its own in an empty directory. One that names controllers is
part of a cluster that exists or is being made by several nodes. All of them must agree on one id,
so there a directory is formatted by hand. Only the metadata directory has to be: as with Kafka, an
empty data directory beside it, such as a new disk, is formatted at the start.
"""

from pathlib import PurePath
from random import Random

from odradek.core.config import BrokerConfig
from odradek.core.errors import CorruptionError
from odradek.core.ids import Uuid
from odradek.storage.disk import Disk
from odradek.storage.log_dir_files import META_PROPERTIES, MetaProperties, read_meta_properties
from odradek.storage.log_directory import DirectoryRefusedError


def find_cluster_id(disk: Disk, config: BrokerConfig, random: Random) -> str:
    """Return the cluster's id; a node alone makes one up. That directories agree is checked later.

    Raises:
        DirectoryRefusedError: The metadata directory has to be formatted first, or is damaged.
    """
    home = PurePath(config.metadata_log_dir)
    meta = _read(disk, home)
    is_apart = config.metadata_log_dir not in config.log_dirs
    if meta is None and (is_apart or not config.is_alone):
        why = "has the metadata log" if config.is_alone else "this node is part of a cluster"
        raise DirectoryRefusedError(
            f"{home} is not formatted, and {why}. Run odradek storage format "
            "-t CLUSTER_ID -c FILE first, with the same id on every node"
        )
    if meta is not None and meta.node_id not in (None, config.node_id):
        raise DirectoryRefusedError(
            f"{home / META_PROPERTIES} says node.id={meta.node_id}, this node has "
            f"node.id={config.node_id}. Correct the node's settings, or give it a directory of "
            "its own"
        )
    others = (_read_if_disk_works(disk, PurePath(path)) for path in config.log_dirs)
    found = [each for each in (meta, *others) if each is not None]
    known = [each.cluster_id for each in found if each.cluster_id is not None]
    return known[0] if known else str(Uuid.random(random))


def _read_if_disk_works(disk: Disk, path: PurePath) -> MetaProperties | None:
    try:
        return _read(disk, path)
    except OSError:
        return None  # one broken disk of several: its opening finds that too, and says so


def _read(disk: Disk, path: PurePath) -> MetaProperties | None:
    if not disk.exists(path):
        return None
    try:
        return read_meta_properties(disk, path)
    except CorruptionError as error:
        advice = "Mend the file, or move the directory away"
        raise DirectoryRefusedError(f"{error}. {advice}") from error
