"""Broker configs: the controller quorum and its metadata log.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
controller.quorum.bootstrap.servers LIST '' live
    Controllers to ask who leads the quorum, as host:port.
controller.quorum.voters LIST '' live
    The fixed set of voters, as id@host:port; the older way to name them.
controller.quorum.auto.join.enable BOOLEAN false
    Whether a controller makes itself a voter.
controller.quorum.election.timeout.ms INT 1000 0.. live
    How long to wait for a leader before asking for votes.
controller.quorum.election.backoff.max.ms INT 1000 0.. live
    The longest wait before another election is tried.
controller.quorum.fetch.timeout.ms INT 2000 0.. live
    How long a follower may go without a fetch from the leader succeeding.
controller.quorum.fetch.max.bytes INT 1048576 1.. live
    The most bytes of one fetch from the metadata log.
controller.quorum.fetch.snapshot.max.bytes INT 1048576 1.. live
    The most bytes of one fetch of a snapshot.
controller.quorum.append.linger.ms INT 25 0..
    How long the leader gathers records before it writes them.
controller.quorum.request.timeout.ms INT 2000 0.. live
    How long a request within the quorum may take.
controller.quorum.retry.backoff.ms INT 20 0.. live
    How long to wait before asking a quorum member again.
controller.performance.sample.period.ms LONG 60000 100.. internal
    How often the controller reports how long its work takes.
controller.performance.always.log.threshold.ms LONG 2000 0.. internal
    Work of the controller that takes longer is always logged.
broker.heartbeat.interval.ms INT 2000 live
    How often a broker tells the controller that it is alive.
broker.session.timeout.ms INT 9000 live
    How long the controller waits for a heartbeat before it fences the broker.
initial.broker.registration.timeout.ms INT 60000 live
    How long a starting broker tries to register.
metadata.log.dir STRING - live
    Where the metadata log lies; the first of log.dirs if not set.
metadata.log.segment.bytes INT 1073741824 8388608.. live
    The size at which a segment of the metadata log is closed.
metadata.log.segment.ms LONG 604800000 live
    The age at which a segment of the metadata log is closed.
metadata.log.max.record.bytes.between.snapshots LONG 20971520 1.. live
    After how many bytes of new records a snapshot is taken.
metadata.log.max.snapshot.interval.ms LONG 3600000 0.. live
    The longest time between snapshots while there are new records.
metadata.max.idle.interval.ms INT 500 0.. live
    How often an idle controller writes a record to show that it lives.
metadata.max.retention.bytes LONG 104857600 live
    The size above which old snapshots and metadata segments go.
metadata.max.retention.ms LONG 604800000 live
    The age at which old snapshots and metadata segments go.
internal.metadata.log.segment.bytes INT - internal
    The size of metadata segments, for tests.
internal.metadata.max.batch.size.in.bytes INT 8388608 internal
    The largest batch in the metadata log, for tests.
internal.metadata.delete.delay.millis LONG 60000 internal
    How long deleted metadata files stay on disk, for tests.
"""
