"""Broker configs: tiered storage.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
remote.log.storage.system.enable BOOLEAN false
    Whether tiered storage runs; Odradek has none yet.
remote.log.storage.manager.class.name STRING - not-empty
    The class that stores segments remotely; not loaded here.
remote.log.storage.manager.class.path STRING -
    Where that class is found.
remote.log.storage.manager.impl.prefix STRING rsm.config. not-empty
    The prefix of settings handed to that class.
remote.log.metadata.manager.class.name STRING \
org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager not-empty
    The class that keeps track of remote segments; not loaded here.
remote.log.metadata.manager.class.path STRING -
    Where that class is found.
remote.log.metadata.manager.impl.prefix STRING rlmm.config. not-empty
    The prefix of settings handed to that class.
remote.log.metadata.manager.listener.name STRING - not-empty
    The listener over which that class reaches the brokers.
remote.log.metadata.custom.metadata.max.bytes INT 128 0..
    The most bytes a storage class may add to a segment's metadata.
remote.log.index.file.cache.total.size.bytes LONG 1073741824 1.. cluster-wide
    Disk space for indexes of remote segments.
remote.log.index.file.cache.ttl.ms LONG 900000 -1.. internal
    How long an index of a remote segment is kept.
remote.log.manager.thread.pool.size INT 2 1..
    Threads for copying and expiring; the older single setting.
remote.log.manager.copier.thread.pool.size INT 10 1.. cluster-wide
    Threads that copy segments to remote storage.
remote.log.manager.expiration.thread.pool.size INT 10 1.. cluster-wide
    Threads that delete expired remote segments.
remote.log.manager.follower.thread.pool.size INT 2 1.. cluster-wide
    Threads that followers use for remote segments.
remote.log.manager.task.interval.ms LONG 30000 1..
    How often there is a look for segments to copy.
remote.log.manager.task.retry.backoff.ms LONG 500 1.. internal
    The first wait after a failed copy.
remote.log.manager.task.retry.backoff.max.ms LONG 30000 1.. internal
    The longest wait after failed copies.
remote.log.manager.task.retry.jitter DOUBLE 0.2 0..0.5 internal
    How much chance there is in those waits.
remote.log.manager.copy.max.bytes.per.second LONG 9223372036854775807 1.. cluster-wide
    How fast segments may be copied.
remote.log.manager.copy.quota.window.num INT 11 1..
    How many samples that rate is measured over.
remote.log.manager.copy.quota.window.size.seconds INT 1 1..
    How long each of those samples is.
remote.log.manager.fetch.max.bytes.per.second LONG 9223372036854775807 1.. cluster-wide
    How fast remote segments may be read.
remote.log.manager.fetch.quota.window.num INT 11 1..
    How many samples that rate is measured over.
remote.log.manager.fetch.quota.window.size.seconds INT 1 1..
    How long each of those samples is.
remote.log.reader.threads INT 10 1.. cluster-wide
    Threads that read remote segments for consumers.
remote.log.reader.max.pending.tasks INT 100 1..
    How many remote reads may wait for a thread.
remote.fetch.max.wait.ms INT 500 1.. cluster-wide
    How long a fetch waits for remote data.
remote.list.offsets.request.timeout.ms LONG 30000 1.. cluster-wide
    How long a search by time in remote segments may take.
log.local.retention.ms LONG -2 -2.. cluster-wide
    How long copied segments stay local; -2 is as long as the topic keeps records.
log.local.retention.bytes LONG -2 -2.. cluster-wide
    How many local bytes stay of what is copied; -2 is as many as the topic keeps.
log.remote.copy.lag.ms LONG 0 -1.. cluster-wide new
    How long a closed segment waits before it is copied.
log.remote.copy.lag.bytes LONG -1 -1.. cluster-wide new
    How many bytes of closed segments stay uncopied; -1 leaves it to local retention.
"""
