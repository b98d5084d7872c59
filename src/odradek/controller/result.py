"""What a plan comes to: records to append as one atomic batch, and the reply for afterwards.

A plan that may take long is made in steps: a generator that yields after each topic or resource and
returns the result. Nothing may be replayed meanwhile, because all steps plan for one image.
"""

from collections.abc import Generator
from typing import Generic, NamedTuple, TypeVar

from odradek.metadata import VersionedRecord
from odradek.metadata.snapshots import QuorumRecords

R = TypeVar("R")


class Result(NamedTuple, Generic[R]):
    """``reply`` may be sent when ``records`` are committed; at once if there are none."""

    records: tuple[VersionedRecord, ...]
    reply: R
    may_split: bool = False
    """Whether the records make sense one after the other, so that there may be more of them than
    one batch has: if a failover cuts them off, the rest is planned again."""
    quorum: QuorumRecords | None = None
    """Control records that the log gets before ``records``: of the quorum, no metadata."""


Steps = Generator[None, None, Result[R]]
