"""What a plan comes to: records to append as one atomic batch, and the reply for afterwards."""

from typing import Generic, NamedTuple, TypeVar

from odradek.metadata import VersionedRecord

R = TypeVar("R")


class Result(NamedTuple, Generic[R]):
    """``reply`` may be sent when ``records`` are committed; at once if there are none."""

    records: tuple[VersionedRecord, ...]
    reply: R
