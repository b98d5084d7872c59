"""A follower that is behind the leader's log downloads a snapshot, piece by piece."""

import pytest

from odradek.core.errors import ErrorCode
from odradek.raft import BecameLeader, OffsetAndEpoch, QuorumError, RaftNode
from odradek.raft.messages import (
    BeginQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from odradek.raft.ready import StoreSnapshotPiece
from tests.unit.raft.epoch_log import KEYS, EpochLog, make_node

NONE = ErrorCode.NONE
SNAPSHOT = OffsetAndEpoch(6, 3)


def sent_to_download(log: EpochLog) -> tuple[RaftNode, FetchSnapshotRequest]:
    """A follower of node 1 in epoch 4, and its request for the first piece."""
    node = make_node(log)
    node.take_ready()
    node.step(BeginQuorumEpochRequest(5, KEYS[0], 1, 4), 0)
    fetch = node.take_ready().requests[-1].request
    node.step(
        FetchResponse(fetch.correlation_id, 1, NONE, 1, 4, high_watermark=8, snapshot_id=SNAPSHOT),
        0,
    )
    request = node.take_ready().requests[-1].request
    assert isinstance(request, FetchSnapshotRequest)
    return node, request


def piece(
    request: FetchSnapshotRequest, data: bytes, *, size: int = 10, error: ErrorCode = NONE
) -> FetchSnapshotResponse:
    return FetchSnapshotResponse(
        request.correlation_id, 1, error, 1, 4, request.snapshot_id, size, request.position, data
    )


def test_pieces_are_stored_in_order_and_the_log_begins_anew_behind_them() -> None:
    log = EpochLog([1, 2])
    node, first = sent_to_download(log)
    assert (first.snapshot_id, first.position) == (SNAPSHOT, 0)
    node.step(piece(first, b"head"), 0)
    ready = node.take_ready()
    assert ready.log_instruction == StoreSnapshotPiece(SNAPSHOT, 0, b"head", is_last=False)
    node.tick(0)
    second = node.take_ready().requests[-1].request
    assert isinstance(second, FetchSnapshotRequest)
    assert second.position == 4
    node.step(piece(second, b"thrust"), 0)
    assert node.take_ready().log_instruction == StoreSnapshotPiece(SNAPSHOT, 4, b"thrust", True)

    node.tick(100_000)  # stands for no election, and fetches nothing, while it is installed
    assert node.take_ready().is_empty
    log.epochs, log.log_start_offset, log.latest_snapshot = [0, 0, 0, 0, 0, 3], 6, SNAPSHOT
    node.on_snapshot_installed(SNAPSHOT, None, 100_000)
    ready = node.take_ready()
    assert ready.high_watermark == 6, "a snapshot holds what is committed"


@pytest.mark.parametrize(
    ("data", "size", "error"),
    [
        (b"", 10, NONE),
        (b"more than there is", 10, NONE),
        (b"", 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (b"", 0, ErrorCode.POSITION_OUT_OF_RANGE),
    ],
)
def test_a_failed_download_begins_again_with_a_fetch(
    data: bytes, size: int, error: ErrorCode
) -> None:
    node, request = sent_to_download(EpochLog([1, 2]))
    node.step(piece(request, data, size=size, error=error), 0)
    ready = node.take_ready()
    assert ready.log_instruction is None
    assert [type(send.request) for send in ready.requests] == [FetchRequest]


def test_a_snapshot_that_lacks_committed_records_stops_the_node() -> None:
    log = EpochLog([1, 2, 2, 2])
    node = make_node(log)
    node.take_ready()
    node.step(BeginQuorumEpochRequest(5, KEYS[0], 1, 4), 0)
    fetch = node.take_ready().requests[-1].request
    node.step(FetchResponse(fetch.correlation_id, 1, NONE, 1, 4, high_watermark=4), 0)
    node.tick(0)
    fetch = node.take_ready().requests[-1].request
    response = FetchResponse(
        fetch.correlation_id, 1, NONE, 1, 4, high_watermark=4, snapshot_id=OffsetAndEpoch(3, 3)
    )
    with pytest.raises(QuorumError, match="offers a snapshot that ends at 3"):
        node.step(response, 0)


def leader_with_snapshot() -> RaftNode:
    log = EpochLog([1, 1, 2, 2, 2, 3, 3], 4, OffsetAndEpoch(4, 2), SNAPSHOT)
    node = make_node(log, size=1)
    ready = node.take_ready()
    assert any(isinstance(event, BecameLeader) for event in ready.events)
    log.epochs.append(node.epoch)
    node.on_appended(0)
    node.on_flushed(log.log_end_offset, 0)
    node.take_ready()
    return node


@pytest.mark.parametrize(
    ("snapshot_id", "position", "epoch_ahead", "error"),
    [
        (OffsetAndEpoch(5, 3), 0, 0, ErrorCode.SNAPSHOT_NOT_FOUND),
        (SNAPSHOT, 600, 0, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, -1, 0, ErrorCode.POSITION_OUT_OF_RANGE),
        (SNAPSHOT, 0, -1, ErrorCode.FENCED_LEADER_EPOCH),
        (SNAPSHOT, 0, 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_leader_refuses_what_it_cannot_give(
    snapshot_id: OffsetAndEpoch, position: int, epoch_ahead: int, error: ErrorCode
) -> None:
    node = leader_with_snapshot()
    epoch = node.epoch + epoch_ahead
    node.step(FetchSnapshotRequest(9, KEYS[1], epoch, snapshot_id, position, 1 << 20), 0)
    ready = node.take_ready()
    assert ready.snapshot_reads == ()
    assert [reply.error for reply in ready.replies] == [error]


def test_a_leader_reads_the_piece_asked_for() -> None:
    node = leader_with_snapshot()
    node.step(FetchSnapshotRequest(9, KEYS[1], node.epoch, SNAPSHOT, 40, 100), 0)
    (read,) = node.take_ready().snapshot_reads
    assert (read.snapshot_id, read.position, read.max_bytes) == (SNAPSHOT, 40, 100)
    assert (read.response.size, read.response.correlation_id) == (600, 9)
