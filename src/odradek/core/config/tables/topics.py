"""Topic configs.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
cleanup.policy LIST delete compact|delete live
    What becomes of old records: delete, compact, both, or nothing.
compression.type STRING producer uncompressed|zstd|lz4|snappy|gzip|producer live
    How batches are stored: as the producer sent them, or with this codec.
compression.gzip.level INT -1 gzip-level live
    The level when the broker itself compresses with gzip.
compression.lz4.level INT 9 1..17 live
    The level when the broker itself compresses with lz4.
compression.zstd.level INT 3 -131072..22 live
    The level when the broker itself compresses with zstd.
delete.retention.ms LONG 86400000 0.. live
    How long a tombstone stays after its log was compacted.
errors.deadletterqueue.group.enable BOOLEAN false new
    Whether share groups may write their dead letters here.
file.delete.delay.ms LONG 60000 0.. live
    How long a deleted segment stays on disk under another name.
flush.messages LONG 9223372036854775807 1.. live
    After how many records a log is flushed to disk.
flush.ms LONG 9223372036854775807 0.. live
    How long a record may lie unflushed.
follower.replication.throttled.replicas LIST '' replicas live
    Replicas whose fetching is throttled, as partition:broker, or *.
index.interval.bytes INT 4096 0.. live
    After how many bytes of records an index gets another entry.
internal.segment.bytes INT - live internal
    A segment size without lower limit, for tests; wins over segment.bytes.
leader.replication.throttled.replicas LIST '' replicas live
    Replicas whose sending is throttled, as partition:broker, or *.
local.retention.bytes LONG -2 -2..
    How many local bytes stay of what is copied; -2 is retention.bytes.
local.retention.ms LONG -2 -2..
    How long copied segments stay local; -2 is retention.ms.
max.compaction.lag.ms LONG 9223372036854775807 1.. live
    How old a record may be before its log must be compacted.
max.message.bytes INT 1048588 0.. live
    The largest batch of records that is taken, as it came, compressed.
message.timestamp.after.max.ms LONG 3600000 0.. live
    How far a record's time may lie in the future.
message.timestamp.before.max.ms LONG 9223372036854775807 0.. live
    How far a record's time may lie in the past.
message.timestamp.type STRING CreateTime CreateTime|LogAppendTime live
    Whose time a record carries: the producer's or the broker's.
min.cleanable.dirty.ratio DOUBLE 0.5 0..1 live
    The part of a log that must be uncompacted before it is compacted.
min.compaction.lag.ms LONG 0 0.. live
    How old a record must be before it may be compacted away.
min.insync.replicas INT 1 1.. live
    How many replicas must be in sync for acks=all to succeed.
preallocate BOOLEAN false live
    Whether a segment takes its full size on disk when it is created.
remote.copy.lag.bytes LONG -1 -1.. new
    How many bytes of closed segments stay uncopied; -1 leaves it to local retention.
remote.copy.lag.ms LONG 0 -1.. new
    How long a closed segment waits before it is copied.
remote.log.copy.disable BOOLEAN false
    Whether no more segments are copied to remote storage.
remote.log.delete.on.disable BOOLEAN false
    Whether remote segments go when remote storage is turned off.
remote.storage.enable BOOLEAN false
    Whether the topic uses tiered storage; Odradek has none yet.
retention.bytes LONG -1 live
    The size above which a partition drops its oldest segments; -1 is no limit.
retention.ms LONG 604800000 -1.. live
    How long records are kept; -1 is for ever.
segment.bytes INT 1073741824 1048576.. live
    The size at which a segment is closed and the next begun.
segment.index.bytes INT 10485760 4.. live
    The largest an index of a segment grows.
segment.jitter.ms LONG 0 0.. live
    Up to how much earlier a segment closes by chance, so that not all do at once.
segment.ms LONG 604800000 1.. live
    The age at which a segment is closed, even if it is not full.
unclean.leader.election.enable BOOLEAN false live
    Whether a replica that may lack records can become leader.
"""
