"""A replica of the metadata log that never votes: what a broker is to its controllers.

It speaks with the codecs of `odradek.quorum` and feeds what it gets to `odradek.metadata`, one
request at a time, over a blocking connection. Anything that Kafka's controllers say and these
cannot read fails the test that asked.
"""

import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import NamedTuple, Self, TypeVar

from odradek.core.errors import ErrorCode
from odradek.metadata import ClusterImage, MetadataLoader, MetadataProvenance
from odradek.metadata.snapshots import QuorumRecords, SnapshotReader
from odradek.protocol.apis import api_for_key
from odradek.protocol.generated.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from odradek.protocol.generated.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from odradek.protocol.message import Message
from odradek.protocol.versioned import decode_metadata
from odradek.quorum.raft_channel_port import Sender
from odradek.quorum.raft_requests import request_to_wire
from odradek.quorum.raft_responses import leader_address_in, response_from_wire
from odradek.raft.messages import (
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    ReplicaKey,
    Request,
    Response,
)
from odradek.records import iter_headers, read_records, verify_crc
from tests.broker_connection import BrokerConnection

WAIT_SECONDS_MAX = 120.0
FETCH_BYTES_MAX = 1 << 20
MAX_WAIT_MS = 100

R = TypeVar("R", bound=Message)


class Controller(BrokerConnection):
    """A connection to a controller listener that speaks the newest version both sides know."""

    def __init__(self, port: int) -> None:
        super().__init__(port, client_id="observer")
        self.port = port
        request = ApiVersionsRequest(client_software_name="odradek", client_software_version="1")
        self.api_versions = super().ask(request, ApiVersionsResponse, 4)
        self.versions = {
            each.api_key: (each.min_version, each.max_version)
            for each in self.api_versions.api_keys
        }

    def version_for(self, key: int) -> int:
        api, (_, theirs) = api_for_key(key), self.versions[key]
        return min(api.version_max, theirs)

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        return super().ask(
            request, response, self.version_for(request.ID) if version is None else version
        )

    def ask_raft(self, request: Request, sender: Sender) -> tuple[Message, Response]:
        message = request_to_wire(request, sender)
        answer = self.ask(message, api_for_key(message.ID).response())
        return answer, response_from_wire(answer, request.correlation_id, sender=-1)


class Batch(NamedTuple):
    last: MetadataProvenance
    messages: list[tuple[int, Message]]
    quorum: QuorumRecords


class Observer:
    """Follows the leader among ``ports``; ``image`` is what has been committed."""

    def __init__(
        self, ports: Iterable[int], cluster_id: str, replica: ReplicaKey, offset: int = 0
    ) -> None:
        self.ports = list(ports)
        self.sender = Sender(cluster_id, (), FETCH_BYTES_MAX)
        self.replica = replica
        self.loader = MetadataLoader()
        self.quorum = QuorumRecords()
        self.end = OffsetAndEpoch(offset, 0)
        self.high_watermark: int | None = None
        self.leader_id: int | None = None
        self.leader_epoch = 0
        self.records: list[tuple[int, Message]] = []
        """Every record of metadata that came, with its offset."""
        self.snapshots: list[OffsetAndEpoch] = []
        self.loaded_offset = offset - 1
        self._fetched: list[Batch] = []  # not committed yet
        self._requests = 0
        self._connection: Controller | None = None
        self._next_port = 0

    @property
    def image(self) -> ClusterImage:
        return self.loader.image

    @property
    def leader(self) -> Controller:
        """Return the connection to the leader, found by asking each controller if need be."""
        if self._connection is None:
            wait_until(self._find_leader, "no controller says who leads")
        assert self._connection is not None
        return self._connection

    def ask(self, request: Message, response: type[R], version: int | None = None) -> R:
        return self.leader.ask(request, response, version)

    def follow_until(self, condition: Callable[[ClusterImage], object], what: str) -> ClusterImage:
        def fetched() -> bool:
            self.fetch()
            return bool(condition(self.image))

        wait_until(fetched, what)
        return self.image

    def catch_up(self) -> ClusterImage:
        """Fetch until all that is committed now has been loaded."""
        self.fetch()
        end = self.high_watermark or 0
        wait_until(lambda: self.fetch() and self.loaded_offset >= end - 1, "never caught up")
        return self.image

    def wait_for_controller(self, *, other_than: int | None) -> None:
        """Go over to the next leader, and wait until it is the active controller."""
        nothing = AllocateProducerIdsRequest(broker_id=-1, broker_epoch=-1)

        def is_active() -> bool:
            if not self.fetch() or self.leader_id == other_than:
                return False
            answer = self.ask(nothing, AllocateProducerIdsResponse)
            return answer.error_code != ErrorCode.NOT_CONTROLLER

        wait_until(is_active, "no other controller")

    def fetch(self) -> bool:
        """Ask once; load what came."""
        try:
            answer = self.ask_fetch(self.leader, self.end)
        except OSError:
            self.forget_leader()
            return False
        if answer.error is not ErrorCode.NONE:
            self.forget_leader()
            return False
        self.high_watermark = answer.high_watermark
        if answer.diverging_epoch is not None:
            self._truncate(answer.diverging_epoch)
            return True
        if answer.snapshot_id is not None:
            self._load_snapshot(answer.snapshot_id)
        elif answer.records is not None:
            self._take(bytes(answer.records))  # type: ignore[call-overload]
        self._load_committed()
        return True

    def ask_fetch(self, connection: Controller, end: OffsetAndEpoch) -> FetchResponse:
        self._requests += 1
        request = FetchRequest(
            self._requests,
            self.replica,
            self.leader_epoch,
            end.offset,
            end.epoch,
            self.high_watermark,
            MAX_WAIT_MS,
        )
        _, response = connection.ask_raft(request, self.sender)
        assert isinstance(response, FetchResponse)
        return response

    def ask_snapshot(self, snapshot_id: OffsetAndEpoch, position: int) -> FetchSnapshotResponse:
        self._requests += 1
        request = FetchSnapshotRequest(
            self._requests,
            self.replica,
            self.leader_epoch,
            snapshot_id,
            position,
            FETCH_BYTES_MAX,
        )
        _, response = self.leader.ask_raft(request, self.sender)
        assert isinstance(response, FetchSnapshotResponse)
        return response

    def forget_leader(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def close(self) -> None:
        self.forget_leader()

    def _find_leader(self) -> bool:
        """Ask the next controller by a Fetch in an epoch that has passed: it names the leader."""
        port = self.ports[self._next_port % len(self.ports)]
        self._next_port += 1
        try:
            connection = Controller(port)
        except OSError:
            return False
        message, answer = connection.ask_raft(
            FetchRequest(0, self.replica, self.leader_epoch, 0, 0, None, 0), self.sender
        )
        assert isinstance(answer, FetchResponse)
        self.leader_epoch = max(self.leader_epoch, answer.leader_epoch)
        address = leader_address_in(message)
        if answer.leader_id is None or (address is None and answer.error is not ErrorCode.NONE):
            connection.close()
            return False
        if address is not None and address.port != port:
            connection.close()
            connection = Controller(address.port)
        self.leader_id, self._connection = answer.leader_id, connection
        return True

    def _truncate(self, diverging: OffsetAndEpoch) -> None:
        """Forget what only a leader that has failed had; what is committed never diverges."""
        end = diverging.offset
        self._fetched = [each for each in self._fetched if each.last.last_offset < end]
        last = self._fetched[-1].last if self._fetched else self.image.provenance
        self.end = OffsetAndEpoch(last.last_offset + 1, last.last_epoch)

    def _take(self, data: bytes) -> None:
        for header in iter_headers(data, partial_tail=True):
            verify_crc(data, header)
            records = [] if header.is_control else list(read_records(data, header))
            messages = [(each.offset, decode_metadata(each.value or b"")) for each in records]
            epoch = header.partition_leader_epoch
            provenance = MetadataProvenance(header.last_offset, epoch)
            self._fetched.append(Batch(provenance, messages, self.quorum.after(data, header)))
            self.quorum = self._fetched[-1].quorum
            self.end = OffsetAndEpoch(header.next_offset, epoch)

    def _load_committed(self) -> None:
        while self._fetched and self._fetched[0].last.last_offset < (self.high_watermark or 0):
            batch = self._fetched.pop(0)
            self.loader.load([message for _, message in batch.messages], batch.last)
            self.records += batch.messages
            self.loaded_offset = batch.last.last_offset
        self.image.check_invariants()

    def _load_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshots.append(snapshot_id)
        data = bytearray()
        while True:
            piece = self.ask_snapshot(snapshot_id, len(data))
            assert piece.error is ErrorCode.NONE, piece
            data += piece.data
            if len(data) >= piece.size:
                break
        reader = SnapshotReader(bytes(data))
        provenance = MetadataProvenance(snapshot_id.offset - 1, snapshot_id.epoch)
        self.loader.load_snapshot(reader.records(), provenance)
        self.loaded_offset = provenance.last_offset
        self._fetched.clear()
        self.quorum = reader.quorum
        self.end = snapshot_id
        self.image.check_invariants()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
