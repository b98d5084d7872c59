"""Rows of one partition after the other into its log, but for those that the broker refuses.

One batch of a partition is under way at a time. So a batch that a broker finds too large can be cut
smaller, and rows that it refuses left out, without a later batch being in the way of the sequence
numbers. Brokers name the rows at fault (KIP-467). Of one that does not, before Kafka 2.4, or that
means the size of a batch, smaller batches find them out.
"""

from collections.abc import Callable, Iterator
from typing import Final

from odradek.client.errors import BrokerError
from odradek.client.producer.batch import NO_PRODUCER, NO_SEQUENCE, SEQUENCE_MASK
from odradek.client.producer.settings import ProducerOptions
from odradek.core.errors import ErrorCode
from odradek.core.ids import TopicPartition
from odradek.protocol.generated.produce import PartitionProduceResponse
from odradek.records import parse_header
from odradek.records.arrow import to_batches
from odradek.spark.sink_rows import BadRow, Rows
from odradek.spark.task_requests import TaskRequests

_OF_SIZE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_OF_ROWS: Final = _OF_SIZE | {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}


class TaskDelivery:
    def __init__(
        self,
        requests: TaskRequests,
        options: ProducerOptions,
        *,
        batch_bytes: int,
        now_ms: Callable[[], int],
    ) -> None:
        self._requests = requests
        self._options = options
        self._batch_bytes = batch_bytes
        self._now_ms = now_ms
        self.producer = NO_PRODUCER
        self._sequences: dict[TopicPartition, int] = {}
        # Topics that take less, and partitions where a bad row is looked for.
        self._limits: dict[str, int] = {}
        self._searches: dict[TopicPartition, int] = {}

    @property
    def partitions(self) -> set[TopicPartition]:
        """Those that rows were sent to, or will be."""
        return set(self._sequences)

    def add(self, partition: TopicPartition) -> None:
        first = NO_SEQUENCE if self.producer == NO_PRODUCER else 0
        self._sequences.setdefault(partition, first)

    async def deliver(self, partition: TopicPartition, rows: Rows) -> list[BadRow]:
        """Return when all rows are in the leader's log, but for those that were refused.

        Raises:
            KafkaError: Something could not be delivered, or is refused whatever rows are in it.
        """
        bad: list[BadRow] = []
        while len(rows):
            rows, refused = await self._deliver_until_refused(partition, rows)
            bad += refused
        return bad

    async def _deliver_until_refused(
        self, partition: TopicPartition, rows: Rows
    ) -> tuple[Rows, list[BadRow]]:
        """Send batch after batch; return rows that are left, and those that cannot be sent."""
        start = 0
        for batch in self._encode(partition, rows):
            count = parse_header(batch).records_count
            answer = await self._requests.append(partition, batch)
            if answer.error_code not in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                return self._on_refused(partition, rows.slice(start), count, len(batch), answer)
            start += count
            sequence = self._sequences[partition]
            if sequence != NO_SEQUENCE:
                self._sequences[partition] = (sequence + count) & SEQUENCE_MASK
        return rows.slice(start), []

    def _encode(self, partition: TopicPartition, rows: Rows) -> Iterator[bytearray]:
        value = rows.find("value")
        assert value is not None
        limit = self._limits.get(partition.topic, self._batch_bytes)
        return to_batches(
            value,
            key=rows.find("key"),
            headers=rows.find("headers"),
            timestamp_ms=self._now_ms(),
            batch_bytes_max=min(limit, self._searches.get(partition, limit)),
            codec=self._options.codec,
            level=self._options.codec_level,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            base_sequence=self._sequences[partition],
            transactional=self._options.transactional_id is not None,
        )

    def _on_refused(
        self,
        partition: TopicPartition,
        rows: Rows,
        count: int,
        size: int,
        answer: PartitionProduceResponse,
    ) -> tuple[Rows, list[BadRow]]:
        """Find the rows at fault among the first ``count``; nothing of them is in the log."""
        error = BrokerError(answer.error_code, answer.error_message, about=str(partition))
        if error.code not in _OF_ROWS:
            raise error
        reasons = {
            each.batch_index: each.batch_index_error_message
            for each in answer.record_errors
            if 0 <= each.batch_index < count
        }
        if answer.record_errors and not reasons:
            raise error  # it names rows that were not there: what it means nobody can tell
        if not reasons and count > 1:
            self._cut(partition, error.code, size // 2)
            return rows, []
        self._searches.pop(partition, None)
        bad = [
            _bad_row(rows, index, error, reason, partition)
            for index, reason in (reasons or {0: None}).items()
        ]
        return rows.without(list(reasons or {0: None})), bad

    def _cut(self, partition: TopicPartition, code: ErrorCode, limit: int) -> None:
        if code in _OF_SIZE:
            self._limits[partition.topic] = max(1, limit)
        else:
            self._searches[partition] = max(1, limit)


def _bad_row(
    rows: Rows, index: int, error: BrokerError, reason: str | None, partition: TopicPartition
) -> BadRow:
    if reason is None:
        told = str(error)
    else:
        # What is wrong with this row, not with all that were refused beside it.
        told = str(BrokerError(error.code, reason, about=str(partition)))
    row = rows.bad(
        index,
        told,
        partition.topic,
        partition.partition,
        is_too_large=error.code in _OF_SIZE,
    )
    return row._replace(code=error.code.name)
