"""Where a follower cuts its log so that it is a prefix of its leader's (KIP-101, KIP-279).

Never at the high watermark: a follower learns of it one fetch late, so what lies above it may be
committed. After two quick failures that lost records.
"""

from odradek.replication.replica_log import ReplicaLog


def truncation_offset(log: ReplicaLog, epoch: int, end_offset: int) -> int:
    """Return where to cut, when the leader's records of ``epoch`` end at ``end_offset``.

    ``epoch`` is the greatest one that the leader has up to the last one of this log. If this log
    does not have it, its greatest one below is compared next, by the next fetch; all that comes
    after that is of epochs that the leader does not have.
    """
    log_end = log.log_end_offset
    if epoch < 0:  # the leader knows no epochs at all
        return min(log.high_watermark, log_end)
    found, own_end = log.leader_epochs.end_offset_for(epoch, log_end)
    if own_end < 0:  # this log has nothing of a later epoch than the leader's
        return min(end_offset, log_end)
    if found == epoch:
        return min(own_end, end_offset, log_end)
    return min(own_end, log_end)
