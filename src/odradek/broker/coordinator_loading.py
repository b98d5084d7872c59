"""Replays partitions into the shards of their coordinators, after an election.

All of the log is replayed, also what lies above the high watermark: this leader will see it
committed (``coordinator_outbox`` holds answers back until then). Nothing is appended meanwhile,
since shards that are not loaded refuse requests and markers, so the end of the log stays where it
was at the election.

One partition after the other, in slices of the loop's time: a broker that takes over fifty
partitions serves others meanwhile. A partition that is resigned while it is loaded is dropped at
once, at the next of a slice's steps.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, Generic

from odradek.broker.coordinator_shards import Led, S
from odradek.core.errors import ApiError, CorruptionError
from odradek.core.slices import Slices, Steps
from odradek.protocol.message import Message
from odradek.records import BatchHeader, ControlRecordType, read_records
from odradek.storage.disk import Buffer
from odradek.storage.producer_replay import read_marker
from odradek.storage.scan import iter_batches

LOAD_BYTES_PER_READ: Final = 256 * 1024
RECORDS_PER_STEP: Final = 50
NO_PRODUCER_ID: Final = -1
_log = logging.getLogger("odradek.coordinator")

Decode = Callable[[bytes, bytes | None], tuple[Message, Message | None] | None]
"""Makes messages of a record's bytes; None for a type of record that we do not know."""


class CoordinatorLoading(Generic[S]):
    def __init__(
        self,
        slices: Slices,
        decode: Decode,
        is_led: Callable[[Led[S]], bool],
        on_loaded: Callable[[Led[S]], Steps[None]],
        on_failed: Callable[[Led[S]], None],
    ) -> None:
        """``is_led`` says whether a shard is still wanted; one of the others is called for it."""
        self._slices = slices
        self._decode = decode
        self._is_led = is_led
        self._on_loaded = on_loaded
        self._on_failed = on_failed
        self._waiting: deque[Led[S]] = deque()
        self._is_loading = False

    def load(self, led: Led[S]) -> None:
        """Load a shard, at once if there is little to load and nothing before it."""
        if led.loaded_offset >= led.partition.log.log_end_offset:
            for _ in self._on_loaded(led):  # it need not wait for others, and there is little
                pass
            return
        self._waiting.append(led)
        if not self._is_loading:
            self._is_loading = True
            self._slices.run(self._load_all(), self._on_all_loaded)

    def _on_all_loaded(self, _outcome: None) -> None:
        self._is_loading = False

    def _load_all(self) -> Steps[None]:
        while self._waiting:
            led = self._waiting.popleft()
            try:
                yield from self._replay(led)
                if self._is_led(led):
                    yield from self._on_loaded(led)
            except Exception as error:
                # Better no coordinator than one that has forgotten half of what it promised. Those
                # of other partitions must not suffer, whatever is wrong with this one's records.
                is_known = isinstance(error, ApiError | CorruptionError)
                _log.error(  # with a traceback only where the error does not say it all
                    "%s cannot be loaded: %s", led.partition.key, error, exc_info=not is_known
                )
                self._on_failed(led)
            yield

    def _replay(self, led: Led[S]) -> Steps[None]:
        while self._is_led(led):
            log = led.partition.log  # another one after a move between directories
            offset = max(led.loaded_offset, log.log_start_offset)  # records may be deleted
            if offset >= log.log_end_offset:
                return
            records = log.read(offset, bytes_max=LOAD_BYTES_PER_READ).records
            if not records:
                return  # compaction left nothing up to the end
            for header in iter_batches(records):
                yield from self._replay_batch(led, records, header)
                if not self._is_led(led):
                    return
                led.loaded_offset = header.next_offset
                yield

    def _replay_batch(self, led: Led[S], buffer: Buffer, header: BatchHeader) -> Steps[None]:
        shard = led.shard
        if header.is_control:
            marker = read_marker(buffer, header)
            if marker is not None:
                is_committed = marker.type is ControlRecordType.COMMIT
                shard.replay_marker(header.producer_id, is_committed=is_committed)
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        for count, record in enumerate(read_records(buffer, header), 1):
            decoded = self._decode(bytes(record.key or b""), record.value)
            if decoded is not None:
                key, value = decoded
                shard.replay(key, value, offset=record.offset, producer_id=producer_id)
            if count % RECORDS_PER_STEP == 0:
                yield
                if not self._is_led(led):
                    return  # the buffer may show what is truncated by now
