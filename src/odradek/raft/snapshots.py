"""FetchSnapshot: the snapshot that replaces a log which is too short or of another history.

The leader names a snapshot in its answer to a Fetch. The follower asks for it piece by piece and
writes each piece to an unfinished file. When all of it is there, the driver syncs and renames the
file and lets the log begin anew at the snapshot's end; then the follower fetches on from there. A
leader change or a refusal ends a download: the follower begins again with a Fetch.

A snapshot holds committed records only, so that installing it is right under whichever leader.
"""

from odradek.core.errors import ErrorCode
from odradek.raft.leader import Leader
from odradek.raft.log_view import log_end
from odradek.raft.messages import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    OffsetAndEpoch,
    QuorumError,
)
from odradek.raft.quorum import Quorum
from odradek.raft.ready import SnapshotRead, StoreSnapshotPiece
from odradek.raft.roles import Follower, SnapshotDownload


def begin_download(
    quorum: Quorum, role: Follower, snapshot_id: OffsetAndEpoch, now_ms: int
) -> None:
    end, high_watermark = log_end(quorum.log), quorum.high_watermark
    is_ahead = (snapshot_id.epoch, snapshot_id.offset) > (end.epoch, end.offset)
    if snapshot_id.offset < 0 or snapshot_id.epoch < 0 or not is_ahead:
        # Nothing to gain: the leader is mistaken, and must not be asked again and again.
        quorum.requests.back_off(role.leader_id, now_ms)
        return
    if high_watermark is not None and snapshot_id.offset < high_watermark:
        raise QuorumError(
            f"leader {role.leader_id} of epoch {quorum.epoch} offers a snapshot that ends at "
            f"{snapshot_id.offset}, but records up to {high_watermark} are committed"
        )
    role.download = SnapshotDownload(snapshot_id)


def fetch_piece(quorum: Quorum, role: Follower, now_ms: int) -> None:
    """Keep one request for the next piece under way."""
    download = role.download
    assert download is not None
    if quorum.requests.is_in_flight() or not quorum.requests.may_send(role.leader_id, now_ms):
        return
    request = FetchSnapshotRequest(
        quorum.requests.open(role.leader_id, now_ms),
        quorum.key,
        quorum.epoch,
        download.id,
        download.position,
        quorum.config.fetch_snapshot_max_bytes,
    )
    quorum.outbox.send(role.leader_id, request)


def on_piece(quorum: Quorum, role: Follower, response: FetchSnapshotResponse, now_ms: int) -> None:
    download = role.download
    if role.fetch_deadline_ms is not None:
        role.fetch_deadline_ms = quorum.fetch_deadline(role.leader_id, now_ms)
    end = response.position + len(response.data)
    if (
        download is None
        or (response.snapshot_id, response.position) != (download.id, download.position)
        or not response.data
        or end > response.size
    ):
        role.download = None
        quorum.requests.back_off(role.leader_id, now_ms)
        return
    download.position = end
    is_last = end == response.size
    quorum.outbox.log_instruction = StoreSnapshotPiece(
        download.id, response.position, response.data, is_last
    )
    if is_last:
        role.download = None
        quorum.is_installing = True


def on_snapshot_request(quorum: Quorum, request: FetchSnapshotRequest, now_ms: int) -> None:
    leader = quorum.role
    error, size = quorum.refuse_to_lead(request.current_leader_epoch), None
    if error is ErrorCode.NONE:
        size = quorum.log.snapshot_size(request.snapshot_id)
        if size is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= request.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    response = FetchSnapshotResponse(
        request.correlation_id,
        quorum.key.id,
        error,
        quorum.leader_id,
        quorum.epoch,
        request.snapshot_id,
        size or 0,
        request.position,
    )
    if error is not ErrorCode.NONE:
        quorum.outbox.reply(response)
        return
    assert isinstance(leader, Leader)
    if leader.on_snapshot_fetch(request.replica):
        quorum.extend_check_quorum(leader, now_ms)
    read = SnapshotRead(request.snapshot_id, request.position, max(request.max_bytes, 1), response)
    quorum.outbox.snapshot_reads.append(read)
