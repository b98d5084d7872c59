"""What a dump is asked for, and what it answers with."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from odradek.storage.dump.decoders import Decoder, TextDecoder

BYTES_MAX: Final = 2**31 - 1
"""No limit: a log file is no longer than this."""
MESSAGE_BYTES_MAX: Final = 5 * 1024 * 1024


class Line(NamedTuple):
    """A line for stdout; for stderr if it is about a problem."""

    text: str
    is_problem: bool = False
    is_failure: bool = False
    """A file could not be dumped to its end: the command exits with 1."""


@dataclass(frozen=True)
class DumpOptions:
    """The options of ``kafka-dump-log`` that are not file names."""

    print_data_log: bool = False
    deep_iteration: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    skip_record_metadata: bool = False
    bytes_max: int = BYTES_MAX
    message_bytes_max: int = MESSAGE_BYTES_MAX
    decoder: Decoder = field(default_factory=TextDecoder)

    @property
    def is_deep(self) -> bool:
        return self.deep_iteration or self.print_data_log
