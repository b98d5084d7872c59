"""A metadata quorum of which the test says what is committed and who leads."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from odradek.control.controller_host import ControllerHost
from odradek.core.errors import ApiError, ErrorCode
from odradek.core.ids import Uuid
from odradek.core.slices import SLICE_US_MAX, Slices
from odradek.metadata import ClusterImage, VersionedRecord
from odradek.metadata.image import MetadataProvenance
from odradek.metadata.loader import MetadataLoader
from odradek.metadata.snapshots import QuorumRecords
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata
from odradek.quorum.metadata_batch import MetadataBatch
from odradek.quorum.quorum_listener import NotLeaderError, QuorumListener
from odradek.raft.messages import ReplicaKey
from odradek.raft.voters import VoterSet
from odradek.records import read_records
from odradek.storage.scan import iter_batches


@dataclass
class StandInQuorum:
    """A log of batches, as bytes; a control batch counts as one record."""

    epoch: int = 5
    node_id: int = 1
    leader_id: int | None = None
    voter_ids: tuple[int, ...] = (1,)
    kraft_version: int = 0
    upgraded_voters: VoterSet | None = None
    has_space: bool = True
    is_broken: bool = False
    resigned: bool = False
    batches: list[list[Message]] = field(default_factory=list)
    quorum_records: list[QuorumRecords] = field(default_factory=list)
    raft_requests: list[Message] = field(default_factory=list)
    answer: Message | None = None
    """To each of them; None: none."""
    listeners: list[QuorumListener] = field(default_factory=list)
    loader: MetadataLoader = field(default_factory=MetadataLoader)
    _ends: list[int] = field(default_factory=list)
    _committed: int = 0

    @property
    def appended_kraft_version(self) -> int:
        return self.kraft_version

    @property
    def replica_key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, Uuid(b"directory of one"))

    @property
    def committed_image(self) -> ClusterImage:
        return self.loader.image

    @property
    def log_end_offset(self) -> int:
        return self._ends[-1] if self._ends else 0

    def new_batch(self, records: Iterable[VersionedRecord] = ()) -> MetadataBatch:
        return MetadataBatch(records, 0)

    def append(self, batch: MetadataBatch, epoch: int) -> int:
        if epoch != self.epoch:
            raise NotLeaderError
        if self.is_broken:
            raise OSError(5, "input/output error")
        if not self.has_space:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
        data = batch.build()
        (header,) = iter_batches(data)
        records = [decode_metadata(each.value or b"") for each in read_records(data, header)]
        self._add(records, len(records))
        return self.log_end_offset

    def append_quorum(self, records: QuorumRecords, epoch: int) -> None:
        if epoch != self.epoch:
            raise NotLeaderError
        self.quorum_records.append(records)
        self._add([], 1)

    def resign(self) -> None:
        self.resigned = True

    def handle(self, request: Message, version: int, reply: Callable[[Message], None]) -> None:
        self.raft_requests.append(request)
        if self.answer is not None:
            reply(self.answer)

    def add_listener(self, listener: QuorumListener) -> None:
        self.listeners.append(listener)

    # What the test does.

    def lead(self, host: ControllerHost | QuorumListener) -> None:
        """Lead an epoch that begins where the log ends; its first record is committed at once."""
        self.leader_id = self.node_id
        start = self.log_end_offset
        host.on_leading(self.epoch, start)
        self._add([], 1)
        self.commit(host)

    def lose_last_batch(self) -> None:
        """Have a batch in no other log: a new leader never had it."""
        del self.batches[-1], self._ends[-1]

    def commit(self, host: ControllerHost | QuorumListener, but: int = 0) -> None:
        """Commit all batches, or all but the last ones."""
        while self._committed < len(self.batches) - but:
            batch, end = self.batches[self._committed], self._ends[self._committed]
            self._committed += 1
            update = self.loader.load(batch, MetadataProvenance(end - 1, self.epoch, 0))
            if update is not None and isinstance(host, QuorumListener):
                host.on_update(update)
        host.on_loaded(self._ends[self._committed - 1] if self._committed else 0)

    def _add(self, records: list[Message], count: int) -> None:
        self.batches.append(records)
        self._ends.append(self.log_end_offset + count)


class Turns:
    """Slices whose turns the test takes; every step takes a slice if ``is_slow``."""

    def __init__(self) -> None:
        self.is_slow = False
        self._now_us = 0
        self._due: deque[Callable[[], None]] = deque()
        self.slices = Slices(self._tell_time, self._call_soon)

    def take(self, count: int = 1) -> None:
        for _ in range(count):
            if self._due:
                self._due.popleft()()

    def take_all(self) -> None:
        while self._due:
            self.take()

    @property
    def is_idle(self) -> bool:
        return not self._due

    def _tell_time(self) -> int:
        self._now_us += SLICE_US_MAX // 2 if self.is_slow else 0
        return self._now_us

    def _call_soon(self, callback: Callable[[], None]) -> "Turns":
        self._due.append(callback)
        return self

    def cancel(self) -> None:
        self._due.clear()
