"""Broker configs: replicas, their leaders and their throttles.

The notation is explained in ``odradek.core.config.definition``.
"""

from typing import Final

TABLE: Final = """
default.replication.factor INT 1 live
    Replicas of a topic that is created without a number.
min.insync.replicas INT 1 1.. live cluster-wide
    How many replicas must be in sync for acks=all to succeed.
unclean.leader.election.enable BOOLEAN false live cluster-wide
    Whether a replica that may lack records can become leader.
auto.leader.rebalance.enable BOOLEAN true live
    Whether leadership goes back to preferred replicas by itself.
leader.imbalance.check.interval.seconds LONG 300 1.. live
    How often the controller looks for leaders that are not preferred.
unclean.leader.election.interval.ms LONG 300000 1.. live internal
    How often the controller looks for partitions that need an unclean election.
num.replica.fetchers INT 1 1.. live cluster-wide
    Fetchers for each broker that is followed.
replica.fetch.max.bytes INT 1048576 0.. live
    The bytes a follower asks for from each partition.
replica.fetch.min.bytes INT 1 live
    The bytes a leader waits for before it answers a follower.
replica.fetch.response.max.bytes INT 10485760 0.. live
    The most bytes in one answer to a follower.
replica.fetch.wait.max.ms INT 500 live
    The longest a leader lets a follower wait.
replica.fetch.backoff.ms INT 1000 0.. live
    How long a follower waits after a failed fetch.
replica.lag.time.max.ms LONG 30000 live
    How long a follower may lag before it leaves the in-sync set.
replica.high.watermark.checkpoint.interval.ms LONG 5000 live
    How often high watermarks are written down.
replica.socket.timeout.ms INT 30000 live
    How long a follower waits for an answer of its leader.
replica.socket.receive.buffer.bytes INT 65536
    The receive buffer of a follower's connection.
replica.selector.class STRING - live
    What picks the replica a consumer reads from: \
org.apache.kafka.common.replica.RackAwareReplicaSelector, or, if not set, the leader.
num.replica.alter.log.dirs.threads INT -
    Threads that move replicas between directories; one for each directory if not set.
follower.fetch.last.tiered.offset.enable BOOLEAN false cluster-wide
    Whether a new follower begins at the last offset in remote storage.
controlled.shutdown.enable BOOLEAN true live
    Whether a broker hands over its leaderships before it stops.
controller.socket.timeout.ms INT 30000
    How long a broker waits for the controller.
leader.replication.throttled.rate LONG 9223372036854775807 0.. cluster-wide dynamic-only live
    Bytes a second that throttled replicas may be sent by this broker.
follower.replication.throttled.rate LONG 9223372036854775807 0.. cluster-wide dynamic-only live
    Bytes a second that throttled replicas may be fetched by this broker.
replica.alter.log.dirs.io.max.bytes.per.second LONG 9223372036854775807 0.. cluster-wide \
dynamic-only live
    Bytes a second for moving replicas between directories.
"""
