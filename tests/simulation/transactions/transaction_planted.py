"""Mistakes a transaction coordinator could make, to be planted and to be noticed."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from odradek.coordinator.result import Result
from odradek.coordinator.transaction import (
    end_rules,
    init_rules,
    partition_rules,
    records,
    shard,
    upkeep,
)
from odradek.coordinator.transaction.markers import MarkersToWrite, PendingMarkers
from odradek.coordinator.transaction.metadata import Identity, TransactionMetadata
from odradek.coordinator.transaction.shard import TransactionShard
from odradek.coordinator.transaction.state import TransactionState
from odradek.coordinator.transaction.upkeep import Upkeep
from odradek.core.clock import Instant
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.transaction_records import TransactionLogValue

Plant = Callable[[pytest.MonkeyPatch], None]


def look_at_producer_ids_only(patch: pytest.MonkeyPatch) -> None:
    def check(current: TransactionMetadata, asking: Identity) -> None:
        if asking.producer_id != current.holder.producer_id:
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "")

    patch.setattr(end_rules, "check_holder", check)
    patch.setattr(partition_rules, "check_holder", check)


def end_without_a_new_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionMetadata, "_with_bump", lambda _self, planned, _last, _new_id: planned)


def abort_without_fencing(patch: pytest.MonkeyPatch) -> None:
    def aborted(
        self: TransactionMetadata, *, client_version: int, now_ms: int, new_producer_id: int | None
    ) -> TransactionMetadata:
        del client_version, new_producer_id
        return self._become(TransactionState.PREPARE_ABORT, now_ms, client_version=0)

    patch.setattr(TransactionMetadata, "fenced", aborted)


def start_with_the_same_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Identity, "bumped", lambda self, _new_id: self)


def take_every_init_for_a_repetition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(init_rules, "_is_repeated", lambda _current, _expected: True)


def write_markers_before_the_decision_is_committed(patch: pytest.MonkeyPatch) -> None:
    take = TransactionShard.take_markers

    def take_all(self: TransactionShard, high_watermark: int | None = None) -> list[MarkersToWrite]:
        del high_watermark
        return take(self)

    patch.setattr(TransactionShard, "take_markers", take_all)


def forget_markers_on_loading(patch: pytest.MonkeyPatch) -> None:
    loaded = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now: Instant) -> Iterator[Result]:
        self.take_markers()
        return loaded(self, now)

    patch.setattr(TransactionShard, "on_loaded", on_loaded)


def complete_with_the_first_marker(patch: pytest.MonkeyPatch) -> None:
    on_written = PendingMarkers.on_written

    def first(
        self: PendingMarkers,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        prepared_offset: int | None,
    ) -> bool:
        on_written(self, transactional_id, producer_id, producer_epoch, partition, prepared_offset)
        unmarked = self._unmarked.get(transactional_id)
        return unmarked is not None and unmarked.prepared_offset == prepared_offset

    patch.setattr(PendingMarkers, "on_written", first)


def count_answers_to_any_marker(patch: pytest.MonkeyPatch) -> None:
    def any_marker(
        self: PendingMarkers, transactional_id: str, *about: TopicPartition | int | None
    ) -> bool:
        unmarked = self._unmarked.get(transactional_id)
        if unmarked is None:
            return False
        unmarked.partitions.discard(about[2])
        return not unmarked.partitions

    patch.setattr(PendingMarkers, "on_written", any_marker)


def lose_completions_that_the_log_refused(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Upkeep, "complete_later", lambda *_: None)


def answer_a_commit_that_was_aborted(patch: pytest.MonkeyPatch) -> None:
    wrong = (TransactionState.COMPLETE_ABORT, True, True)
    patch.setattr(end_rules, "_AT_REST", {**end_rules._AT_REST, wrong: end_rules._DONE})


def never_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Upkeep, "plan_abort", lambda *_: None)


def expire_what_is_open(patch: pytest.MonkeyPatch) -> None:
    def is_expired(metadata: TransactionMetadata | None, expired_ms: int) -> bool:
        return metadata is not None and metadata.updated_ms <= expired_ms + 3_500

    patch.setattr(upkeep, "_is_expired", is_expired)


def lose_partitions_on_loading(patch: pytest.MonkeyPatch) -> None:
    loaded = records.loaded_metadata

    def without_last(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
        metadata = loaded(transactional_id, value)
        return replace(metadata, partitions=frozenset(sorted(metadata.partitions)[:1]))

    patch.setattr(shard, "loaded_metadata", without_last)


def do_not_write_the_next_producer_id(patch: pytest.MonkeyPatch) -> None:
    loaded = records.loaded_metadata

    def without_next(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
        return replace(loaded(transactional_id, value), next_producer_id=-1, next_producer_epoch=-1)

    patch.setattr(shard, "loaded_metadata", without_next)


def verify_everything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        shard,
        "verify",
        lambda _current, _asking, partitions: dict.fromkeys(partitions, ErrorCode.NONE),
    )


def say_that_a_partition_is_added_already(patch: pytest.MonkeyPatch) -> None:
    plan = partition_rules.plan_add

    def only_the_first(
        current: TransactionMetadata | None,
        asking: Identity,
        partitions: list[TopicPartition],
        version: int,
        now_ms: int,
    ) -> TransactionMetadata | None:
        planned = plan(current, asking, partitions, version, now_ms)
        is_ongoing = current is not None and current.state is TransactionState.ONGOING
        return None if is_ongoing else planned

    patch.setattr(shard, "plan_add", only_the_first)
