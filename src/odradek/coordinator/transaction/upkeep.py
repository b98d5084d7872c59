"""What time does to transactional ids: open transactions run out, unused ids are forgotten.

Looked for at intervals, as Kafka does, and in slices: after so many, other work has its turn. The
moments in records are the wall clock's, because they outlive the coordinator. Deadlines are the
steady clock's: a wall clock that is set back by an hour must not keep a transaction open for an
hour more, and its readers waiting. So the deadline of a transaction is worked out once, when its
first record is written or, after a change of coordinators, when its last one has been loaded.
"""

from collections.abc import Mapping
from random import Random
from typing import Final

from odradek.coordinator.deadlines import Deadlines
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.transaction.init_rules import spoken_version
from odradek.coordinator.transaction.metadata import ProducerIdNeededError, TransactionMetadata
from odradek.coordinator.transaction.records import tombstone
from odradek.coordinator.transaction.settings import TransactionSettings
from odradek.core.clock import Instant

ABORTS_PER_TURN_MAX: Final = 100
IDS_PER_TURN_MAX: Final = 1_000
COMPLETION_RETRY_MS: Final = 100


class Upkeep:
    def __init__(self, settings: TransactionSettings, random: Random) -> None:
        self.wants_producer_id = False
        self._settings = settings
        self._random = random
        self._timeouts = Deadlines()
        # What each of them was worked out for: start and timeout of the transaction.
        self._timed: dict[str, tuple[int, int]] = {}
        self._now: Instant | None = None  # of the newest request; None while loading
        self._completions = Deadlines()
        self._abort_due_ms = self._expiry_due_ms = 0
        self._abort_left: list[str] = []
        self._expiry_left: list[str] = []
        self._spare_producer_id: int | None = None

    def hear(self, now: Instant) -> None:
        """Take note of the time of what is about to be written."""
        self._now = now

    def on_loaded(self, now: Instant, transactions: Mapping[str, TransactionMetadata]) -> None:
        self._now = now
        for metadata in transactions.values():
            self.on_changed(metadata)
        # Many shards are loaded at once. They need not look around at once ever after.
        settings, random = self._settings, self._random
        abort_ms = settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        expiry_ms = settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._abort_due_ms = now.monotonic_ms + random.randint(1, abort_ms)
        self._expiry_due_ms = now.monotonic_ms + random.randint(1, expiry_ms)

    def on_changed(self, metadata: TransactionMetadata) -> None:
        transactional_id, expires_ms = metadata.transactional_id, metadata.expires_ms
        self._completions.cancel(transactional_id)
        if expires_ms is None:
            self._timeouts.cancel(transactional_id)
            self._timed.pop(transactional_id, None)
            return
        timed = metadata.start_ms, metadata.timeout_ms
        if self._now is None or self._timed.get(transactional_id) == timed:
            return
        # It began in the future if the clock was set back since; then all of its time is left.
        left_ms = min(expires_ms - self._now.wall_ms, metadata.timeout_ms)
        self._timeouts.set(transactional_id, self._now.monotonic_ms + left_ms + 1)
        self._timed[transactional_id] = timed

    def drop(self, transactional_id: str) -> None:
        self._timeouts.cancel(transactional_id)
        self._timed.pop(transactional_id, None)
        self._completions.cancel(transactional_id)

    def next_deadline_ms(self) -> int:
        """Return when to look next, if there are transactional ids at all."""
        due_ms = self._expiry_due_ms
        if len(self._timeouts):
            due_ms = min(due_ms, self._abort_due_ms)
        completion_ms = self._completions.next_ms()
        return due_ms if completion_ms is None else min(due_ms, completion_ms)

    # Completions whose record did not get into the log.

    def complete_later(self, transactional_id: str, now: Instant) -> None:
        self._completions.set(transactional_id, now.monotonic_ms + COMPLETION_RETRY_MS)

    def take_completions(self, now: Instant) -> list[str]:
        return self._completions.take_expired(now.monotonic_ms)

    # Transactions that take too long.

    def take_timed_out(self, now: Instant) -> list[str]:
        if self._abort_due_ms > now.monotonic_ms:
            return []
        if not self._abort_left:
            self._abort_left = self._timeouts.take_expired(now.monotonic_ms)
            for transactional_id in self._abort_left:  # until it is aborted indeed
                self._timeouts.set(transactional_id, now.monotonic_ms)
        turn, self._abort_left = (
            self._abort_left[:ABORTS_PER_TURN_MAX],
            self._abort_left[ABORTS_PER_TURN_MAX:],
        )
        interval_ms = self._settings.transaction_abort_timed_out_transaction_cleanup_interval_ms
        self._abort_due_ms = now.monotonic_ms + (0 if self._abort_left else interval_ms)
        # Between two turns it may have ended, and another one begun.
        due = ((each, self._timeouts.due_ms(each)) for each in turn)
        return [each for each, due_ms in due if due_ms is not None and due_ms <= now.monotonic_ms]

    def plan_abort(self, metadata: TransactionMetadata, now: Instant) -> TransactionMetadata | None:
        """Plan to abort a transaction; None if that has to wait for a producer id."""
        try:
            planned = metadata.fenced(
                client_version=spoken_version(self._settings.transaction_version),
                now_ms=now.wall_ms,
                new_producer_id=self._spare_producer_id,
            )
        except ProducerIdNeededError:
            self.wants_producer_id = True  # the turn of this one comes again
            return None
        if planned.next_producer_id == self._spare_producer_id:
            self._spare_producer_id = None
        return planned

    def give_producer_id(self, producer_id: int) -> None:
        self.wants_producer_id = False
        self._spare_producer_id = producer_id

    # Transactional ids that nobody uses.

    def plan_expiry(
        self, now: Instant, transactions: Mapping[str, TransactionMetadata]
    ) -> tuple[CoordinatorRecord, ...]:
        if self._expiry_due_ms > now.monotonic_ms:
            return ()
        if not self._expiry_left:
            self._expiry_left = list(transactions)
        looked_at = [self._expiry_left.pop() for _ in self._expiry_left[:IDS_PER_TURN_MAX]]
        interval_ms = self._settings.transaction_remove_expired_transaction_cleanup_interval_ms
        self._expiry_due_ms = now.monotonic_ms + (0 if self._expiry_left else interval_ms)
        expired_ms = now.wall_ms - self._settings.transactional_id_expiration_ms
        return tuple(
            tombstone(transactional_id)
            for transactional_id in looked_at
            if _is_expired(transactions.get(transactional_id), expired_ms)
        )

    def check_invariants(self, transactions: Mapping[str, TransactionMetadata]) -> None:
        if self._now is None:
            return  # still loading
        running = 0
        for transactional_id, metadata in transactions.items():
            assert (transactional_id in self._timeouts) == (metadata.expires_ms is not None)
            running += metadata.expires_ms is not None
        assert len(self._timeouts) == len(self._timed) == running


def _is_expired(metadata: TransactionMetadata | None, expired_ms: int) -> bool:
    return metadata is not None and metadata.state.may_expire and metadata.updated_ms <= expired_ms
