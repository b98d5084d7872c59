"""Broker configs: logs, retention, flushing and compaction; most are defaults for topics.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
log.dirs LIST - not-empty live
    Directories that hold the logs, separated by commas; log.dir if not set.
log.dir LIST /tmp/kafka-logs not-empty live
    The directory of the logs if log.dirs is not set.
cordoned.log.dirs LIST '' per-broker live
    Directories of log.dirs, or *, that take no new partitions.
num.partitions INT 1 1.. live
    Partitions of a topic that is created without a number.
auto.create.topics.enable BOOLEAN true live
    Whether asking for an unknown topic creates it; production turns this off.
delete.topic.enable BOOLEAN true live
    Whether topics may be deleted.
log.segment.bytes INT 1073741824 1048576.. cluster-wide live
    The size at which a segment is closed and the next begun.
log.roll.ms LONG - cluster-wide live
    The age at which a segment is closed, even if it is not full.
log.roll.hours INT 168 1.. live
    The same in hours, if log.roll.ms is not set.
log.roll.jitter.ms LONG - cluster-wide live
    Up to how much earlier a segment closes by chance, so that not all do at once.
log.roll.jitter.hours INT 0 0.. live
    The same in hours, if log.roll.jitter.ms is not set.
log.retention.ms LONG - cluster-wide live
    How long records are kept; -1 is for ever.
log.retention.minutes INT - live
    The same in minutes, if log.retention.ms is not set.
log.retention.hours INT 168 live
    The same in hours, if neither of the other two is set.
log.retention.bytes LONG -1 cluster-wide live
    The size above which a partition drops its oldest segments; -1 is no limit.
log.retention.check.interval.ms LONG 300000 1.. live
    How often logs are looked through for segments to delete.
log.cleanup.policy LIST delete compact|delete cluster-wide live
    What becomes of old records: delete, compact, both, or nothing.
log.index.size.max.bytes INT 10485760 4.. cluster-wide live
    The largest an index of a segment grows.
log.index.interval.bytes INT 4096 0.. cluster-wide live
    After how many bytes of records an index gets another entry.
log.flush.interval.messages LONG 9223372036854775807 1.. cluster-wide live
    After how many records a log is flushed to disk.
log.flush.interval.ms LONG - cluster-wide live
    How long a record may lie unflushed; log.flush.scheduler.interval.ms if not set.
log.flush.scheduler.interval.ms LONG 9223372036854775807 live
    How often logs are looked through for some to flush.
log.flush.offset.checkpoint.interval.ms INT 60000 0.. live
    How often the recovery points are written down.
log.flush.start.offset.checkpoint.interval.ms INT 60000 0.. live
    How often the start offsets of logs are written down.
log.segment.delete.delay.ms LONG 60000 0.. cluster-wide live
    How long a deleted segment stays on disk under another name.
log.preallocate BOOLEAN false cluster-wide live
    Whether a segment takes its full size on disk when it is created.
log.message.timestamp.type STRING CreateTime CreateTime|LogAppendTime cluster-wide live
    Whose time a record carries: the producer's or the broker's.
log.message.timestamp.before.max.ms LONG 9223372036854775807 0.. cluster-wide live
    How far a record's time may lie in the past.
log.message.timestamp.after.max.ms LONG 3600000 0.. cluster-wide live
    How far a record's time may lie in the future.
message.max.bytes INT 1048588 0.. cluster-wide live
    The largest batch of records that is taken, as it came, compressed.
compression.type STRING producer uncompressed|zstd|lz4|snappy|gzip|producer cluster-wide live
    How batches are stored: as the producer sent them, or with this codec.
compression.gzip.level INT -1 gzip-level cluster-wide live
    The level when the broker itself compresses with gzip.
compression.lz4.level INT 9 1..17 cluster-wide live
    The level when the broker itself compresses with lz4.
compression.zstd.level INT 3 -131072..22 cluster-wide live
    The level when the broker itself compresses with zstd.
num.recovery.threads.per.data.dir INT 2 1.. cluster-wide
    Threads for each directory that load logs at the start.
log.dir.failure.timeout.ms LONG 30000 1.. live
    How long a broker with a failed directory may be unable to say so before it stops.
log.initial.task.delay.ms LONG 30000 0.. internal live
    How long after the start the first check of the logs comes.
create.topic.policy.class.name CLASS -
    A class that may refuse new topics; classes of Java cannot be loaded here.
alter.config.policy.class.name CLASS -
    A class that may refuse config changes; classes of Java cannot be loaded here.
log.cleaner.enable BOOLEAN true live
    Whether compaction runs at all; Kafka has deprecated it.
log.cleaner.threads INT 1 0.. cluster-wide
    Threads that compact logs.
log.cleaner.io.max.bytes.per.second DOUBLE 1.7976931348623157E308 cluster-wide
    How fast the cleaner may read and write.
log.cleaner.dedupe.buffer.size LONG 134217728 cluster-wide live
    Memory for the cleaner's map from keys to offsets, for all its threads.
log.cleaner.io.buffer.size INT 524288 0.. cluster-wide
    Memory for what the cleaner reads and writes, for all its threads.
log.cleaner.io.buffer.load.factor DOUBLE 0.9 cluster-wide live
    How full the map from keys to offsets may become.
log.cleaner.backoff.ms LONG 15000 0.. cluster-wide live
    How long the cleaner rests when nothing is to be compacted.
log.cleaner.min.cleanable.ratio DOUBLE 0.5 0..1 cluster-wide live
    The part of a log that must be uncompacted before it is compacted.
log.cleaner.delete.retention.ms LONG 86400000 0.. cluster-wide live
    How long a tombstone stays after its log was compacted.
log.cleaner.min.compaction.lag.ms LONG 0 0.. cluster-wide live
    How old a record must be before it may be compacted away.
log.cleaner.max.compaction.lag.ms LONG 9223372036854775807 1.. cluster-wide live
    How old a record may be before its log must be compacted.
producer.id.expiration.ms INT 86400000 1.. cluster-wide live
    How long an idle producer's sequence numbers are remembered.
producer.id.expiration.check.interval.ms INT 600000 1.. internal live
    How often idle producers are looked for.
"""
