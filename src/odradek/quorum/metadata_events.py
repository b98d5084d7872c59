"""What a metadata log has to report to the operator: each function is one kind of event."""

import logging
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final

from odradek.core.event import Event
from odradek.storage.recovery_loss import Loss

_storage: Final = logging.getLogger("odradek.storage")


def metadata_lost(loss: Loss, topics: Sequence[str]) -> None:
    _storage.warning(Event("metadata lost in recovery", topics=topics, **loss_fields(loss)))


def snapshots_damaged(folder: PurePath, problems: Sequence[str]) -> None:
    """Say which metadata snapshots were passed over for older ones, and removed."""
    for problem in problems:
        _storage.warning(Event("metadata snapshot damaged", folder=folder, problem=problem))


def loss_fields(loss: Loss) -> dict[str, object]:
    """Return what recovery gave up as the fields of an event."""
    return {
        "file": loss.path,
        "byte": loss.position,
        "offset": loss.offset,
        "records": loss.records,
        "bytes": loss.bytes,
        "reason": loss.reason,
    }
