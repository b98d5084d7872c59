"""The settings of one log, in Kafka's names and with Kafka's defaults.

A topic config ``segment.bytes`` is ``segment_bytes`` here; the meaning of each is Kafka's.
"""

from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final

from odradek.records import TimestampType

LONG_MAX: Final = 2**63 - 1
UNLIMITED: Final = -1


class CleanupPolicy(Enum):
    DELETE = "delete"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    cleanup_policy: frozenset[CleanupPolicy] = frozenset({CleanupPolicy.DELETE})
    """Empty: records are kept for ever."""
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = 86_400_000
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = 3_600_000
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: TimestampType = TimestampType.CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    preallocate: bool = False
    retention_bytes: int = UNLIMITED
    retention_ms: int = 604_800_000
    segment_bytes: int = 1_073_741_824
    segment_index_bytes: int = 10_485_760
    segment_jitter_ms: int = 0
    segment_ms: int = 604_800_000

    compact: bool = field(init=False, repr=False, compare=False)
    delete: bool = field(init=False, repr=False, compare=False)
    roll_ms: int = field(init=False, repr=False, compare=False)
    """When a segment rolls at the latest; the cleaner never looks at the active one."""

    def pick_segment_jitter_ms(self, random: Random) -> int:
        """How much earlier than ``segment.ms`` a segment rolls, so that not all do at once."""
        return random.randrange(self.segment_jitter_ms) if self.segment_jitter_ms > 0 else 0

    def __post_init__(self) -> None:
        # Looked at with every append, so worked out once.
        compact = CleanupPolicy.COMPACT in self.cleanup_policy
        object.__setattr__(self, "compact", compact)
        object.__setattr__(self, "delete", CleanupPolicy.DELETE in self.cleanup_policy)
        roll_ms = min(self.segment_ms, self.max_compaction_lag_ms) if compact else self.segment_ms
        object.__setattr__(self, "roll_ms", roll_ms)
