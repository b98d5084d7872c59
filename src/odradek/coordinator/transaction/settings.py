"""The settings of transactions; their owner keeps them up to date with the configs."""

from dataclasses import dataclass
from typing import Final

FLEXIBLE_RECORDS_VERSION: Final = 1
"""The transaction version from which on records have tagged fields."""
EPOCH_BUMP_VERSION: Final = 2
"""The transaction version from which on every transaction has an epoch of its own (KIP-890)."""


@dataclass(slots=True)
class TransactionSettings:
    """``transaction_version`` is the finalized level of that feature; it may change."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    transaction_two_phase_commit_enable: bool = False
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: int = 3_600_000
    transaction_version: int = EPOCH_BUMP_VERSION
