"""What a shard has planned in this turn of the event loop, to be appended as one batch.

Where a partition has followers, each append waits for a round trip to them. So what comes in during
a turn is planned at once, but appended and replayed together at the turn's end; Kafka's
``group.coordinator.append.linger.ms`` has the same purpose. Nothing waits for a later turn.

A shard plans from what it has replayed. A plan may therefore be made before the records of an
earlier one are replayed only if it does not depend on them:

- plans for different keys (groups, transactional ids) never depend on each other;
- plans for one key do, unless both are *blind*: neither looks at what the other writes. Commits of
  offsets are, and they are what many members of one group send at the same time.

Records of a producer's transaction are never here: they have a batch of their own.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.broker.partition import Partition
from odradek.coordinator.record import CoordinatorRecord
from odradek.coordinator.result import Result
from odradek.core.errors import ErrorCode
from odradek.records import BatchBuilder, CompressionType
from odradek.records.open_batch import RECORD_OVERHEAD_MAX

_NO_PRODUCER_ID: Final = -1
_NO_PRODUCER_EPOCH: Final = -1


class Planned(NamedTuple):
    """A result that is not in the log yet."""

    result: Result
    send: Callable[[], None] | None
    """To be called when it is committed; None if nothing waits for that."""
    refuse: Callable[[ErrorCode], None]


class CoordinatorTurn:
    def __init__(self, partition: Partition, codec: Callable[[], CompressionType]) -> None:
        self._partition = partition
        self._codec = codec
        self.planned: list[Planned] = []
        """Read only: whether there is anything is asked with each request."""
        self._are_blind: dict[str, bool] = {}
        self._builder: BatchBuilder | None = None

    def concerns(self, key: str, *, is_blind: bool) -> bool:
        """Whether a plan for ``key`` must wait until what is here has been replayed."""
        was_blind = self._are_blind.get(key)
        return was_blind is not None and not (was_blind and is_blind)

    def has_room_for(self, result: Result) -> bool:
        """Whether the batch stays within ``max.message.bytes``; the first result always fits.

        One that is too large is refused by the log, and must not take others with it.
        """
        if self._builder is None:
            return True
        size = sum(
            RECORD_OVERHEAD_MAX + len(record.key_bytes()) + len(record.value_bytes() or b"")
            for record in result.records
        )
        return self._builder.size + size <= self._partition.log.config.max_message_bytes

    def add(self, key: str, planned: Planned, now_ms: int, *, is_blind: bool) -> None:
        assert planned.result.producer is None
        if self._builder is None:
            self._builder = BatchBuilder(codec=self._codec())
        append_records(self._builder, planned.result.records, now_ms)
        self.planned.append(planned)
        self._are_blind[key] = is_blind and self._are_blind.get(key, True)

    def take(self) -> tuple[list[Planned], bytearray]:
        """Return what is planned and its batch; nothing is planned any more."""
        assert self._builder is not None
        planned, batch = self.planned, self._builder.build()
        self.planned, self._builder = [], None
        self._are_blind.clear()
        return planned, batch

    def take_unwritten(self) -> list[Planned]:
        """Return what is planned and never will be written."""
        planned, self.planned, self._builder = self.planned, [], None
        self._are_blind.clear()
        return planned


def batch_of(result: Result, codec: CompressionType, now_ms: int) -> bytearray:
    """Return the records of one result as a batch: of its producer's transaction, if it has one."""
    producer_id, producer_epoch = result.producer or (_NO_PRODUCER_ID, _NO_PRODUCER_EPOCH)
    builder = BatchBuilder(
        codec=codec,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=result.producer is not None,
    )
    append_records(builder, result.records, now_ms)
    return builder.build()


def append_records(
    builder: BatchBuilder, records: Sequence[CoordinatorRecord], now_ms: int
) -> None:
    for record in records:
        builder.append(now_ms, record.key_bytes(), record.value_bytes())
